# SPDX-License-Identifier: Apache-2.0
"""Fill the rooms left over by the credit optimum: a plan for them and a bound on any such plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from solver.fill import Flags, holdable, insert, split, surrogate, traced

if TYPE_CHECKING:
    from solver.rounding import Ints

MAX_CELLS = 40_000_000
"""Candidates times room up to which the surrogate knapsack is solved; above, it is bounded by its LP."""


@dataclass(frozen=True, slots=True, eq=False)
class Filling:
    """``at[J]``: the node of each item or -1; ``worth`` packed, and ``bound`` on it."""

    at: Ints
    worth: int
    bound: int


def fill(cost: Ints, worth: Ints, rooms: Ints, one_ready: int) -> Filling:
    """Fill ``rooms[M]`` (quanta) from items of ``cost[J] >= 1`` and packed ``worth[J] >= 0``.

    ``one_ready`` is the packed worth of readiness alone: an item is ready where its worth is at least that.
    """
    at = np.full(len(cost), -1, dtype=np.int64)
    widest = int(rooms.max(initial=0))
    items = np.flatnonzero(cost <= widest)
    if not len(items):
        return Filling(at, 0, 0)
    # Costs descending, as `split` wants them; the index keeps the seeded order among equals.
    items = items[np.lexsort((items, -worth[items], -cost[items]))]
    weight, gain = cost[items], worth[items]
    usable = holdable(weight, widest)[rooms]
    room = int(min(usable.sum(), weight.sum()))
    by_gain = np.lexsort((np.arange(len(items)), weight, -gain))
    if len(items) * room > MAX_CELLS:
        at[items] = near = _packed(weight, rooms, usable, by_gain, np.zeros(len(items), dtype=np.uint8))[1]
        return Filling(at, int(gain[near >= 0].sum()), linear_bound(weight, gain, room))
    best, decision = surrogate(weight, gain, room)
    bound = int(best[room])
    top, chosen = -1, at[items]
    slack = 0
    while True:
        missing, near = _packed(weight, rooms, usable, by_gain, traced(weight, decision, room - slack))
        total = int(gain[near >= 0].sum())
        if total > top:
            top, chosen = total, near
        slack = max(1, 2 * slack)
        if not missing or slack > room or int(best[room - slack]) <= top:
            break
    # More ready ones: whatever number can be placed, the smallest ones of that number can.
    low, high = top // one_ready, bound // one_ready
    smallest = np.flatnonzero(gain >= one_ready)[::-1]
    while low < high:
        middle = (low + high + 1) // 2
        take = np.zeros(len(items), dtype=np.uint8)
        take[smallest[:middle]] = 1
        missing, near = _packed(weight, rooms, usable, by_gain, take)
        total = int(gain[near >= 0].sum())
        if total > top:
            top, chosen = total, near
        low, high = (low, middle - 1) if missing else (middle, high)
    at[items] = chosen
    return Filling(at, top, bound)


def _packed(weight: Ints, rooms: Ints, usable: Ints, by_gain: Ints, take: Flags) -> tuple[int, Ints]:
    """Split the taken items over the rooms, insert what else fits.

    Returns how many of the taken stayed out, and where all are.
    """
    missing, near = split(weight, take, usable, np.argsort(usable, kind="stable"))
    left = rooms - np.bincount(near[near >= 0], weight[near >= 0], len(rooms)).astype(np.int64)
    insert(weight, by_gain, left, near)
    return int((near[take == 1] < 0).sum()) if missing else 0, near


def linear_bound(cost: Ints, worth: Ints, room: int) -> int:
    """The knapsack's LP bound (Dantzig 1957), in exact integers.

    For any rate ``v / w``, ``rate * room + sum(max(0, worth - rate * cost))`` bounds the knapsack; it is
    the LP optimum at the rate of the item that the greedy fill breaks off at, up to rounding of the sort.
    """
    order = np.argsort(-(worth / cost), kind="stable")
    split_at = int(np.searchsorted(np.cumsum(cost[order]), room, side="right"))
    if split_at == len(order):
        return sum(int(gain) for gain in worth)
    w, v = int(cost[order[split_at]]), int(worth[order[split_at]])
    above = sum(max(0, int(gain) * w - v * int(quanta)) for quanta, gain in zip(cost, worth, strict=True))
    return (v * room + above) // w
