# SPDX-License-Identifier: Apache-2.0
"""What all choices of the greatest credit agree on, found out by branching and by probing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from solver.clock import now
from solver.credit import WORST, begin, begin_from, credit_of, descend, work_for
from solver.credit_common import ANY, DEAD, FIXED, OPEN, common_pairs, reduced
from solver.credit_search import BRANCH_ROUNDS, CreditResult, bound_of, fault_of, first_row, split_row
from solver.jit import compiled

if TYPE_CHECKING:
    from solver.credit import Pairs
    from solver.knapsack import Flags, Work


@compiled
def agreed_pairs(pairs: Pairs, found: CreditResult, deadline: float) -> Flags:
    """What all choices of the proven credit agree on: ``FIXED``, ``DEAD`` or ``OPEN`` per pair.

    Where the root's bound is above the credit, its prices leave most pairs open; then all branches that
    reach the credit are gone through. What is still open is probed pair by pair. Both as time allows.
    """
    work = work_for(pairs)
    status = common_pairs(pairs, found.credit, found.banned, found.price, found.best, ANY, work)
    if not (status == OPEN).any():
        return status
    small = reduced(pairs, status, found.price)
    target = found.credit - small.credit
    count = len(small.origin)
    nothing, chosen, spare = np.zeros(count, np.uint8), np.zeros(count, np.uint8), np.zeros(count, np.uint8)
    price, best = small.price, np.zeros(len(pairs.capacity), np.int64)
    descent = begin(small.pairs, price, 1.0)
    descend(small.pairs, descent, nothing, price, best, chosen, spare, WORST, target - 1, BRANCH_ROUNDS, work)
    root = CreditResult(found.held[small.origin], target, target, price, best, chosen, nothing)
    inner = common_pairs(small.pairs, target, nothing, price, best, ANY, work)
    if credit_of(pairs, best.sum() + price.sum()) > target and (inner == OPEN).any():
        _sweep(small.pairs, root, work, inner, deadline)
    _probe(small.pairs, root, work, inner, deadline)
    status[small.origin] = inner
    return status


@compiled
def _sweep(pairs: Pairs, found: CreditResult, work: Work, status: Flags, deadline: float) -> None:
    """Go through all branches that reach the optimum, meeting what their choices agree on.

    ``status`` stays as it is where they are too many.
    """
    spare = np.zeros(len(pairs.node), np.uint8)
    swept = status.copy()
    rows, _ = first_row(pairs, (status == DEAD).astype(np.uint8), found.price, spare, found.credit - 1, work)
    height, leaves = 1, 0
    while height > 0:
        if now() >= deadline:
            return
        top = height - 1
        height = top
        if credit_of(pairs, bound_of(rows, top)) < found.credit:
            continue
        item = fault_of(pairs, rows.banned[top], rows.chosen[top], rows.price[top])
        if item >= 0:
            if top + 1 >= len(rows.best):
                return
            split_row(pairs, work, item, rows, top, spare, found.credit - 1)
            height = top + 2
            continue
        leaf = common_pairs(pairs, found.credit, rows.banned[top], rows.price[top], rows.best[top], ANY, work)
        for k in range(len(status)):
            if leaves == 0:
                swept[k] = leaf[k]
            elif swept[k] != leaf[k]:
                swept[k] = OPEN
        leaves += 1
    for k in range(len(status)):
        if leaves > 0 and status[k] == OPEN:
            status[k] = swept[k]


@compiled
def _probe(pairs: Pairs, found: CreditResult, work: Work, status: Flags, deadline: float) -> None:
    """Leave every open pair out, if it is held, or force it, if it is not, and bound again.

    Forced: the candidate's other pairs are barred and its price so low that its node takes it; a bound
    below the credit then says that no choice of that credit does so.
    """
    barred = (status == DEAD).astype(np.uint8)
    spare, chosen = np.zeros(len(pairs.node), np.uint8), np.zeros(len(pairs.node), np.uint8)
    price, best = found.price.copy(), found.best.copy()
    for k in range(len(status)):
        if status[k] != OPEN:
            continue
        if now() >= deadline:
            return
        banned = barred.copy()
        price[:], best[:], chosen[:] = found.price, found.best, found.chosen
        i = pairs.owner[k]
        alive = 0
        for other in range(pairs.start[i], pairs.start[i + 1]):
            if (other == k) == (found.held[k] == 1):
                banned[other] = 1
            alive += 1 - banned[other]
        if alive < 2:
            price[i] = 0
        if not found.held[k]:
            price[i] = -_worth_of_node(pairs, pairs.node[k])
        bound, _, _ = descend(
            pairs,
            begin_from(pairs, price, best, chosen, banned, i),
            banned,
            price,
            best,
            chosen,
            spare,
            WORST,
            found.credit - 1,
            BRANCH_ROUNDS,
            work,
        )
        if credit_of(pairs, bound) < found.credit:
            status[k] = FIXED if found.held[k] else DEAD
            barred[k] = 1 - found.held[k]


@compiled
def _worth_of_node(pairs: Pairs, n: int) -> int:
    total = 0
    for t in range(pairs.list_start[n], pairs.list_start[n + 1]):
        total += pairs.worth[pairs.list_pair[t]]
    return total
