# SPDX-License-Identifier: Apache-2.0
"""The way in: one problem, one plan, by a named method or the one that suits it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from solver import bfd, short_first
from solver.checks import validate
from tao_dynamo.errors import ConfigError

if TYPE_CHECKING:
    from solver.problem import Plan, Problem

METHODS = ("auto", "bfd", "short-first")


def solve(problem: Problem, *, method: str = "auto", budget_ms: float = 50.0) -> Plan:
    """Solve a problem.

    Raises:
        ProblemError: the problem breaks a rule, the field is named.
        ConfigError: there is no such method.
    """
    validate(problem)
    solvers: dict[str, Callable[[Problem], Plan]] = {
        "auto": bfd.solve,
        "bfd": bfd.solve,
        "short-first": short_first.solve,
    }
    if method not in solvers:
        raise ConfigError("method", method, f"one of {', '.join(METHODS)}")
    return solvers[method](problem)
