# SPDX-License-Identifier: Apache-2.0
"""Credit by node, then the room left over: a plan and its bound in one compiled call.

Most snapshots are solved and proven here. What is left open goes on in :mod:`solver.exact`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from solver.clock import now
from solver.credit import Pairs, make_pairs
from solver.credit_agree import agreed_pairs
from solver.credit_common import DEAD, FIXED, OPEN
from solver.credit_search import CreditResult, solve_credit
from solver.jit import compiled
from solver.knapsack import Flags
from solver.leftover import fill
from solver.settle import greedy, rooms_left, settle_ties, value

if TYPE_CHECKING:
    from solver.columns import Ints

CREDIT_SHARE = 0.85
"""Share of the budget after which the credit must do with a bound."""
SWEEP_SHARE = 0.5
"""Share of what is left then for what all credit optima agree on."""


class Outcome(NamedTuple):
    """``at[N]`` and a bound on any plan: ``credit_bound`` (tokens) and packed ``rest_bound``.

    ``open`` where plan and bound do not meet although the credit is proven; then ``status[H]`` of the pairs
    and ``price[N]`` are what to go on from, and ties are not settled yet. ``greedy[N]`` is the least to return.
    """

    at: Ints
    greedy: Ints
    credit: int
    credit_bound: int
    rest_bound: int
    open: bool
    status: Flags
    price: Ints


@compiled
def decompose(
    cost: Ints,
    worth: Ints,
    capacity: Ints,
    start: Ints,
    home: Ints,
    credit: Ints,
    one_ready: int,
    began: float,
    budget: float,
    balance: bool,
) -> Outcome:
    """The best plan that the credit optimum and a filling give, with a bound.

    ``worth[N]`` is packed (ready, footprint), ``one_ready`` that of readiness alone; ``start``, ``home`` and
    ``credit`` are the homes of a rounded problem; ``began`` by :func:`solver.clock.now`, ``budget`` in seconds.
    """
    first = greedy(cost, worth, capacity, start, home, credit, balance)
    most, rest_most = _ceiling(cost, worth, capacity, start, credit)
    none, free = np.zeros(0, np.uint8), np.zeros(0, np.int64)
    reached, rest = value(first, worth, start, home, credit)
    if reached == most and rest == rest_most:
        return Outcome(first, first, most, most, rest_most, False, none, free)
    pairs = make_pairs(cost, capacity, start, home, credit)
    known = np.zeros(len(pairs.node), np.uint8)
    for k in range(len(known)):
        known[k] = first[pairs.owner[k]] == pairs.node[k]
    found = solve_credit(pairs, known, began + CREDIT_SHARE * budget)
    at, bound, status = _complete(pairs, found, worth, one_ready, began + budget, balance)
    total, rest = value(at, worth, start, home, credit)
    proven = found.bound == found.credit
    if not proven:
        bound = rest_most
    is_open = proven and rest < bound
    if not is_open:
        settle_ties(cost, capacity, start, home, credit, at, balance)
        greedy_total, greedy_rest = value(first, worth, start, home, credit)
        if greedy_total > total or (greedy_total == total and greedy_rest > rest):
            at = first
    return Outcome(at, first, found.credit * pairs.unit, found.bound * pairs.unit, bound, is_open, status, found.price)


@compiled
def _ceiling(cost: Ints, worth: Ints, capacity: Ints, start: Ints, credit: Ints) -> tuple[int, int]:
    """Every candidate that fits some node, at its best: credit and packed worth."""
    widest = -1
    for room in capacity:
        widest = max(widest, room)
    most, rest = 0, 0
    for i in range(len(cost)):
        if cost[i] <= widest:
            rest += worth[i]
        if start[i] < start[i + 1]:
            most += credit[start[i]]
    return most, rest


@compiled
def _complete(
    pairs: Pairs, found: CreditResult, worth: Ints, one_ready: int, deadline: float, balance: bool
) -> tuple[Ints, int, Flags]:
    """From the credit to a whole plan; the packed bound holds where the credit is proven."""
    status = np.empty(len(pairs.node), np.uint8)
    for k in range(len(status)):
        status[k] = FIXED if found.held[k] else DEAD
    at, bound, _ = around(pairs, status, worth, one_ready, balance)
    if found.bound == found.credit:
        time = now()
        status = agreed_pairs(pairs, found, time + SWEEP_SHARE * (deadline - time))
        is_open = False
        for k in range(len(status)):
            if pairs.cost[pairs.owner[k]] == 0:
                status[k] = FIXED
            is_open |= status[k] == OPEN
        if is_open:
            _, bound, _ = around(pairs, status, worth, one_ready, balance)
    return at, bound, status


@compiled
def around(pairs: Pairs, status: Flags, worth: Ints, one_ready: int, balance: bool) -> tuple[Ints, int, Ints]:
    """Place the fixed pairs and what costs nothing, fill the room left; plan, packed bound, the items filled in.

    The bound is on every plan with those pairs.
    """
    at, rooms, items = fixed_places(pairs, status, balance)
    filling = fill(pairs.cost[items], worth[items], rooms, one_ready)
    bound = filling.bound
    for i in range(len(at)):
        if at[i] >= 0:
            bound += worth[i]
    for j in range(len(items)):
        at[items[j]] = filling.at[j]
    return at, bound, items


@compiled
def fixed_places(pairs: Pairs, status: Flags, balance: bool) -> tuple[Ints, Ints, Ints]:
    """The assignment of the fixed pairs and of what costs nothing, the room left, the candidates left to decide on."""
    at = np.full(len(pairs.cost), -1, np.int64)
    for k in range(len(status)):
        if status[k] == FIXED:
            at[pairs.owner[k]] = pairs.node[k]
    rooms = rooms_left(pairs.cost, pairs.capacity, at)
    widest, idlest = 0, 0
    for n in range(len(rooms)):
        if rooms[n] > widest:
            widest, idlest = rooms[n], n
    items = np.empty(len(at), np.int64)
    count = 0
    for i in range(len(at)):
        if at[i] >= 0:
            continue
        if pairs.cost[i] == 0 and len(rooms) > 0:
            at[i] = idlest if balance else 0
        elif 0 < pairs.cost[i] <= widest:
            items[count] = i
            count += 1
    return at, rooms, items[:count].copy()
