# SPDX-License-Identifier: Apache-2.0
"""One pass over the candidates, no way back: what the greedy methods share.

Plain Python on purpose: this is the fallback while nothing compiled is warm.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from solver.columns import Ints
    from solver.rounding import Rounded


def place_in_order(rounded: Rounded, order: Iterable[int], *, heed_credit: bool, balance: bool) -> Ints:
    """Place candidates one by one; returns the assignment.

    With ``heed_credit`` a candidate goes to the node with room where its credit is greatest (of equal ones
    that with most room); otherwise, and where no such node has room, to the node with most room. Where the
    problem wants no balance, the first such node in the seeded order takes the place of that with most room.
    O(N log M + H), without balance O(N M + H).
    """
    room = rounded.capacity.tolist()
    cost = rounded.cost.tolist()
    start, homes, worth = rounded.home_start.tolist(), rounded.home_node.tolist(), rounded.home_credit.tolist()
    assignment = [-1] * len(cost)
    heap = [(-r, n) for n, r in enumerate(room)]
    heapq.heapify(heap)
    for i in order:
        target, best = -1, (0, 0)
        if heed_credit:
            for k in range(start[i], start[i + 1]):
                node = homes[k]
                if worth[k] < best[0]:
                    break
                if cost[i] <= room[node] and (worth[k], room[node] if balance else -node) > best:
                    target, best = node, (worth[k], room[node] if balance else -node)
        if target < 0 and not balance:
            target = next((n for n, r in enumerate(room) if cost[i] <= r), -1)
        elif target < 0 and heap:
            while -heap[0][0] != room[heap[0][1]]:
                heapq.heapreplace(heap, (-room[heap[0][1]], heap[0][1]))
            if cost[i] <= -heap[0][0]:
                target = heap[0][1]
        if target >= 0:
            assignment[i] = target
            room[target] -= cost[i]
    return np.array(assignment, dtype=np.int64)
