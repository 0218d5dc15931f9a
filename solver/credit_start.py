# SPDX-License-Identifier: Apache-2.0
"""Prices to start from: the dual of the credit's linear relaxation, node by node.

Over ``rate[n] >= 0``, credit per quantum of node ``n``, the dual is to minimise

    sum over nodes of rate * capacity + sum over candidates of max(0, worth - rate * cost over their nodes).

For one rate, the others given, the best one is where the greedy fill breaks off, with every candidate worth what
it gains over its next best node (coordinate descent). A candidate's price then is half way between what
its best and its second best node would give for it, so that the one clearly wants it and the other does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from solver.jit import compiled
from solver.knapsack import COSTLESS, sort_by_rate

if TYPE_CHECKING:
    from solver.columns import Ints
    from solver.credit import Pairs
    from solver.knapsack import Floats, Work

SWEEPS = 3


@compiled
def start_prices(pairs: Pairs, work: Work) -> Ints:
    """``price[N]`` after so many rounds over all nodes."""
    rate = np.zeros(len(pairs.capacity), np.float64)
    for _ in range(SWEEPS):
        moved = False
        for n in range(len(rate)):
            before = rate[n]
            rate[n] = _break_rate(pairs, rate, n, work)
            moved |= rate[n] != before
        if not moved:
            break
    price = np.zeros(len(pairs.cost), np.int64)
    for i in range(len(price)):
        if pairs.start[i + 1] - pairs.start[i] < 2:
            continue
        best, second = 0.0, 0.0
        for k in range(pairs.start[i], pairs.start[i + 1]):
            gain = pairs.worth[k] - rate[pairs.node[k]] * pairs.cost[i]
            if gain > best:
                best, second = gain, best
            elif gain > second:
                second = gain
        price[i] = np.int64((best + second) / 2)
    return price


@compiled
def _break_rate(pairs: Pairs, rate: Floats, n: int, work: Work) -> float:
    """The gain per quantum at which node ``n`` is full; 0 where it never is."""
    low, high = pairs.list_start[n], pairs.list_start[n + 1]
    size, demand = 0, 0
    for t in range(low, high):
        k = pairs.list_pair[t]
        i = pairs.owner[k]
        other = 0.0
        for h in range(pairs.start[i], pairs.start[i + 1]):
            if h != k:
                other = max(other, pairs.worth[h] - rate[pairs.node[h]] * pairs.cost[i])
        gain = pairs.worth[k] - other
        if gain > 0:
            work.pair[size] = k
            work.rate[size] = gain / pairs.cost[i] if pairs.cost[i] else COSTLESS
            demand += pairs.cost[i]
            size += 1
    if demand <= pairs.capacity[n]:
        return 0.0
    sort_by_rate(work, size)
    left = pairs.capacity[n]
    for t in range(size):
        left -= pairs.cost[pairs.owner[work.pair[t]]]
        if left < 0:
            return float(work.rate[t])
    return 0.0
