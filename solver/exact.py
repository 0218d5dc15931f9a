# SPDX-License-Identifier: Apache-2.0
"""Exact far beyond the dense DP: credit by node, readiness and footprint in the room left over, then a search.

1. The greedy plan; where every candidate got its best there is nothing to prove.
2. The greatest credit (:mod:`solver.credit_search`), and the pairs that every such choice has in common.
3. The room that they leave, filled by a multiple knapsack (:mod:`solver.leftover`), with its bound.
4. Where plan and bound do not meet, or pairs are open because credits tie: :mod:`solver.tree`, until the
   budget ends.
5. Balance among equals, and never less than the greedy plan.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from solver import bfd
from solver.credit import Flags, Pairs, make_pairs
from solver.credit_search import DEAD, FIXED, OPEN, CreditResult, common_pairs, solve_credit
from solver.fill import even_out
from solver.leftover import Filling, fill
from solver.packing import Packing
from solver.planning import make_plan, triplet
from solver.problem import Plan, Problem, Value
from solver.rounding import Ints, Rounded, round_problem, trivial_bound, value_of
from solver.tree_search import search

CREDIT_SHARE = 0.6
"""Share of the budget after which the credit must do with a bound."""
BALANCE_ROUNDS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """The problem after the credit: ``at[N]`` with every fixed pair placed, ``rooms[M]`` left.

    ``credit`` is what the fixed pairs give, ``need`` what the whole must reach; ``status[H]`` per pair.
    ``items`` are the candidates not placed that fit some room, ``worth[N]`` packed (ready, footprint).
    """

    at: Ints
    rooms: Ints
    items: Ints
    worth: Ints
    packing: Packing


def solve(problem: Problem, budget_ms: float = 50.0) -> Plan:
    """The best plan found within the budget, with a bound; the optimum where ``optimal`` says so.

    Raises:
        BudgetExceededError: values too large for any packing.
    """
    began = time.perf_counter()
    rounded = round_problem(problem)
    assignment, bound = assign(rounded, began, budget_ms / 1e3)
    return make_plan(rounded, assignment, bound=bound, method="exact", seconds=time.perf_counter() - began)


def assign(rounded: Rounded, began: float, budget: float) -> tuple[Ints, Value]:
    """Assignment and bound; ``began`` by ``time.perf_counter``, ``budget`` in seconds."""
    greedy = bfd.assign(rounded)
    ceiling = trivial_bound(rounded)
    if triplet(value_of(rounded, greedy)) == triplet(ceiling):
        return greedy, ceiling
    packing = Packing.fit(0, int(rounded.ready.sum()), sum(rounded.footprint.tolist()))
    worth = rounded.ready << packing.footprint_bits | rounded.footprint
    pairs = make_pairs(rounded)
    found = solve_credit(pairs, began + CREDIT_SHARE * budget)
    if found.bound > found.credit:
        status = np.where(found.held, FIXED, DEAD).astype(np.uint8)
    else:
        status = common_pairs(pairs, found.credit, found.price, found.best)
        status[rounded.cost[pairs.owner] == 0] = FIXED
    held = _stage(rounded, pairs, found.held == 1, worth, packing)
    filling = fill(rounded.cost[held.items], worth[held.items], held.rooms)
    at = held.at.copy()
    at[held.items] = filling.at
    best = _refine(rounded, pairs, found, status, at, filling, worth, packing, began + budget)
    assignment, bound = best
    if found.bound > found.credit:
        bound = Value(found.bound, ceiling.ready, ceiling.footprint)
    _free_riders(rounded, assignment)
    _balance(rounded, assignment)
    if triplet(value_of(rounded, greedy)) > triplet(value_of(rounded, assignment)):
        assignment = greedy
    value = value_of(rounded, assignment)
    return assignment, value if triplet(value) > triplet(bound) else bound


def _stage(rounded: Rounded, pairs: Pairs, placed: Ints, worth: Ints, packing: Packing) -> Stage:
    """Place these pairs; what is left are the items that still fit somewhere."""
    at = np.full(len(rounded.cost), -1, dtype=np.int64)
    at[pairs.owner[placed]] = pairs.node[placed]
    taken = at >= 0
    rooms = rounded.capacity - np.bincount(at[taken], rounded.cost[taken], len(rounded.capacity)).astype(np.int64)
    items = np.flatnonzero(~taken & (rounded.cost > 0) & (rounded.cost <= rooms.max(initial=0)))
    return Stage(at, rooms, items, worth, packing)


def _refine(
    rounded: Rounded,
    pairs: Pairs,
    found: CreditResult,
    status: Flags,
    at: Ints,
    filling: Filling,
    worth: Ints,
    packing: Packing,
    deadline: float,
) -> tuple[Ints, Value]:
    """Search on where the filling is not proven the best of all plans with this credit."""
    mine = int(worth[at >= 0].sum()) + int(worth[rounded.cost == 0][at[rounded.cost == 0] < 0].sum())
    tied = bool((status == OPEN).any())
    if not tied:
        bound = mine - filling.worth + filling.bound
        if filling.worth == filling.bound:
            return at, _value(found.credit, packing, bound)
    fixed = _stage(rounded, pairs, status == FIXED, worth, packing)
    if tied:
        relaxed = fill(rounded.cost[fixed.items], worth[fixed.items], fixed.rooms)
        base = int(worth[fixed.at >= 0].sum())
        riders = (rounded.cost == 0) & (fixed.at < 0)
        base += int(worth[riders].sum())
        bound = base + relaxed.bound
        if bound == mine:
            return at, _value(found.credit, packing, bound)
    better, proven = search(rounded, pairs, found, status, fixed.at, fixed.rooms, fixed.items, worth, at, deadline)
    if proven:
        placed = int(worth[better >= 0].sum())
        riders = (rounded.cost == 0) & (better < 0)
        bound = placed + int(worth[riders].sum())
    return better, _value(found.credit, packing, bound)


def _value(credit: int, packing: Packing, worth: int) -> Value:
    rest = packing.unpack(0, worth)
    return Value(credit, rest.ready, rest.footprint)


def _free_riders(rounded: Rounded, assignment: Ints) -> None:
    """Candidates that cost nothing go where they have credit, else where most room is."""
    idle = np.flatnonzero((rounded.cost == 0) & (assignment < 0))
    if len(idle) and len(rounded.capacity):
        taken = assignment >= 0
        used = np.bincount(assignment[taken], rounded.cost[taken], len(rounded.capacity))
        assignment[idle] = int(np.argmax(rounded.capacity - used))


def _balance(rounded: Rounded, assignment: Ints) -> None:
    taken = assignment >= 0
    used = np.bincount(assignment[taken], rounded.cost[taken], len(rounded.capacity)).astype(np.int64)
    even_out(
        rounded.cost,
        rounded.home_start,
        rounded.home_node,
        rounded.home_credit,
        rounded.capacity - used,
        assignment,
        BALANCE_ROUNDS,
    )
