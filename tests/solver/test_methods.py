# SPDX-License-Identifier: Apache-2.0
"""What must hold for every method: feasible, deterministic, balanced, within its bound."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

import solver
from solver.planning import triplet
from solver.problem import Candidate, Node, Plan, Problem
from solver.rounding import round_problem
from tests.solver.instances import KINDS, brute_force, medium, small

METHODS = ("auto", "exact", "dp-cpu", "bfd", "short-first")


def check(problem: Problem, plan: Plan) -> None:
    """Whatever the method: every rule of the problem holds and the value is the placements'."""
    unit = plan.quantum
    candidates = {candidate.id: candidate for candidate in problem.candidates}
    names = [placement.candidate for placement in plan.placements]
    assert len(set(names)) == len(names)
    used: Counter[str] = Counter()
    credit = 0
    for placement in plan.placements:
        candidate = candidates[placement.candidate]
        used[placement.node] += -(-candidate.cost // unit)
        credit += candidate.credit.get(placement.node, 0)
    for node in problem.nodes:
        assert used[node.id] <= node.capacity // unit
    placed = [candidates[name] for name in names]
    assert triplet(plan.value) == (credit, sum(c.ready for c in placed), sum(c.footprint for c in placed))
    assert triplet(plan.bound) >= triplet(plan.value)
    assert plan.optimal == (plan.bound == plan.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_plans_keep_the_rules_and_bounds_hold(method: str, kind: str) -> None:
    for seed in range(40):
        problem = small(kind, seed)
        plan = solver.solve(problem, method=method, budget_ms=500)
        check(problem, plan)
        best = brute_force(problem)
        assert triplet(plan.value) <= best <= triplet(plan.bound)
        if method in ("auto", "exact", "dp-cpu"):
            assert triplet(plan.value) == best, (kind, seed)
            assert plan.optimal


@pytest.mark.parametrize("method", METHODS)
def test_the_same_snapshot_gives_the_same_plan_however_it_is_listed(method: str) -> None:
    for seed in range(15):
        problem = small("ties", seed)
        turned = replace(problem, nodes=problem.nodes[::-1], candidates=problem.candidates[::-1])
        one = solver.solve(problem, method=method, budget_ms=10_000)
        other = solver.solve(turned, method=method, budget_ms=10_000)
        assert one.placements == other.placements


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("capacity", [130 * 4096, 300 * 4096])
def test_equal_candidates_spread_evenly(method: str, capacity: int) -> None:
    nodes = tuple(Node(f"w{k}/0", capacity) for k in range(4))
    candidates = tuple(Candidate(f"s{k}", 4000, True, 3600) for k in range(400))
    plan = solver.solve(Problem(nodes, candidates), method=method)
    count = Counter(placement.node for placement in plan.placements)
    assert sorted(count.values()) == [100] * 4
    assert plan.optimal


@pytest.mark.parametrize("method", ["exact", "auto"])
def test_equal_candidates_spread_evenly_beside_a_conflict(method: str) -> None:
    """Two candidates at home on one node, of which one must give way: no trivial proof, balance all the same."""
    nodes = tuple(Node(f"w{k}/0", 150 * 1024) for k in range(4))
    rivals = tuple(Candidate(f"r{k}", 80 * 1024, True, 80_000, {"w0/0": 500 + k}) for k in range(2))
    equals = tuple(Candidate(f"s{k}", 1000, True, 900) for k in range(400))
    plan = solver.solve(Problem(nodes, rivals + equals), method=method, budget_ms=1000)
    assert plan.optimal
    sizes = {c.id: -(-c.cost // 1024) for c in rivals + equals}
    used = Counter({node.id: 0 for node in nodes})
    for placement in plan.placements:
        used[placement.node] += sizes[placement.candidate]
    assert max(used.values()) - min(used.values()) <= 1, used


@pytest.mark.parametrize("method", ["auto", "exact", "dp-cpu", "bfd"])
def test_without_balance_ties_go_to_the_first_node_with_room_in_seeded_order(method: str) -> None:
    nodes = tuple(Node(f"w{k}/0", 10) for k in range(3))
    candidates = tuple(Candidate(f"s{k}", 2, True, 2) for k in range(7))
    firsts = set()
    for seed in range(20):
        problem = Problem(nodes, candidates, 1, seed, balance=False)
        plan = solver.solve(problem, method=method)
        count = Counter(placement.node for placement in plan.placements)
        assert sorted(count.values()) == [2, 5]
        assert count == Counter(p.node for p in solver.solve(problem, method="bfd").placements)
        firsts.add(max(count, key=lambda node: count[node]))
    assert firsts == {node.id for node in nodes}


@pytest.mark.parametrize("kind", KINDS)
def test_balance_decides_among_plans_of_one_value(kind: str) -> None:
    for seed in range(40):
        problem = replace(small(kind, seed), balance=False)
        best = brute_force(problem)
        for method in ("exact", "dp-cpu"):
            plan = solver.solve(problem, method=method, budget_ms=500)
            check(problem, plan)
            assert triplet(plan.value) == best


def test_without_balance_exact_moves_what_a_conflict_left_elsewhere() -> None:
    nodes = (Node("a", 10), Node("b", 10), Node("c", 10))
    rivals = tuple(Candidate(f"r{k}", 8, True, 8, {"a": 5 + k}) for k in range(2))
    equals = tuple(Candidate(f"s{k}", 1, True, 1) for k in range(6))
    for seed in range(8):
        problem = Problem(nodes, rivals + equals, 1, seed, balance=False)
        plan = solver.solve(problem, method="exact", budget_ms=1000)
        assert plan.optimal
        order = round_problem(problem).node_ids
        used = Counter({node.id: 0 for node in nodes})
        for placement in plan.placements:
            used[placement.node] += 8 if placement.candidate.startswith("r") else 1
        lone = [p.node for p in plan.placements if p.candidate.startswith("s")]
        for node in set(lone):
            assert all(used[before] == 10 for before in order[: order.index(node)])


@pytest.mark.parametrize("method", METHODS)
def test_which_node_gets_the_odd_one_depends_on_the_seed(method: str) -> None:
    nodes = tuple(Node(f"w{k}/0", 40) for k in range(3))
    lone = (Candidate("s", 4, True, 3),)
    hit = Counter(solver.solve(Problem(nodes, lone, 1, seed), method=method).placements[0].node for seed in range(60))
    assert min(hit[node.id] for node in nodes) >= 8, hit


@pytest.mark.parametrize("method", METHODS)
def test_the_most_valuable_placements_come_first(method: str) -> None:
    problem = medium(24, 2, "plain", 5)
    plan = solver.solve(replace(problem, quantum=4096), method=method, budget_ms=500)
    by_id = {candidate.id: candidate for candidate in problem.candidates}
    keys = [
        (by_id[p.candidate].credit.get(p.node, 0), by_id[p.candidate].ready, by_id[p.candidate].footprint)
        for p in plan.placements
    ]
    assert keys == sorted(keys, reverse=True)
    assert len(keys) > 5


@pytest.mark.parametrize("method", METHODS)
def test_nothing_to_place_or_nowhere(method: str) -> None:
    lone = Candidate("s", 5, True, 5)
    for problem in (
        Problem((), ()),
        Problem((), (lone,)),
        Problem((Node("a", 9),), ()),
        Problem((Node("a", 0),), (lone,)),
    ):
        plan = solver.solve(replace(problem, quantum=1), method=method)
        assert plan.placements == ()
        assert plan.optimal


def test_exact_at_no_budget_is_no_worse_than_greedy_and_bounded() -> None:
    for kind in KINDS:
        for seed in range(25):
            problem = small(kind, seed)
            plan = solver.solve(problem, method="exact", budget_ms=0)
            best = brute_force(problem)
            assert triplet(solver.solve(problem, method="bfd").value) <= triplet(plan.value) <= best
            assert best <= triplet(plan.bound)
