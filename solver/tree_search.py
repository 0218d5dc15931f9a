# SPDX-License-Identifier: Apache-2.0
"""Set up :mod:`solver.tree` for one residue and run it until it is done or out of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from solver.clock import now
from solver.credit_common import OPEN
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
    from solver.columns import Ints
    from solver.residue import Residue

MAX_CELLS = 2_000_000
"""Cells of the search's tables at most; a larger residue keeps the plan and the bound it has."""
STEPS = 4096
"""Steps between two looks at the clock."""


class TreeSearch:
    """A search of a residue that can stop and go on.

    Args:
        residue: what there is to decide.
        price: ``price[N]`` of the credit relaxation.
        incumbent: ``[N]``, a plan of the credit needed already.
    """

    def __init__(self, residue: Residue, price: Ints, incumbent: Ints) -> None:
        rounded, rooms, items = residue.rounded, residue.rooms, residue.items
        self._residue = residue
        self.best = incumbent
        self.proven = False
        owners = np.unique(residue.pairs.owner[residue.status == OPEN])
        tied = owners[np.isin(owners, items)]
        free = np.setdiff1d(items, tied)
        free = free[np.lexsort((free, -residue.worth[free], -rounded.cost[free]))]
        self._order = np.concatenate((tied, free))
        cost, worth = rounded.cost[self._order], residue.worth[self._order]
        widest = int(rooms.max(initial=0))
        total = int(min(rooms.sum(), cost.sum()))
        cells = (len(cost) + 1) * (total + widest + 2) + len(rooms) * (len(tied) + 1) * (widest + 1)
        self.fits = cells <= MAX_CELLS
        """False where the tables would be too large: then :meth:`run` does nothing."""
        if not self.fits:
            return
        pull = self._pull(tied)
        table, row = pull_tables(rounded.cost[tied], pull, price[tied], widest)
        toll = np.concatenate((np.cumsum(price[tied][::-1])[::-1], np.zeros(1, dtype=np.int64)))
        self._tree = Tree(
            cost=cost,
            worth=worth,
            same=_twins(cost, worth, len(tied)),
            pull=pull,
            toll=toll,
            room_table=room_table(cost, worth, total),
            fillable=fillable_table(cost, widest),
            pull_table=table,
            row=row,
            need=residue.need // residue.pairs.unit * residue.pairs.scale,
            slack=residue.pairs.slack,
        )
        levels = len(cost) + 1
        self._progress = Progress(
            state=np.zeros(6, dtype=np.int64),
            rooms=rooms.copy(),
            at=np.full(levels, -1, dtype=np.int64),
            option=np.zeros(levels, dtype=np.int64),
            options=np.zeros((levels, len(rooms) + 1), dtype=np.int64),
            counts=np.zeros(levels, dtype=np.int64),
            best=np.full(levels, -1, dtype=np.int64),
        )
        self._progress.state[FRESH] = 1
        self.improve(incumbent)

    def improve(self, incumbent: Ints) -> None:
        """Learn of a plan of the credit needed, at least as good as :attr:`best`."""
        self.best = incumbent
        if self.fits:
            self._progress.state[BEST] = int(self._tree.worth[incumbent[self._order] >= 0].sum())

    def run(self, deadline: float, chunks: int) -> None:
        """Search on, for so many chunks of steps or until ``deadline``; sets :attr:`best` and :attr:`proven`."""
        if not self.fits:
            return
        state = self._progress.state
        known = int(state[BEST])
        while not state[DONE] and chunks > 0 and now() < deadline:
            advance(self._tree, self._progress, STEPS)
            chunks -= 1
        self.proven = bool(state[DONE])
        if int(state[BEST]) > known:
            self.best = self._residue.at.copy()
            self.best[self._order] = self._progress.best[: len(self._order)]

    def _pull(self, tied: Ints) -> Ints:
        pairs, status = self._residue.pairs, self._residue.status
        pull = np.zeros((len(tied), len(self._residue.rooms)), dtype=np.int64)
        for t, i in enumerate(tied.tolist()):
            low, high = int(pairs.start[i]), int(pairs.start[i + 1])
            live = status[low:high] == OPEN
            pull[t, pairs.node[low:high]] = np.where(live, pairs.worth[low:high], BARRED)
        return pull


def _twins(cost: Ints, worth: Ints, tied: int) -> Ints:
    """For each item the one just before it that is its equal, -1 for none; the tied ones have none."""
    same = np.full(len(cost), -1, dtype=np.int64)
    for j in range(tied + 1, len(cost)):
        if cost[j] == cost[j - 1] and worth[j] == worth[j - 1]:
            same[j] = j - 1
    return same
