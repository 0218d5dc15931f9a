# SPDX-License-Identifier: Apache-2.0
"""A snapshot with a fault is refused, and the fault is named."""

from __future__ import annotations

import math
from typing import Any

import pytest

import solver
from solver.problem import Candidate, Node, Problem
from tao_dynamo.errors import ConfigError, ProblemError

NODE: dict[str, Any] = {"id": "w1/0", "capacity": 1000}
CANDIDATE: dict[str, Any] = {"id": "s1", "cost": 10, "ready": True, "footprint": 9, "credit": {"w1/0": 5}}


def problem(node: dict[str, Any] | None = None, candidate: dict[str, Any] | None = None, **rest: Any) -> Problem:
    return Problem((Node(**NODE | (node or {})),), (Candidate(**CANDIDATE | (candidate or {})),), **rest)


def test_a_sound_problem_passes() -> None:
    solver.validate(problem())


@pytest.mark.parametrize(
    ("faulty", "where"),
    [
        (problem(candidate={"cost": -1}), "candidates[0].cost"),
        (problem(candidate={"cost": math.nan}), "candidates[0].cost"),
        (problem(candidate={"cost": 1.5}), "candidates[0].cost"),
        (problem(candidate={"cost": True}), "candidates[0].cost"),
        (problem(candidate={"cost": 1 << 41}), "candidates[0].cost"),
        (problem(candidate={"footprint": -5}), "candidates[0].footprint"),
        (problem(candidate={"ready": 1}), "candidates[0].ready"),
        (problem(candidate={"tier": 0.5}), "candidates[0].tier"),
        (problem(candidate={"credit": {"w9/0": 5}}), "candidates[0].credit"),
        (problem(candidate={"credit": {"w1/0": -5}}), "candidates[0].credit[w1/0]"),
        (problem(candidate={"id": ""}), "candidates[0].id"),
        (problem(node={"capacity": -1}), "nodes[0].capacity"),
        (problem(node={"id": 7}), "nodes[0].id"),
        (problem(quantum=-1), "quantum"),
        (problem(seed="x"), "seed"),
        (problem(balance=1), "balance"),
        (Problem((Node("a", 1), Node("a", 2)), ()), "nodes[1].id"),
        (Problem((), (Candidate("s", 1, True, 1), Candidate("s", 1, True, 1))), "candidates[1].id"),
    ],
)
def test_each_fault_is_named(faulty: Problem, where: str) -> None:
    with pytest.raises(ProblemError) as raised:
        solver.solve(faulty)
    assert raised.value.where == where


def test_unknown_method_and_budget_are_refused() -> None:
    with pytest.raises(ConfigError, match="method: got 'best'"):
        solver.solve(problem(), method="best")
    with pytest.raises(ConfigError, match="budget_ms"):
        solver.solve(problem(), budget_ms=math.nan)
