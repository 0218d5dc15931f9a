# SPDX-License-Identifier: Apache-2.0
"""Tiers, quanta, notes and budgets of the front."""

from __future__ import annotations

import subprocess
import sys

import pytest

import solver
from solver.planning import triplet
from solver.problem import Candidate, Node, Problem, Value
from tests.solver.instances import medium


@pytest.mark.parametrize("method", ["auto", "exact", "dp-cpu", "bfd", "short-first"])
def test_a_higher_tier_goes_first_whatever_its_value(method: str) -> None:
    nodes = (Node("a", 10), Node("b", 4))
    candidates = (
        Candidate("rich", 10, True, 10, {"a": 99}),
        Candidate("late", 6, False, 6, tier=1),
        Candidate("small", 4, True, 4),
    )
    plan = solver.solve(Problem(nodes, candidates, 1), method=method)
    assert {(p.candidate, p.node) for p in plan.placements[:1]} == {("late", "a")}
    assert plan.value == Value(0, 1, 10)
    assert plan.note.startswith("2 tiers")
    assert plan.method == ("exact" if method == "auto" else method)


def test_tiers_share_one_quantum_and_never_overfill() -> None:
    candidates = tuple(Candidate(f"s{k}", 700 + 31 * k, True, 600, tier=k % 3) for k in range(30))
    nodes = tuple(Node(f"n{k}", 5_001 + k) for k in range(2))
    plan = solver.solve(Problem(nodes, candidates, 0), method="exact")
    costs = {candidate.id: -(-candidate.cost // plan.quantum) for candidate in candidates}
    for node in nodes:
        used = sum(costs[p.candidate] for p in plan.placements if p.node == node.id)
        assert used <= node.capacity // plan.quantum
    tier = {candidate.id: candidate.tier for candidate in candidates}
    order = [tier[p.candidate] for p in plan.placements]
    assert order == sorted(order, reverse=True)


def test_the_note_says_what_rounding_takes() -> None:
    problem = Problem((Node("a", 2_500),), (Candidate("s", 1_001, True, 900),), 1000)
    assert solver.solve(problem).note == "rounding to 1000 tokens takes 1499 of 2500 tokens of room"
    assert solver.solve(Problem((Node("a", 9),), (Candidate("s", 3, True, 3),), 1)).note == ""


def test_a_given_quantum_is_kept_and_an_open_one_is_coarsened_until_the_dense_dp_fits() -> None:
    tight = Problem(
        tuple(Node(f"n{k}", 9_000) for k in range(3)),
        tuple(Candidate(f"s{k}", 1_700 + 7 * k, True, 1_000 + k, {f"n{k % 3}": 9}) for k in range(20)),
        0,
    )
    assert solver.solve(tight, method="dp-cpu").quantum == 64
    assert solver.solve(tight, method="exact").quantum == 32


@pytest.mark.parametrize("kind", ["plain", "ties", "no-credit"])
def test_a_budget_too_short_for_a_proof_gives_a_plan_and_a_bound(kind: str) -> None:
    solver.warm_up()
    problem = medium(512, 32, kind, 1)
    plan = solver.solve(problem, method="exact", budget_ms=4)
    assert triplet(plan.value) <= triplet(plan.bound)
    assert triplet(plan.value) >= triplet(solver.solve(problem, method="bfd").value)


def test_auto_lets_the_dense_dp_prove_what_exact_has_no_time_for() -> None:
    solver.warm_up()
    problem = Problem(
        tuple(Node(f"n{k}", 12) for k in range(2)),
        tuple(Candidate(f"s{k}", 3 + k % 4, k % 3 > 0, 10 + k * 7 % 5, {f"n{k % 2}": 2 + k % 2}) for k in range(12)),
        1,
    )
    plan = solver.solve(problem, method="auto", budget_ms=60)
    assert plan.optimal
    assert plan.value == solver.solve(problem, method="dp-cpu").value


def test_the_greedy_methods_load_nothing_compiled() -> None:
    code = (
        "import sys, solver; from solver.problem import *;"
        "solver.solve(Problem((Node('a', 9),), (Candidate('s', 3, True, 3),), 1), method='bfd');"
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
