# SPDX-License-Identifier: Apache-2.0
"""Branch and bound on top of :mod:`solver.credit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from solver.clock import now
from solver.credit import WORST, Pairs, bar, begin, begin_from, credit_of, descend, repair, thinned, work_for
from solver.credit_common import ANY, DEAD, FIXED, OPEN, common_pairs, reduced
from solver.credit_start import start_prices
from solver.jit import compiled
from solver.knapsack import Flags, Work

if TYPE_CHECKING:
    from solver.columns import Ints

DEPTH = 256
"""Open branches kept at most; one that finds no place counts as unproven."""
ROOT_ROUNDS = 160
ROOT_CHUNK = 4
BRANCH_ROUNDS = 30
"""Rounds of descent at the root, between two looks at the clock, and from there in every branch."""
LOOK_EVERY = 8
"""Rounds at the root from one look at how many pairs are open to the next."""
LOOK_PAIRS = 192
"""Pairs that such a look may put through tables."""
FEW_OPEN = 48
"""So few are better branched on at once."""
THIN_AT = 0.7
"""Share of the pairs that is not dead yet below which the dead ones are taken out."""
ROOT_STEP, INNER_STEP = 0.5, 0.4
"""Length of the first step at the root, where :mod:`solver.credit_start` is near, and over the open pairs."""


class CreditResult(NamedTuple):
    """``held[H]``: the pairs of the best choice found; its ``credit`` and the proven ``bound`` (units).

    ``price[N]``, ``best[M]`` and ``chosen[H]`` are the relaxation at the root (prices, knapsack optima and
    choices), without the pairs ``banned[H]``, which no choice of this credit or more has.
    """

    held: Flags
    credit: int
    bound: int
    price: Ints
    best: Ints
    chosen: Flags
    banned: Flags


class Rows(NamedTuple):
    """A stack of open branches, one per row: ``banned``, ``chosen`` ``[D, H]``, ``price[D, N]``, ``best[D, M]``."""

    banned: npt.NDArray[np.uint8]
    chosen: npt.NDArray[np.uint8]
    price: npt.NDArray[np.int64]
    best: npt.NDArray[np.int64]


@compiled
def fault_of(pairs: Pairs, banned: Flags, chosen: Flags, price: Ints) -> int:
    """The candidate to branch on: chosen on several nodes, or priced and on none; the dearest, -1 for none."""
    found, worst = -1, -1
    for i in range(len(price)):
        count, alive = 0, 0
        for k in range(pairs.start[i], pairs.start[i + 1]):
            count += chosen[k]
            alive += 1 - banned[k]
        if alive > 1 and (count > 1 or (count == 0 and price[i] > 0)) and price[i] > worst:
            found, worst = i, price[i]
    return found


@compiled
def bound_of(rows: Rows, row: int) -> int:
    """The bound of an open branch, in worth."""
    return int(rows.best[row].sum() + rows.price[row].sum())


@compiled
def first_row(pairs: Pairs, banned: Flags, price: Ints, held: Flags, credit: int, work: Work) -> tuple[Rows, int]:
    """A stack whose first row starts from these, descended; and the best credit known by then."""
    rows = Rows(
        np.empty((DEPTH, len(banned)), np.uint8),
        np.empty((DEPTH, len(banned)), np.uint8),
        np.empty((DEPTH, len(price)), np.int64),
        np.empty((DEPTH, len(pairs.capacity)), np.int64),
    )
    rows.banned[0] = banned
    for i in range(len(price)):
        alive = 0
        for k in range(pairs.start[i], pairs.start[i + 1]):
            alive += 1 - banned[k]
        # Where one home is left there is nothing to price; a price kept would only loosen the bound.
        rows.price[0, i] = price[i] if alive > 1 else 0
    _, credit, _ = descend(
        pairs,
        begin(pairs, rows.price[0], INNER_STEP),
        rows.banned[0],
        rows.price[0],
        rows.best[0],
        rows.chosen[0],
        held,
        WORST,
        credit,
        BRANCH_ROUNDS,
        work,
    )
    return rows, credit


@compiled
def split_row(pairs: Pairs, work: Work, item: int, rows: Rows, top: int, held: Flags, credit: int) -> int:
    """Branch row ``top`` on candidate ``item`` into rows ``top`` and ``top + 1``; returns the best credit known.

    The first leaves its likeliest pair out, the second, to be taken next, leaves it only that.
    """
    banned, chosen, price, best = rows
    low, high = pairs.start[item], pairs.start[item + 1]
    keep = -1
    for k in range(low, high):
        if not banned[top, k] and (
            keep < 0
            or chosen[top, k] > chosen[top, keep]
            or (chosen[top, k] == chosen[top, keep] and pairs.worth[k] > pairs.worth[keep])
        ):
            keep = k
    banned[top + 1], chosen[top + 1] = banned[top], chosen[top]
    price[top + 1], best[top + 1] = price[top], best[top]
    for child in range(2):
        row = top + child
        alive = 0
        for k in range(low, high):
            if (k == keep) == (child == 0):
                banned[row, k] = 1
            alive += 1 - banned[row, k]
        if alive < 2:
            price[row, item] = 0
        _, credit, _ = descend(
            pairs,
            begin_from(pairs, price[row], best[row], chosen[row], banned[row], item),
            banned[row],
            price[row],
            best[row],
            chosen[row],
            held,
            WORST,
            credit,
            BRANCH_ROUNDS,
            work,
        )
    return credit


@compiled
def _branch(pairs: Pairs, work: Work, rows: Rows, held: Flags, credit: int, deadline: float) -> tuple[int, int]:
    """Branch from the first row until nothing is open or ``deadline``; the best credit and a bound."""
    height, given_up = 1, 0
    while height > 0 and now() < deadline:
        top = height - 1
        height = top
        bound = bound_of(rows, top)
        if credit_of(pairs, bound) <= credit:
            continue
        item = fault_of(pairs, rows.banned[top], rows.chosen[top], rows.price[top])
        if item < 0:
            # Nothing to branch on: the choice is feasible and the bound exact.
            total, repaired = repair(pairs, rows.chosen[top], work)
            if total > credit:
                credit = total
                held[:] = repaired
            if credit_of(pairs, bound) > credit:
                given_up = max(given_up, credit_of(pairs, bound))
            continue
        if top + 1 >= len(rows.best):
            given_up = max(given_up, credit_of(pairs, bound))
            continue
        credit = split_row(pairs, work, item, rows, top, held, credit)
        height = top + 2
    for row in range(height):
        given_up = max(given_up, credit_of(pairs, bound_of(rows, row)))
    return credit, given_up


@compiled
def solve_credit(pairs: Pairs, known: Flags, deadline: float) -> CreditResult:
    """The greatest total credit, proven or with a bound, by ``deadline`` (of :func:`solver.clock.now`).

    ``known[H]`` is a feasible choice to start from.
    """
    work = work_for(pairs)
    count = len(pairs.node)
    banned, chosen, held = np.zeros(count, np.uint8), np.zeros(count, np.uint8), known.copy()
    price, best = start_prices(pairs, work), np.zeros(len(pairs.capacity), np.int64)
    descent = begin(pairs, price, ROOT_STEP)
    worth, credit, over, left = WORST, 0, False, ROOT_ROUNDS
    for k in range(count):
        credit += pairs.credit[k] * held[k]
    status, listed = banned, pairs
    while not over and left > 0 and (left == ROOT_ROUNDS or now() < deadline):
        worth, credit, over = descend(
            listed, descent, banned, price, best, chosen, held, worth, credit, ROOT_CHUNK, work
        )
        left -= ROOT_CHUNK
        last = over or left == 0
        if credit_of(pairs, worth) > credit and (last or left % LOOK_EVERY == 0):
            # Which pairs are open; where that is many, the look is kept cheap.
            status = common_pairs(listed, credit + 1, banned, price, best, ANY if last else LOOK_PAIRS, work)
            over |= (status == OPEN).sum() <= FEW_OPEN
            if not over and (status != DEAD).sum() < THIN_AT * len(listed.list_pair):
                # The look again, for what reaches the credit known: such a plan may be the best.
                dead = common_pairs(listed, credit, banned, price, best, LOOK_PAIRS, work)
                banned = (dead == DEAD).astype(np.uint8)
                bar(descent, pairs, banned)
                listed = thinned(listed, banned)
    bound = credit_of(pairs, worth)
    if bound > credit and now() < deadline:
        small = reduced(pairs, status, price)
        spare, barred = np.zeros(len(small.origin), np.uint8), np.zeros(len(small.origin), np.uint8)
        rows, more = first_row(small.pairs, barred, small.price, spare, credit - small.credit, work)
        more, open_bound = _branch(small.pairs, work, rows, spare, more, deadline)
        bound = min(bound, open_bound + small.credit)
        if more + small.credit > credit:
            credit = more + small.credit
            held = (status == FIXED).astype(np.uint8)
            held[small.origin] = spare
    return CreditResult(held, credit, max(credit, bound), price, best, chosen, banned)
