# SPDX-License-Identifier: Apache-2.0
"""Set up :mod:`solver.tree` for one snapshot and run it until it is done or out of time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from solver.credit_search import OPEN, CreditResult
from solver.tree import (
    BARRED,
    BEST,
    DONE,
    FRESH,
    Progress,
    Tree,
    advance,
    fillable_table,
    pull_tables,
    room_table,
)

if TYPE_CHECKING:
    from solver.credit import Flags, Pairs
    from solver.rounding import Ints, Rounded

MAX_CELLS = 4_000_000
"""Cells of the search's tables at most; what is larger keeps the plan and the bound it has."""
STEPS = 4096
"""Steps between two looks at the clock."""


def search(
    rounded: Rounded,
    pairs: Pairs,
    found: CreditResult,
    status: Flags,
    at: Ints,
    rooms: Ints,
    items: Ints,
    worth: Ints,
    incumbent: Ints,
    deadline: float,
) -> tuple[Ints, bool]:
    """The best assignment of the greatest credit, and whether it is proven to be that.

    ``at[N]`` holds what is fixed, ``rooms[M]`` what that leaves, ``items`` the candidates to decide on;
    ``incumbent[N]`` is a plan with that credit already.
    """
    nodes = len(rooms)
    owners = np.unique(pairs.owner[status == OPEN])
    tied = owners[np.isin(owners, items)]
    free = np.setdiff1d(items, tied)
    free = free[np.lexsort((free, -worth[free], -rounded.cost[free]))]
    order = np.concatenate((tied, free))
    cost, gain = rounded.cost[order], worth[order]
    widest = int(rooms.max(initial=0))
    total = int(min(rooms.sum(), cost.sum()))
    if (len(order) + 1) * (total + widest + 2) + nodes * (len(tied) + 1) * (widest + 1) > MAX_CELLS:
        return incumbent, False
    pull = np.zeros((len(tied), nodes), dtype=np.int64)
    for t, i in enumerate(tied.tolist()):
        low, high = int(pairs.start[i]), int(pairs.start[i + 1])
        pull[t, pairs.node[low:high]] = np.where(status[low:high] == OPEN, pairs.worth[low:high], BARRED)
    price = found.price[tied]
    table, row = pull_tables(rounded.cost[tied], pull, price, widest)
    toll = np.concatenate((np.cumsum(price[::-1])[::-1], np.zeros(1, dtype=np.int64)))
    fixed = (pairs.owner >= 0) & (at[pairs.owner] == pairs.node)
    tree = Tree(
        cost=cost,
        worth=gain,
        same=_twins(cost, gain, len(tied)),
        pull=pull,
        toll=toll,
        room_table=room_table(cost, gain, total),
        fillable=fillable_table(cost, widest),
        pull_table=table,
        row=row,
        need=(found.credit - int(pairs.credit[fixed].sum())) * pairs.scale,
        slack=pairs.slack,
    )
    progress = Progress(
        state=np.zeros(6, dtype=np.int64),
        rooms=rooms.copy(),
        at=np.full(len(order) + 1, -1, dtype=np.int64),
        option=np.zeros(len(order) + 1, dtype=np.int64),
        options=np.zeros((len(order) + 1, nodes + 1), dtype=np.int64),
        counts=np.zeros(len(order) + 1, dtype=np.int64),
        best=np.full(len(order) + 1, -1, dtype=np.int64),
    )
    progress.state[FRESH] = 1
    known = int(gain[incumbent[order] >= 0].sum())
    progress.state[BEST] = known
    while not progress.state[DONE] and time.perf_counter() < deadline:
        advance(tree, progress, STEPS)
    proven = bool(progress.state[DONE])
    if int(progress.state[BEST]) == known:
        return incumbent, proven
    better = at.copy()
    better[order] = progress.best[: len(order)]
    return better, proven


def _twins(cost: Ints, worth: Ints, tied: int) -> Ints:
    """For each item the one just before it that is its equal, -1 for none; the tied ones have none."""
    same = np.full(len(cost), -1, dtype=np.int64)
    for j in range(tied + 1, len(cost)):
        if cost[j] == cost[j - 1] and worth[j] == worth[j - 1]:
            same[j] = j - 1
    return same
