# SPDX-License-Identifier: Apache-2.0
"""The room that is left over, filled for readiness and then footprint: a multiple knapsack.

Surrogate relaxation (Martello and Toth 1990, ch. 6): all rooms as one. Its optimum is an upper bound; where
its candidates can be split over the rooms, which is usual, it is the optimum. The split fills one room after
the other to the last quantum by subset sum, large candidates first (after Pisinger 1999, who solves large
multiple knapsacks so).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from solver.jit import compiled

if TYPE_CHECKING:
    from solver.columns import Ints

Flags = npt.NDArray[np.uint8]


@compiled
def descending(keys: Ints) -> Ints:
    """The indices of ``keys`` in falling order of them; equal ones stay in order."""
    return np.argsort(-keys, kind="mergesort")


@compiled
def holdable(cost: Ints, room: int) -> Ints:
    """``table[r]``: the greatest subset sum of ``cost`` that is at most ``r``, for ``r`` up to ``room``."""
    reached = np.zeros(room + 1, np.uint8)
    reached[0] = 1
    for w in cost:
        for c in range(room, w - 1, -1):
            reached[c] |= reached[c - w]
    table = np.empty(room + 1, np.int64)
    last = 0
    for c in range(room + 1):
        if reached[c]:
            last = c
        table[c] = last
    return table


@compiled
def surrogate(cost: Ints, worth: Ints, room: int) -> tuple[Ints, Flags]:
    """One knapsack over all room: optima ``best[0..room]`` and ``decision[J, room + 1]`` for the trace."""
    decision = np.empty((len(cost), room + 1), np.uint8)
    value = np.zeros((2, room + 1), np.int64)
    now = 0
    reach = 0
    for j in range(len(cost)):
        w, v = cost[j], worth[j]
        old, new, chosen = value[now], value[1 - now], decision[j]
        reach = min(room, reach + w)
        w = min(w, reach + 1)
        new[:w] = old[:w]
        chosen[:w] = 0
        source, kept, target, mark = (
            old[: reach + 1 - w],
            old[w : reach + 1],
            new[w : reach + 1],
            chosen[w : reach + 1],
        )
        for k in range(reach + 1 - w):
            placed = source[k] + v
            better = placed > kept[k]
            target[k] = placed if better else kept[k]
            mark[k] = better
        # Beyond the costs so far nothing changes any more: the optimum is the one at `reach`.
        new[reach + 1 :] = new[reach]
        chosen[reach + 1 :] = chosen[reach]
        now = 1 - now
    return value[now].copy(), decision


@compiled
def traced(cost: Ints, decision: Flags, room: int) -> Flags:
    """The candidates that make up ``best[room]`` of :func:`surrogate`."""
    take = np.zeros(len(cost), np.uint8)
    reach = cost.sum()
    for j in range(len(cost) - 1, -1, -1):
        room = min(room, reach)
        take[j] = decision[j, room]
        reach -= cost[j]
        if take[j]:
            room -= cost[j]
    return take


@compiled
def split(cost: Ints, take: Flags, rooms: Ints, order: Ints) -> tuple[int, Ints]:
    """Put the taken candidates (costs descending) into the rooms, in this ``order`` of rooms.

    Returns how many found no place, and the assignment (-1 for none). Each room is filled as far as subset
    sums allow; the first way to the fullest is taken, and since large costs come first it uses large ones.
    """
    at = np.full(len(cost), -1, np.int64)
    left = 0
    for j in range(len(cost)):
        left += take[j]
    widest = 0
    for n in order:
        widest = max(widest, rooms[n])
    via = np.empty(widest + 1, np.int64)
    for n in order:
        if left == 0:
            break
        room = rooms[n]
        via[: room + 1] = -1
        via[0] = len(cost)
        top = 0
        for j in range(len(cost)):
            w = cost[j]
            if not take[j] or at[j] >= 0 or w > room or w == 0:
                continue
            top = min(room, top + w)
            for c in range(top, w - 1, -1):
                if via[c] < 0 and via[c - w] >= 0:
                    via[c] = j
            if via[room] >= 0:
                break
        c = room
        while via[c] < 0:
            c -= 1
        while c > 0:
            j = via[c]
            at[j] = n
            left -= 1
            c -= cost[j]
    return left, at


@compiled
def insert(cost: Ints, worth_order: Ints, rooms: Ints, at: Ints) -> None:
    """Put what still fits where it fits tightest, in ``worth_order``; lowers ``rooms``, sets ``at``."""
    for j in worth_order:
        if at[j] >= 0:
            continue
        found = -1
        for n in range(len(rooms)):
            if rooms[n] >= cost[j] and (found < 0 or rooms[n] < rooms[found]):
                found = n
        if found >= 0:
            at[j] = found
            rooms[found] -= cost[j]
