# SPDX-License-Identifier: Apache-2.0
"""`exact` against brute force, the dense DP and OR-Tools CP-SAT; its bounds; its speed and memory at size."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import solver
from benchmarks.solver_instances import Size, snapshot
from benchmarks.solver_rivals import cp_sat
from solver import dp_cpu, exact
from solver.planning import triplet
from solver.problem import Candidate, Node, Problem
from tests.solver.instances import KINDS, brute_force, medium, small

NODES = 3
candidates = st.builds(
    lambda cost, ready, footprint, credit: (cost, ready, footprint, credit),
    st.integers(0, 7),
    st.booleans(),
    st.integers(0, 6),
    st.dictionaries(st.integers(0, NODES - 1), st.integers(0, 5), max_size=NODES),
)


@pytest.mark.timeout(600)
@settings(max_examples=1500, deadline=None)
@given(st.lists(st.integers(0, 11), min_size=1, max_size=NODES), st.lists(candidates, max_size=8), st.integers(0, 5))
def test_exact_and_dense_dp_are_the_optimum(
    rooms: list[int], raw: list[tuple[int, bool, int, dict[int, int]]], seed: int
) -> None:
    problem = Problem(
        tuple(Node(f"n{k}", room) for k, room in enumerate(rooms)),
        tuple(
            Candidate(f"s{k}", cost, ready, footprint, {f"n{n}": c for n, c in credit.items() if n < len(rooms)})
            for k, (cost, ready, footprint, credit) in enumerate(raw)
        ),
        1,
        seed,
    )
    best = brute_force(problem)
    found = exact.solve(problem, 2000.0)
    assert triplet(found.value) == best
    assert found.optimal
    assert triplet(dp_cpu.solve(problem).value) == best


@pytest.mark.parametrize("kind", KINDS)
def test_hundreds_of_random_snapshots_of_each_kind(kind: str) -> None:
    for seed in range(1000, 1300):
        problem = small(kind, seed)
        assert triplet(exact.solve(problem, 2000.0).value) == brute_force(problem), (kind, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_exact_agrees_with_the_dense_dp_where_both_reach(kind: str) -> None:
    for seed in range(3):
        problem = medium(24, 2, kind, seed)
        dense = dp_cpu.solve(problem)
        found = exact.solve(problem, 5000.0)
        assert found.optimal
        assert found.value == dense.value, (kind, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_exact_agrees_with_cp_sat(kind: str) -> None:
    """CP-SAT stops after a second here; what it has not proven still may not be above our bound."""
    solver.warm_up()
    proven = 0
    for candidates_, nodes in ((32, 4), (64, 4), (128, 8)):
        problem = medium(candidates_, nodes, kind, 7)
        found = exact.solve(problem, 5000.0)
        rival = cp_sat(problem, 1.0 if candidates_ < 128 else 3.0, 1)
        if rival.value is not None:
            assert triplet(rival.value) <= triplet(found.bound)
        if rival.proven == 3:
            proven += 1
            assert found.value == rival.value, (kind, candidates_, nodes)
            assert found.optimal
    assert proven or kind in ("no-credit", "loose")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("budget", [0.0, 0.3, 1.0, 3.0])
def test_a_bound_given_early_holds(kind: str, budget: float) -> None:
    for seed in range(3):
        problem = medium(48, 4, kind, seed)
        proven = exact.solve(problem, 10_000.0)
        assert proven.optimal, (kind, seed)
        early = exact.solve(problem, budget)
        assert triplet(early.value) <= triplet(proven.value) <= triplet(early.bound)
        assert triplet(early.value) >= triplet(solver.solve(problem, method="bfd").value)


def test_ties_in_credit_do_not_hide_readiness() -> None:
    """Either of two candidates gives the most credit; only one choice leaves room for what is ready."""
    nodes = (Node("a", 10), Node("b", 6))
    rivals = (
        Candidate("x", 10, False, 9, {"a": 7}),
        Candidate("y", 8, False, 1, {"a": 7}),
        Candidate("ready", 2, True, 1),
        Candidate("also", 6, True, 1),
    )
    plan = exact.solve(Problem(nodes, rivals, 1), 1000.0)
    assert {(p.candidate, p.node) for p in plan.placements} == {("y", "a"), ("ready", "a"), ("also", "b")}
    assert triplet(plan.value) == (7, 2, 3)
    assert plan.optimal


def test_a_candidate_wanted_twice_goes_where_it_is_missed_most() -> None:
    nodes = (Node("a", 10), Node("b", 10))
    rivals = (
        Candidate("both", 10, True, 1, {"a": 10, "b": 9}),
        Candidate("only-a", 10, True, 1, {"a": 8}),
        Candidate("only-b", 10, True, 1, {"b": 2}),
    )
    plan = exact.solve(Problem(nodes, rivals, 1), 1000.0)
    assert {(p.candidate, p.node) for p in plan.placements} == {("both", "b"), ("only-a", "a")}
    assert plan.value.credit == 17
    assert plan.optimal


def test_at_full_size_credit_and_readiness_are_proven() -> None:
    proven = 0
    for kind, seed in itertools.product(("tight-few", "loose-few", "tight-burst", "loose-burst"), range(10)):
        plan = exact.solve(snapshot(Size(1024, 64), kind, seed), 1000.0)
        proven += plan.value.credit == plan.bound.credit and plan.value.ready == plan.bound.ready
    assert proven >= 38, "95 %"


def test_full_size_stays_under_500_megabytes() -> None:
    # VmHWM and not ru_maxrss: Linux carries the latter over from the process that forks, here all of pytest.
    code = (
        "from pathlib import Path; from tests.solver.instances import medium; from solver import exact, warm;"
        "warm.warm_up(); [exact.solve(medium(1024, 64, k, 1), 100.0) for k in ('plain', 'many-homes', 'no-credit')];"
        "print(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])"
    )
    # The first run compiles, and the compiler takes room of its own; a planner starts from the compiled kernels.
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=110)
    assert int(done.stdout) * 1024 < 500e6
