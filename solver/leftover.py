# SPDX-License-Identifier: Apache-2.0
"""Fill the rooms left over by the credit optimum: a plan for them and a bound on any such plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from solver.fill import Flags, descending, holdable, insert, split, surrogate, traced
from solver.jit import compiled

if TYPE_CHECKING:
    from solver.columns import Ints

MAX_CELLS = 40_000_000
"""Candidates times room up to which the surrogate knapsack is solved; above, it is bounded by its LP."""


class Filling(NamedTuple):
    """``at[J]``: the node of each item or -1; ``worth`` packed, and ``bound`` on it."""

    at: Ints
    worth: int
    bound: int


class _Sorted(NamedTuple):
    """What :func:`fill` packs: costs descending, as :func:`solver.fill.split` wants them."""

    weight: Ints
    gain: Ints
    by_gain: Ints
    rooms: Ints
    usable: Ints
    narrowest: Ints
    """The rooms by what is usable of them."""


@compiled
def fill(cost: Ints, worth: Ints, rooms: Ints, one_ready: int) -> Filling:
    """Fill ``rooms[M]`` (quanta) from items of ``cost[J] >= 1`` and packed ``worth[J] >= 0``.

    ``one_ready`` is the packed worth of readiness alone: an item is ready where its worth is at least that.
    """
    at = np.full(len(cost), -1, np.int64)
    widest = 0
    for room in rooms:
        widest = max(widest, room)
    items = np.flatnonzero(cost <= widest)
    if len(items) == 0:
        return Filling(at, 0, 0)
    # The index keeps the seeded order among equals.
    items = items[descending(worth[items])]
    items = items[descending(cost[items])]
    weight, gain = cost[items], worth[items]
    usable = holdable(weight, widest)[rooms]
    room = min(usable.sum(), weight.sum())
    by_weight = descending(-weight)
    by_gain = by_weight[descending(gain[by_weight])]
    given = _Sorted(weight, gain, by_gain, rooms, usable, descending(-usable))
    if len(items) * room > MAX_CELLS:
        _, top, chosen = _packed(given, np.zeros(len(items), np.uint8))
        at[items] = chosen
        return Filling(at, top, linear_bound(weight, gain, room))
    best, decision = surrogate(weight, gain, room)
    bound = best[room]
    missing, top, chosen = _packed(given, traced(weight, decision, room))
    slack = 1
    while missing and slack <= room and best[room - slack] > top:
        missing, total, near = _packed(given, traced(weight, decision, room - slack))
        if total > top:
            top, chosen = total, near
        slack *= 2
    top, chosen = _more_ready(given, one_ready, top, chosen, bound)
    at[items] = chosen
    return Filling(at, top, bound)


@compiled
def _more_ready(given: _Sorted, one_ready: int, top: int, chosen: Ints, bound: int) -> tuple[int, Ints]:
    """More ready ones, if there may be: whatever number can be placed, the smallest ones of that number can."""
    low, high = top // one_ready, bound // one_ready
    if low >= high:
        return top, chosen
    smallest = np.flatnonzero(given.gain >= one_ready)[::-1]
    while low < high:
        middle = (low + high + 1) // 2
        take = np.zeros(len(given.weight), np.uint8)
        for j in smallest[:middle]:
            take[j] = 1
        missing, total, near = _packed(given, take)
        if total > top:
            top, chosen = total, near
        if missing:
            high = middle - 1
        else:
            low = middle
    return top, chosen


@compiled
def _packed(given: _Sorted, take: Flags) -> tuple[int, int, Ints]:
    """Split the taken items over the rooms, insert what else fits.

    Returns how many of the taken stayed out, the worth of what is placed, and where.
    """
    missing, near = split(given.weight, take, given.usable, given.narrowest)
    left = given.rooms.copy()
    for j in range(len(near)):
        if near[j] >= 0:
            left[near[j]] -= given.weight[j]
    insert(given.weight, given.by_gain, left, near)
    if missing:
        missing = 0
        for j in range(len(near)):
            missing += take[j] == 1 and near[j] < 0
    total = 0
    for j in range(len(near)):
        if near[j] >= 0:
            total += given.gain[j]
    return missing, total, near


@compiled
def linear_bound(cost: Ints, worth: Ints, room: int) -> int:
    """The knapsack's LP bound (Dantzig 1957), rounded up a little, in exact integers.

    For any whole rate, ``rate * room + sum(max(0, worth - rate * cost))`` bounds the knapsack; taken at the rate
    of the item that the greedy fill breaks off at, where the LP has its optimum.
    """
    left, rate, most = room, 0, 0
    for j in descending(worth // cost):
        left -= cost[j]
        if left < 0:
            rate = worth[j] // cost[j]
            break
    for w in cost:
        most = max(most, w)
    if float(rate) * max(room, most) > 2.0**61:
        rate = 0
    bound = rate * room
    for j in range(len(cost)):
        bound += max(0, worth[j] - rate * cost[j])
    return bound
