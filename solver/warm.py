# SPDX-License-Identifier: Apache-2.0
"""Small snapshots that between them go through every compiled loop once."""

from __future__ import annotations

import math

import numpy as np

from solver import dp_cpu, exact
from solver.credit import by_node, make_pairs
from solver.credit_search import solve_credit
from solver.fill import holdable, surrogate
from solver.leftover import fill, linear_bound
from solver.problem import Candidate, Node, Problem
from solver.rounding import round_problem
from solver.settle import rooms_left


def warm_up() -> None:
    """Compile, or load from the cache, all kernels; seconds the first time, tens of milliseconds later."""
    for problem in samples():
        exact.solve(problem, 200.0)
        dp_cpu.solve(problem)
    # What follows is called from Python only where readiness is left open, which no small snapshot does for sure.
    rounded = round_problem(_gap())
    pairs = make_pairs(rounded.cost, rounded.capacity, rounded.home_start, rounded.home_node, rounded.home_credit)
    by_node(pairs.node, len(pairs.capacity))
    solve_credit(pairs, np.zeros(len(pairs.node), dtype=np.uint8), math.inf)
    rooms_left(rounded.cost, rounded.capacity, np.full(len(rounded.cost), -1, dtype=np.int64))
    cost, worth = np.array([3, 2], dtype=np.int64), np.array([9, 5], dtype=np.int64)
    fill(cost, worth, np.array([4, 3], dtype=np.int64), 8)
    surrogate(cost, worth, int(holdable(cost, 4)[4]))
    linear_bound(cost, worth, 4)


def samples() -> list[Problem]:
    """Snapshots with values in one and in two words, ties, shared homes and more demand than room."""
    nodes = tuple(Node(f"n{k}", 11 + k) for k in range(3))
    crowded = tuple(
        Candidate(
            f"s{k}",
            2 + k * 7 % 5,
            k % 3 > 0,
            20 + k * 13 % 11,
            {f"n{k % 3}": 1 + k % 2, f"n{(k + 1) % 3}": 1 + k % 3} if k % 4 else {},
        )
        for k in range(14)
    )
    large = tuple(
        Candidate(c.id, c.cost, c.ready, c.footprint << 32, {n: v << 36 for n, v in c.credit.items()}) for c in crowded
    )
    return [
        Problem(nodes, crowded, 1),
        Problem(nodes, crowded, 1, balance=False),
        Problem(nodes, large, 1),
        _gap(),
    ]


def _gap() -> Problem:
    """Prices alone leave a gap here: the credit is branched for, and its optima are gone through."""
    rows: tuple[tuple[int, bool, int, dict[str, int]], ...] = (
        (5, True, 11, {"a": 21, "b": 27}),
        (2, False, 5, {"a": 3, "b": 22}),
        (5, False, 15, {"a": 8}),
        (2, True, 5, {"a": 22, "b": 28}),
        (4, False, 2, {"a": 25}),
        (4, True, 2, {}),
    )
    candidates = tuple(Candidate(f"s{k}", *row) for k, row in enumerate(rows))
    return Problem((Node("a", 7), Node("b", 5)), candidates, 1)
