# SPDX-License-Identifier: Apache-2.0
"""The greatest total credit, by node: 0/1 knapsacks tied together by prices on candidates chosen twice.

Credit is non-zero on one or two nodes per candidate, so its optimum nearly separates into one knapsack per
node over the candidates at home there. Only "no candidate twice" couples them. It is relaxed with a price
``price[i] >= 0`` per candidate (Lagrange): for any prices

    bound = sum over nodes of knapsack(worth - price) + sum of price   >=   optimum

(Fisher 1981; for the assignment problem Martello and Toth 1990, ch. 7). Prices follow by coordinate ascent:
a candidate chosen on several nodes is priced up to its second largest margin, an unplaced one with a price
is priced down until some node takes it. Where no such candidate is left the choice is optimal; otherwise
one of them is branched on.

``worth = credit * scale - cost``, ``scale`` greater than all room together: among equal credit the choice
that leaves most room. Where that would overflow, ``scale`` is 1 and the cost is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from solver.jit import compiled
from solver.packing import WORD_BITS
from solver.rounding import Ints, Rounded

Flags = npt.NDArray[np.uint8]

PLAIN, WITHOUT, FORCED = 0, 1, 2


class Pairs(NamedTuple):
    """The ``H`` (candidate, node) pairs with credit: by candidate in ``start[N + 1]``, by node in ``list_start[M + 1]``."""

    start: Ints
    owner: Ints
    node: Ints
    credit: Ints
    worth: Ints
    cost: Ints
    capacity: Ints
    list_start: Ints
    list_pair: Ints
    scale: int
    slack: int
    """What ``worth`` may fall short of ``credit * scale`` in a whole plan."""


class Work(NamedTuple):
    """Scratch of one knapsack, for the node with most pairs and the one with most room."""

    pair: Ints
    cost: Ints
    worth: Ints
    take: Flags
    value: Ints
    decision: Flags
    trial: Flags


def make_pairs(rounded: Rounded) -> Pairs:
    """The pairs of a rounded problem."""
    owner = np.repeat(np.arange(len(rounded.cost), dtype=np.int64), np.diff(rounded.home_start))
    slack = int(rounded.capacity.sum())
    scale = 1 << slack.bit_length()
    if (sum(rounded.home_credit.tolist()) * scale).bit_length() > WORD_BITS - 1:
        scale, slack = 1, 0
    worth = rounded.home_credit * scale
    if scale > 1:
        worth = worth - rounded.cost[owner]
    order = np.argsort(rounded.home_node, kind="stable").astype(np.int64)
    counts = np.bincount(rounded.home_node, minlength=len(rounded.capacity))
    list_start = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)))
    return Pairs(
        rounded.home_start,
        owner,
        rounded.home_node,
        rounded.home_credit,
        worth,
        rounded.cost,
        rounded.capacity,
        list_start,
        order,
        scale,
        slack,
    )


@compiled
def make_work(pairs: Pairs) -> Work:
    """Scratch for :func:`best_of_node`."""
    most = 1
    room = 0
    for n in range(len(pairs.capacity)):
        most = max(most, pairs.list_start[n + 1] - pairs.list_start[n])
        room = max(room, pairs.capacity[n])
    return Work(
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.uint8),
        np.empty((2, room + 1), np.int64),
        np.empty((most, room + 1), np.uint8),
        np.zeros(len(pairs.node), np.uint8),
    )


@compiled
def knapsack(work: Work, count: int, room: int) -> int:
    """0/1 knapsack over ``work.cost[:count]``, ``work.worth[:count]``; marks ``work.take``, returns the optimum."""
    total = 0
    weight = 0
    for j in range(count):
        total += work.worth[j]
        weight += work.cost[j]
    if weight <= room:
        work.take[:count] = 1
        return total
    now = 0
    work.value[0, : room + 1] = 0
    for j in range(count):
        w, v = work.cost[j], work.worth[j]
        old, new, chosen = work.value[now], work.value[1 - now], work.decision[j]
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
    left = room
    for j in range(count - 1, -1, -1):
        work.take[j] = work.decision[j, left]
        if work.take[j]:
            left -= work.cost[j]
    return work.value[now, room]


@compiled
def best_of_node(pairs: Pairs, n: int, banned: Flags, price: Ints, item: int, mode: int, work: Work) -> int:
    """Node ``n``'s knapsack, with candidate ``item`` as it comes, left out, or forced in.

    The chosen pairs are marked in ``work.trial``; returns the optimum of ``worth - price``.
    """
    room = pairs.capacity[n]
    base = 0
    count = 0
    for t in range(pairs.list_start[n], pairs.list_start[n + 1]):
        k = pairs.list_pair[t]
        i = pairs.owner[k]
        work.trial[k] = 0
        if banned[k]:
            continue
        worth = pairs.worth[k] - price[i]
        if i == item and mode == FORCED:
            work.trial[k] = 1
            base = worth
            room -= pairs.cost[i]
        elif worth > 0 and not (i == item and mode == WITHOUT):
            work.pair[count] = k
            work.cost[count] = pairs.cost[i]
            work.worth[count] = worth
            count += 1
    base += knapsack(work, count, room)
    for j in range(count):
        work.trial[work.pair[j]] = work.take[j]
    return base


@compiled
def accept(pairs: Pairs, n: int, chosen: Flags, work: Work) -> None:
    """Take over the last :func:`best_of_node` of node ``n`` into ``chosen``."""
    for t in range(pairs.list_start[n], pairs.list_start[n + 1]):
        k = pairs.list_pair[t]
        chosen[k] = work.trial[k]


@compiled
def fault_of(pairs: Pairs, i: int, chosen: Flags, price: Ints) -> int:
    """2 where ``i`` is chosen on several nodes, 1 where it has a price and is on none, else 0."""
    count = 0
    for k in range(pairs.start[i], pairs.start[i + 1]):
        count += chosen[k]
    if count > 1:
        return 2
    return 1 if count == 0 and price[i] > 0 else 0


@compiled
def _raise_price(
    pairs: Pairs, i: int, banned: Flags, chosen: Flags, price: Ints, best: Ints, work: Work, margin: Ints
) -> None:
    """Price ``i`` up by its second largest margin; only the node with the largest keeps it."""
    low, high = pairs.start[i], pairs.start[i + 1]
    first, second, keep = -1, -1, -1
    for k in range(low, high):
        if chosen[k]:
            n = pairs.node[k]
            margin[k] = best[n] - best_of_node(pairs, n, banned, price, i, WITHOUT, work)
            if margin[k] > first:
                first, second, keep = margin[k], first, k
            elif margin[k] > second:
                second = margin[k]
    for k in range(low, high):
        if chosen[k] and k != keep:
            n = pairs.node[k]
            best[n] = best_of_node(pairs, n, banned, price, i, WITHOUT, work)
            accept(pairs, n, chosen, work)
    best[pairs.node[keep]] -= second
    price[i] += second


@compiled
def _lower_price(
    pairs: Pairs, i: int, banned: Flags, chosen: Flags, price: Ints, best: Ints, work: Work
) -> None:
    """Price ``i`` down until a node takes it, or to nothing."""
    least, keep = price[i] + 1, -1
    for k in range(pairs.start[i], pairs.start[i + 1]):
        if not banned[k]:
            n = pairs.node[k]
            loss = best[n] - best_of_node(pairs, n, banned, price, i, FORCED, work)
            if loss < least:
                least, keep = loss, k
    if keep < 0:
        price[i] = 0
        return
    price[i] -= least
    n = pairs.node[keep]
    best[n] = best_of_node(pairs, n, banned, price, i, FORCED, work)
    accept(pairs, n, chosen, work)


@compiled
def ascend(
    pairs: Pairs,
    shared: Ints,
    banned: Flags,
    chosen: Flags,
    price: Ints,
    best: Ints,
    work: Work,
    steps: int,
) -> int:
    """Coordinate ascent on the prices of the ``shared`` candidates (several homes); returns the steps not used."""
    margin = np.zeros(len(pairs.node), np.int64)
    clean = 0
    at = 0
    while clean < len(shared) and steps > 0:
        i = shared[at]
        fault = fault_of(pairs, i, chosen, price)
        if fault == 2:
            _raise_price(pairs, i, banned, chosen, price, best, work, margin)
        elif fault == 1:
            _lower_price(pairs, i, banned, chosen, price, best, work)
        if fault:
            steps -= 1
            clean = 0
        else:
            clean += 1
        at = at + 1 if at + 1 < len(shared) else 0
    return steps


@compiled
def credit_bound(pairs: Pairs, best: Ints, price: Ints) -> int:
    """The credit that the relaxation allows at most."""
    return (best.sum() + price.sum() + pairs.slack) // pairs.scale


@compiled
def repair(pairs: Pairs, chosen: Flags, work: Work) -> tuple[int, Flags]:
    """A feasible choice near ``chosen``: each candidate once, then every node's knapsack over what is left to it."""
    count = len(pairs.node)
    banned = np.zeros(count, np.uint8)
    holds = np.zeros(count, np.uint8)
    price = np.zeros(len(pairs.cost), np.int64)
    at = np.full(len(pairs.cost), -1, np.int64)
    for k in range(count):
        if chosen[k] and (at[pairs.owner[k]] < 0 or pairs.worth[k] > pairs.worth[at[pairs.owner[k]]]):
            at[pairs.owner[k]] = k
    for n in range(len(pairs.capacity)):
        for t in range(pairs.list_start[n], pairs.list_start[n + 1]):
            k = pairs.list_pair[t]
            banned[k] = at[pairs.owner[k]] >= 0 and at[pairs.owner[k]] != k
        best_of_node(pairs, n, banned, price, -1, PLAIN, work)
        accept(pairs, n, holds, work)
        for t in range(pairs.list_start[n], pairs.list_start[n + 1]):
            k = pairs.list_pair[t]
            if holds[k]:
                at[pairs.owner[k]] = k
            elif at[pairs.owner[k]] == k:
                at[pairs.owner[k]] = -1
    total = 0
    for k in range(count):
        if holds[k]:
            total += pairs.credit[k]
    return total, holds
