# SPDX-License-Identifier: Apache-2.0
"""Smallest footprint first, most room first: ThunderAgent's greedy rule, as a baseline."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from solver.greedy import place_in_order
from solver.planning import make_plan
from solver.rounding import round_problem, trivial_bound

if TYPE_CHECKING:
    from solver.columns import Snapshot
    from solver.problem import Plan


def solve(problem: Snapshot) -> Plan:
    """The plan of the rule; it looks at neither credit nor readiness."""
    began = time.perf_counter()
    rounded = round_problem(problem)
    footprint = rounded.footprint.tolist()
    order = sorted(range(len(footprint)), key=lambda i: (footprint[i], i))
    assignment = place_in_order(rounded, order, heed_credit=False, balance=True)
    return make_plan(
        rounded,
        assignment,
        bound=trivial_bound(rounded),
        method="short-first",
        seconds=time.perf_counter() - began,
    )
