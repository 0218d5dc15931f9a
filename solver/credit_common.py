# SPDX-License-Identifier: Apache-2.0
"""What a relaxation of the credit shows about every choice of a given credit: pairs fixed, dead or open."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from solver.credit import Pairs, by_node
from solver.jit import compiled
from solver.knapsack import COSTLESS, MARGIN, sort_by_rate

if TYPE_CHECKING:
    from solver.columns import Ints
    from solver.knapsack import Flags, Work

OPEN, FIXED, DEAD = 0, 1, 2
ANY = 1 << 62
"""No limit to what the tables go through."""


@compiled
def common_pairs(pairs: Pairs, credit: int, banned: Flags, price: Ints, best: Ints, most: int, work: Work) -> Flags:
    """What every choice of ``credit`` (units) without ``banned`` pairs agrees on, as far as the relaxation shows.

    Per pair: ``FIXED`` where leaving it out brings the bound below ``credit``, ``DEAD`` where taking it
    does, else ``OPEN``. First by the LP bound of the node (as in :mod:`solver.knapsack`); what that leaves
    open, in the room that it leaves, by one table of prefixes and one of suffixes, for ``most`` pairs in all.
    """
    status = np.full(len(pairs.node), DEAD, np.uint8)
    whole = best.sum() + price.sum() + pairs.slack
    room = len(work.value[0])
    before, after = np.empty((len(work.pair), room), np.int64), np.empty((2, room), np.int64)
    for n in range(len(pairs.capacity)):
        low, high = pairs.list_start[n], pairs.list_start[n + 1]
        size = 0
        for t in range(low, high):
            k = pairs.list_pair[t]
            if not banned[k]:
                w, v = pairs.cost[pairs.owner[k]], pairs.worth[k] - price[pairs.owner[k]]
                work.pair[size] = k
                work.rate[size] = v / w if w else (COSTLESS if v > 0 else -COSTLESS)
                size += 1
        sort_by_rate(work, size)
        least = credit * pairs.scale - (whole - best[n])
        core, left, base = _settled(pairs, price, pairs.capacity[n], size, least, status, work)
        if core <= most:
            most -= core
            _probed(pairs, price, core, left, least - base, status, before, after, work)
        else:
            status[work.core[:core]] = OPEN
    for k in range(len(status)):
        if status[k] == FIXED:
            for other in range(pairs.start[pairs.owner[k]], pairs.start[pairs.owner[k] + 1]):
                if other != k:
                    status[other] = DEAD
    return status


@compiled
def _settled(
    pairs: Pairs, price: Ints, room: int, size: int, least: int, status: Flags, work: Work
) -> tuple[int, int, int]:
    """Settle the items of one node that cannot change without the LP bound falling below ``least``.

    The rest goes to ``work.core``; returns their number, the room left by the fixed ones and the worth of these.
    """
    stop, left, total = 0, room, 0
    while stop < size and work.rate[stop] > 0.0:
        i = pairs.owner[work.pair[stop]]
        if pairs.cost[i] > left:
            break
        left -= pairs.cost[i]
        total += pairs.worth[work.pair[stop]] - price[i]
        stop += 1
    rate = max(0.0, work.rate[stop]) if stop < size else 0.0
    top = total + left * rate
    core, base, free = 0, 0, room
    for j in range(size):
        k = work.pair[j]
        i = pairs.owner[k]
        v, w = pairs.worth[k] - price[i], pairs.cost[i]
        loss = (v - w * rate) if j < stop else (w * rate - v)
        if top - loss + (abs(top) + abs(v) + w * rate) * MARGIN >= least:
            work.core[core] = k
            core += 1
        elif j < stop:
            status[k] = FIXED
            free -= w
            base += v
    return core, free, base


@compiled
def _probed(
    pairs: Pairs,
    price: Ints,
    count: int,
    size: int,
    least: int,
    status: Flags,
    before: Ints,
    after: Ints,
    work: Work,
) -> None:
    """Status of the ``count`` pairs of ``work.core``, which share ``size`` quanta and must be worth ``least``."""
    before[0, : size + 1] = 0
    for j in range(count):
        i = pairs.owner[work.core[j]]
        _add(before[j], before[j + 1], pairs.cost[i], pairs.worth[work.core[j]] - price[i], size)
    now = 0
    after[0, : size + 1] = 0
    for j in range(count - 1, -1, -1):
        k = work.core[j]
        w, v = pairs.cost[pairs.owner[k]], pairs.worth[k] - price[pairs.owner[k]]
        if _best_of_two(before[j], after[now], size) < least:
            status[k] = FIXED
        elif w <= size and _best_of_two(before[j], after[now], size - w) + v >= least:
            status[k] = OPEN
        _add(after[now], after[1 - now], w, v, size)
        now = 1 - now


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


class Reduced(NamedTuple):
    """The open pairs in the room that the fixed ones leave: ``pairs``, of the same candidates and nodes.

    ``origin`` is the pair that each one was, ``credit`` that of the fixed ones; ``price`` is 0 where there is
    no choice of node left.
    """

    pairs: Pairs
    origin: Ints
    credit: int
    price: Ints


@compiled
def reduced(pairs: Pairs, status: Flags, price: Ints) -> Reduced:
    """Take the fixed and the dead pairs out."""
    count = len(pairs.cost)
    capacity, start = pairs.capacity.copy(), np.zeros(count + 1, np.int64)
    origin = np.flatnonzero(status == OPEN)
    credit = 0
    for k in range(len(status)):
        if status[k] == FIXED:
            capacity[pairs.node[k]] -= pairs.cost[pairs.owner[k]]
            credit += pairs.credit[k]
        elif status[k] == OPEN:
            start[pairs.owner[k] + 1] += 1
    kept = np.zeros(count, np.int64)
    for i in range(count):
        if start[i + 1] > 1:
            kept[i] = price[i]
        start[i + 1] += start[i]
    node = pairs.node[origin]
    list_start, list_pair = by_node(node, len(capacity))
    small = Pairs(
        start,
        pairs.owner[origin],
        node,
        pairs.credit[origin],
        pairs.worth[origin],
        pairs.cost,
        capacity,
        list_start,
        list_pair,
        pairs.scale,
        pairs.slack,
        pairs.unit,
    )
    return Reduced(small, origin, credit, kept)
