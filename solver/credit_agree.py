# SPDX-License-Identifier: Apache-2.0
"""What all choices of the greatest credit agree on, found out by branching and by probing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from solver.credit import WORST, begin, credit_of, descend, make_work
from solver.credit_common import DEAD, FIXED, OPEN, common_pairs
from solver.credit_search import BRANCH_ROUNDS, chunk_of, fault_of, make_rows, split_row
from solver.jit import compiled

if TYPE_CHECKING:
    import numpy.typing as npt

    from solver.credit import Flags, Pairs, Work
    from solver.credit_search import CreditResult
    from solver.rounding import Ints


def agreed_pairs(pairs: Pairs, found: CreditResult, deadline: float) -> Flags:
    """What all choices of the proven credit agree on: ``FIXED``, ``DEAD`` or ``OPEN`` per pair.

    Where the root's bound is above the credit, its prices leave most pairs open; then all branches that
    reach the credit are gone through. What is still open is probed pair by pair. Both as time allows.
    """
    credit = found.credit // pairs.unit
    nothing = np.zeros(len(pairs.node), dtype=np.uint8)
    status = common_pairs(pairs, credit, nothing, found.price, found.best)
    if credit_of(pairs, int(found.best.sum() + found.price.sum())) > credit and (status == OPEN).any():
        status = _swept(pairs, found, status, deadline)
    return _probed(pairs, found, status, deadline)


def _swept(pairs: Pairs, found: CreditResult, status: Flags, deadline: float) -> Flags:
    """``status`` after all branches, or as it was where they were too many."""
    credit = found.credit // pairs.unit
    nothing = np.zeros(len(pairs.node), dtype=np.uint8)
    work = make_work(pairs)
    banned, chosen, price, best = make_rows(pairs, (status == DEAD).astype(np.uint8), found.price)
    descend(
        pairs,
        begin(pairs, price[0]),
        banned[0],
        price[0],
        best[0],
        chosen[0],
        nothing,
        WORST,
        credit - 1,
        BRANCH_ROUNDS,
        work,
    )
    swept = status.copy()
    state = np.array([1, credit, 0, 0], dtype=np.int64)
    while state[0] and not state[3] and time.perf_counter() < deadline:
        _sweep(pairs, work, banned, chosen, price, best, state, swept, chunk_of(pairs))
    if state[0] or state[3] or not state[2]:
        return status
    return np.where(status == OPEN, swept, status).astype(np.uint8)


def _probed(pairs: Pairs, found: CreditResult, status: Flags, deadline: float) -> Flags:
    """``status`` with every open pair left out, if it is held, or forced, if it is not, and bounded again.

    Forced: the candidate's other pairs are barred and its price so low that its node takes it; a bound
    below the credit then says that no choice of that credit does so.
    """
    if not (status == OPEN).any():
        return status
    credit = found.credit // pairs.unit
    work = make_work(pairs)
    barred = (status == DEAD).astype(np.uint8)
    spare = np.zeros(len(pairs.node), dtype=np.uint8)
    best = np.zeros(len(pairs.capacity), dtype=np.int64)
    for k in np.flatnonzero(status == OPEN).tolist():
        if time.perf_counter() >= deadline:
            break
        banned, price = barred.copy(), found.price.copy()
        i = int(pairs.owner[k])
        low, high = int(pairs.start[i]), int(pairs.start[i + 1])
        if found.held[k]:
            banned[k] = 1
        else:
            banned[low:high] = 1
            banned[k] = 0
        if (banned[low:high] == 0).sum() < 2:
            price[i] = 0
        if not found.held[k]:
            price[i] = -int(pairs.worth[pairs.node == pairs.node[k]].sum())
        bound, _, _ = descend(
            pairs,
            begin(pairs, price),
            banned,
            price,
            best,
            np.zeros(len(pairs.node), dtype=np.uint8),
            spare,
            WORST,
            credit - 1,
            BRANCH_ROUNDS,
            work,
        )
        if credit_of(pairs, bound) < credit:
            status[k] = FIXED if found.held[k] else DEAD
            barred[k] = not found.held[k]
    return status


@compiled
def _sweep(
    pairs: Pairs,
    work: Work,
    banned: npt.NDArray[np.uint8],
    chosen: npt.NDArray[np.uint8],
    price: npt.NDArray[np.int64],
    best: npt.NDArray[np.int64],
    state: Ints,
    status: Flags,
    chunk: int,
) -> None:
    """Go through all branches that reach the optimum ``state[1]``, meeting what their choices agree on.

    ``state`` is (height of the stack, the optimum in units, leaves seen, 1 where the stack was too small).
    """
    spare = np.zeros(len(pairs.node), np.uint8)
    while state[0] > 0 and chunk > 0:
        chunk -= 1
        top = state[0] - 1
        state[0] = top
        if credit_of(pairs, best[top].sum() + price[top].sum()) < state[1]:
            continue
        item = fault_of(pairs, banned[top], chosen[top], price[top])
        if item >= 0:
            if top + 1 >= len(banned):
                state[3] = 1
                return
            split_row(pairs, work, item, banned, chosen, price, best, top, spare, state[1] - 1)
            state[0] = top + 2
            continue
        leaf = common_pairs(pairs, state[1], banned[top], price[top], best[top])
        for k in range(len(status)):
            if state[2] == 0:
                status[k] = leaf[k]
            elif status[k] != leaf[k]:
                status[k] = OPEN
        state[2] += 1
