# SPDX-License-Identifier: Apache-2.0
"""What a relaxation of the credit shows about every choice of a given credit: pairs fixed, dead or open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from solver.jit import compiled

if TYPE_CHECKING:
    from solver.credit import Flags, Pairs
    from solver.rounding import Ints

OPEN, FIXED, DEAD = 0, 1, 2


@compiled
def common_pairs(pairs: Pairs, credit: int, banned: Flags, price: Ints, best: Ints) -> Flags:
    """What every choice of ``credit`` (units) without ``banned`` pairs agrees on, as far as the relaxation shows.

    Per pair: ``FIXED`` where leaving it out brings the bound below ``credit``, ``DEAD`` where taking it
    does, else ``OPEN``. By one table of prefixes and one of suffixes per node: O(pairs x room).
    """
    status = np.zeros(len(pairs.node), np.uint8)
    whole = best.sum() + price.sum() + pairs.slack
    room = 0
    most = 0
    for n in range(len(pairs.capacity)):
        room = max(room, pairs.capacity[n])
        most = max(most, pairs.list_start[n + 1] - pairs.list_start[n])
    before = np.zeros((most + 1, room + 1), np.int64)
    after = np.zeros((2, room + 1), np.int64)
    for n in range(len(pairs.capacity)):
        low, high = pairs.list_start[n], pairs.list_start[n + 1]
        size = pairs.capacity[n]
        for j in range(high - low):
            k = pairs.list_pair[low + j]
            if banned[k]:
                before[j + 1, : size + 1] = before[j, : size + 1]
                continue
            _add(before[j], before[j + 1], pairs.cost[pairs.owner[k]], pairs.worth[k] - price[pairs.owner[k]], size)
        now = 0
        after[0] = 0
        for j in range(high - low - 1, -1, -1):
            k = pairs.list_pair[low + j]
            if banned[k]:
                status[k] = DEAD
                continue
            i = pairs.owner[k]
            w, v = pairs.cost[i], pairs.worth[k] - price[i]
            rest = whole - best[n]
            if (rest + _best_of_two(before[j], after[now], size)) // pairs.scale < credit:
                status[k] = FIXED
            elif (rest + _best_of_two(before[j], after[now], size - w) + v) // pairs.scale < credit:
                status[k] = DEAD
            _add(after[now], after[1 - now], w, v, size)
            now = 1 - now
    return status


@compiled
def _add(old: Ints, new: Ints, w: int, v: int, size: int) -> None:
    """One layer of a knapsack with ``size`` quanta of room: ``new`` is ``old`` with a candidate more."""
    w = min(w, size + 1)
    new[:w] = old[:w]
    source, kept, target = old[: size + 1 - w], old[w : size + 1], new[w : size + 1]
    for c in range(size + 1 - w):
        target[c] = max(kept[c], source[c] + v)


@compiled
def _best_of_two(one: Ints, other: Ints, size: int) -> int:
    """The best way to divide ``size`` quanta between two knapsacks."""
    best = 0
    flipped = other[: size + 1][::-1]
    for c in range(size + 1):
        best = max(best, one[c] + flipped[c])
    return best
