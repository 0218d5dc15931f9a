# SPDX-License-Identifier: Apache-2.0
"""The 0/1 knapsack of one node: greedy, bounded, and the dynamic programme over what the bound leaves open.

Items come by falling worth per quantum. The greedy choice and the LP bound (Dantzig 1957) often meet; where
not, an item whose change alone brings the bound to the greedy worth or below keeps its greedy state (Dembo and
Hammer 1980; Martello and Toth 1990, ch. 2), and only the rest, a few items around the break, goes
through the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from solver.jit import compiled

if TYPE_CHECKING:
    from solver.columns import Ints

Flags = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]

MARGIN = 1e-12
"""Relative error of the bound in doubles, with room to spare: an item is only fixed beyond it."""
MOVES = 4
"""Moves per item after which sorting by insertion starts over in wider steps (Shell 1959)."""
COSTLESS = 1e300
"""Worth per quantum of what costs nothing."""


class Work(NamedTuple):
    """Scratch of one knapsack, for the node with most items and the one with most room.

    ``pair``, ``cost``, ``worth``, ``rate`` and ``take`` per item; ``core`` the items that the table decides.
    """

    pair: Ints
    cost: Ints
    worth: Ints
    rate: Floats
    take: Flags
    core: Ints
    value: Ints
    decision: Flags


@compiled
def make_work(most: int, room: int) -> Work:
    """Scratch for up to ``most`` items and ``room`` quanta."""
    return Work(
        np.empty(most + 1, np.int64),
        np.empty(most + 1, np.int64),
        np.empty(most + 1, np.int64),
        np.empty(most + 1, np.float64),
        np.empty(most + 1, np.uint8),
        np.empty(most + 1, np.int64),
        np.empty((2, room + 1), np.int64),
        np.empty((most + 1, room + 1), np.uint8),
    )


@compiled
def sort_by_rate(work: Work, count: int) -> None:
    """Sort ``pair`` and ``rate`` by falling rate; quick where they nearly are."""
    if not _insert(work, count, 1, MOVES * count + 64):
        gap = 1
        while 3 * gap + 1 < count:
            gap = 3 * gap + 1
        while gap > 0:
            _insert(work, count, gap, count * count)
            gap //= 3


@compiled
def _insert(work: Work, count: int, gap: int, moves: int) -> bool:
    """Sort every ``gap``-th by insertion; False where that would take more than so many moves."""
    rate, pair = work.rate, work.pair
    for j in range(gap, count):
        r, k = rate[j], pair[j]
        at = j
        while at >= gap and rate[at - gap] < r:
            rate[at], pair[at] = rate[at - gap], pair[at - gap]
            at -= gap
        rate[at], pair[at] = r, k
        moves -= (j - at) // gap
        if moves < 0:
            return False
    return True


@compiled
def knapsack(work: Work, count: int, room: int) -> int:
    """The best of ``work.cost[:count]``, ``work.worth[:count]`` (> 0, by falling rate) in ``room`` quanta.

    Marks ``work.take``, returns the optimum. Items cost no more than ``room`` each.
    """
    cost, worth, take = work.cost, work.worth, work.take
    left, total, stop = room, 0, 0
    while stop < count and cost[stop] <= left:
        take[stop] = 1
        left -= cost[stop]
        total += worth[stop]
        stop += 1
    if stop == count:
        return total
    best, free = total, left
    for j in range(stop, count):
        take[j] = cost[j] <= free
        if take[j]:
            free -= cost[j]
            best += worth[j]
    # floor(left * worth / cost) without a product that could overflow.
    whole, rest = worth[stop] // cost[stop], worth[stop] % cost[stop]
    if total + left * whole + left * rest // cost[stop] <= best:
        return best
    return _over_core(work, count, stop, left, total, best)


@compiled
def _over_core(work: Work, count: int, stop: int, left: int, total: int, best: int) -> int:
    """Settle what the greedy choice ``best`` leaves open; ``stop`` is the break item, ``total`` worth before it."""
    cost, worth, take, core = work.cost, work.worth, work.take, work.core
    rate = worth[stop] / cost[stop]
    size, room, base, open_cost = 0, left, total, 0
    for j in range(count):
        sign = -1 if j < stop else 1
        bound = (total + sign * worth[j]) + (left - sign * cost[j]) * rate
        if bound + (total + worth[j] + cost[j] * rate) * MARGIN < best + 1:
            continue
        core[size] = j
        size += 1
        open_cost += cost[j]
        if j < stop:
            room += cost[j]
            base -= worth[j]
    found = base + _table(work, size, room)
    if found <= best:
        return best
    take[:stop] = 1
    take[stop:count] = 0
    for t in range(size - 1, -1, -1):
        j = core[t]
        take[j] = work.decision[t, room]
        if take[j]:
            room -= cost[j]
    return found


@compiled
def _table(work: Work, size: int, room: int) -> int:
    """The dynamic programme over the core; decisions per item and room."""
    now = 0
    work.value[0, : room + 1] = 0
    for t in range(size):
        w, v = work.cost[work.core[t]], work.worth[work.core[t]]
        old, new, chosen = work.value[now], work.value[1 - now], work.decision[t]
        w = min(w, room + 1)
        new[:w] = old[:w]
        chosen[:w] = 0
        source, kept, target, mark = old[: room + 1 - w], old[w : room + 1], new[w : room + 1], chosen[w : room + 1]
        for k in range(room + 1 - w):
            placed = source[k] + v
            better = placed > kept[k]
            target[k] = placed if better else kept[k]
            mark[k] = better
        now = 1 - now
    return int(work.value[now, room])
