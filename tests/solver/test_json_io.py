# SPDX-License-Identifier: Apache-2.0
"""Problems and plans cross JSON unharmed; what is wrong is named."""

from __future__ import annotations

import json

import pytest

import solver
from solver.json_io import plan_to_json, problem_from_json, problem_to_json
from solver.problem import Problem
from tao_dynamo.errors import ProblemError
from tests.solver.instances import KINDS, small

FROM_THE_ISSUE = """{"quantum": 1024, "nodes": [{"id": "w1/0", "capacity": 200000}], "candidates": [
    {"id": "s1", "cost": 18200, "ready": true, "footprint": 18000, "credit": {"w1/0": 12345}}]}"""


def test_the_issues_example_gives_the_issues_plan() -> None:
    plan = json.loads(plan_to_json(solver.solve(problem_from_json(FROM_THE_ISSUE), method="exact")))
    best = {"credit": 12345, "ready": 1, "footprint": 18000}
    assert plan.pop("seconds") > 0
    assert plan == {
        "placements": [{"candidate": "s1", "node": "w1/0"}],
        "value": best,
        "bound": best,
        "optimal": True,
        "method": "exact",
        "quantum": 1024,
        "note": "rounding to 1024 tokens takes 552 of 200000 tokens of room",
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_problem_comes_back_as_it_was(kind: str) -> None:
    for seed in range(20):
        problem = small(kind, seed)
        assert problem_from_json(problem_to_json(problem)) == problem


def test_balance_crosses_and_is_true_where_absent() -> None:
    problem = Problem((), (), balance=False)
    assert problem_from_json(problem_to_json(problem)) == problem
    assert problem_from_json('{"nodes": [], "candidates": []}').balance
    with pytest.raises(ProblemError, match="balance"):
        problem_from_json('{"nodes": [], "candidates": [], "balance": 0}')


def test_an_absent_quantum_is_left_to_the_solver() -> None:
    problem = problem_from_json('{"nodes": [{"id": "a", "capacity": 200000}], "candidates": []}')
    assert problem.quantum == 0
    assert solver.solve(problem).quantum == 512
    assert solver.solve(Problem(problem.nodes, (), 1024)).quantum == 1024


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[]", "problem"),
        ("{", "problem"),
        (b"\xff", "problem"),
        ('{"nodes": []}', "problem.candidates"),
        ('{"nodes": {}, "candidates": []}', "nodes"),
        ('{"nodes": [7], "candidates": []}', "nodes[0]"),
        ('{"nodes": [{"id": "a"}], "candidates": []}', "nodes[0].capacity"),
        ('{"nodes": [{"id": "a", "capacity": NaN}], "candidates": []}', "problem"),
        ('{"nodes": [{"id": "a", "capacity": 1e3}], "candidates": []}', "nodes[0].capacity"),
        ('{"nodes": [], "candidates": [], "quanta": 1}', "problem.quanta"),
        ('{"nodes": [], "nodes": [], "candidates": []}', "problem"),
        ('{"nodes": [], "candidates": [{"id": "s", "cost": 1, "ready": true, "footprint": 1, "credit": 3}]}',
         "candidates[0].credit"),
        ('{"nodes": [], "candidates": [{"id": "s", "cost": "1", "ready": true, "footprint": 1}]}',
         "candidates[0].cost"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(text: str | bytes, where: str) -> None:
    with pytest.raises(ProblemError) as raised:
        problem_from_json(text)
    assert raised.value.where == where
