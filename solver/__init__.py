# SPDX-License-Identifier: Apache-2.0
"""Which candidates go where: a lexicographic generalised assignment problem, solved exactly.

``solve`` takes a :class:`Problem` and gives a :class:`Plan`; nothing here reads a clock for anything but its
budget, or touches a socket or a file.
"""

from __future__ import annotations

from solver.checks import validate
from solver.front import solve, warm_up
from solver.problem import Candidate, Node, Placement, Plan, Problem, Value

__all__ = ["Candidate", "Node", "Placement", "Plan", "Problem", "Value", "solve", "validate", "warm_up"]
