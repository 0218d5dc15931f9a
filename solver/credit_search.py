# SPDX-License-Identifier: Apache-2.0
"""Branch and bound on top of :mod:`solver.credit`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from solver.credit import WORST, Flags, Pairs, Work, begin, credit_of, descend, make_work, repair
from solver.credit_common import DEAD, common_pairs
from solver.jit import compiled

if TYPE_CHECKING:
    from solver.rounding import Ints

DEPTH = 256
"""Open branches kept at most; one that finds no place counts as unproven."""
CHUNK_PAIRS = 1600
"""Branches times pairs between two looks at the clock: about a millisecond."""
ROOT_ROUNDS = 160
ROOT_CHUNK = 16
BRANCH_ROUNDS = 30
"""Rounds of descent at the root, between two looks at the clock, and from there in every branch."""


@dataclass(frozen=True, slots=True, eq=False)
class CreditResult:
    """``held[H]``: the pairs of the best choice found; its ``credit`` and the proven ``bound`` (tokens).

    ``price[N]`` and ``best[M]`` are the relaxation at the root (prices, knapsack optima).
    """

    held: Flags
    credit: int
    bound: int
    price: Ints
    best: Ints


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
def _branch(
    pairs: Pairs,
    work: Work,
    banned: npt.NDArray[np.uint8],
    chosen: npt.NDArray[np.uint8],
    price: npt.NDArray[np.int64],
    best: npt.NDArray[np.int64],
    state: Ints,
    held: Flags,
    chunk: int,
) -> None:
    """Take up to ``chunk`` branches from the stack.

    ``state`` is (height of the stack, best credit so far, greatest bound given up); the other arrays have
    one row per open branch. ``held`` is the best choice so far.
    """
    while state[0] > 0 and chunk > 0:
        chunk -= 1
        top = state[0] - 1
        state[0] = top
        bound = best[top].sum() + price[top].sum()
        if credit_of(pairs, bound) <= state[1]:
            continue
        item = fault_of(pairs, banned[top], chosen[top], price[top])
        if item < 0:
            # Nothing to branch on: the choice is feasible and the bound exact.
            total, repaired = repair(pairs, chosen[top], work)
            if total > state[1]:
                state[1] = total
                held[:] = repaired
            if credit_of(pairs, bound) > state[1]:
                state[2] = max(state[2], credit_of(pairs, bound))
            continue
        if top + 1 >= len(banned):
            state[2] = max(state[2], credit_of(pairs, bound))
            continue
        state[1] = split_row(pairs, work, item, banned, chosen, price, best, top, held, state[1])
        state[0] = top + 2


@compiled
def split_row(
    pairs: Pairs,
    work: Work,
    item: int,
    banned: npt.NDArray[np.uint8],
    chosen: npt.NDArray[np.uint8],
    price: npt.NDArray[np.int64],
    best: npt.NDArray[np.int64],
    top: int,
    held: Flags,
    credit: int,
) -> int:
    """Branch row ``top`` on candidate ``item`` into rows ``top`` and ``top + 1``; returns the best credit known.

    The first leaves its likeliest pair out, the second, to be taken next, leaves it only that.
    """
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
            begin(pairs, price[row]),
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


def chunk_of(pairs: Pairs) -> int:
    """Branches between two looks at the clock."""
    return max(1, CHUNK_PAIRS // max(1, len(pairs.node)))


def make_rows(
    pairs: Pairs, banned: Flags, price: Ints
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """A stack of open branches (banned, chosen, price, best); the first row starts from these."""
    rows_banned = np.zeros((DEPTH, len(banned)), dtype=np.uint8)
    rows_price = np.empty((DEPTH, len(price)), dtype=np.int64)
    rows_banned[0] = banned
    # Where one home is left there is nothing to price; a price kept would only loosen the bound.
    alive = np.bincount(pairs.owner[banned == 0], minlength=len(price))
    rows_price[0] = np.where(alive > 1, price, 0)
    rows_chosen = np.zeros((DEPTH, len(banned)), dtype=np.uint8)
    return rows_banned, rows_chosen, rows_price, np.zeros((DEPTH, len(pairs.capacity)), dtype=np.int64)


def solve_credit(pairs: Pairs, deadline: float, known: Flags | None = None) -> CreditResult:
    """The greatest total credit, proven or with a bound, by ``deadline`` (of ``time.perf_counter``).

    ``known[H]`` is a feasible choice to start from.
    """
    work = make_work(pairs)
    count, nodes = len(pairs.node), len(pairs.capacity)
    banned, chosen, held = (np.zeros(count, dtype=np.uint8) for _ in range(3))
    if known is not None:
        held = known.copy()
    price, best = np.zeros(len(pairs.cost), dtype=np.int64), np.zeros(nodes, dtype=np.int64)
    descent = begin(pairs, price)
    worth, credit, over, left = WORST, int(pairs.credit[held == 1].sum()), False, ROOT_ROUNDS
    while not over and left > 0 and (left == ROOT_ROUNDS or time.perf_counter() < deadline):
        worth, credit, over = descend(
            pairs, descent, banned, price, best, chosen, held, worth, credit, ROOT_CHUNK, work
        )
        left -= ROOT_CHUNK
    bound = credit_of(pairs, worth)
    if bound <= credit or time.perf_counter() >= deadline:
        return CreditResult(held, credit * pairs.unit, max(credit, bound) * pairs.unit, price, best)
    dead = (common_pairs(pairs, credit + 1, banned, price, best) == DEAD).astype(np.uint8)
    rows_banned, rows_chosen, rows_price, rows_best = make_rows(pairs, dead, price)
    _, credit, _ = descend(
        pairs,
        begin(pairs, rows_price[0]),
        rows_banned[0],
        rows_price[0],
        rows_best[0],
        rows_chosen[0],
        held,
        WORST,
        credit,
        BRANCH_ROUNDS,
        work,
    )
    state = np.array([1, credit, 0], dtype=np.int64)
    while state[0] and time.perf_counter() < deadline:
        _branch(pairs, work, rows_banned, rows_chosen, rows_price, rows_best, state, held, chunk_of(pairs))
    unproven = int(state[2])
    for row in range(int(state[0])):
        unproven = max(unproven, credit_of(pairs, int(rows_best[row].sum() + rows_price[row].sum())))
    credit = int(state[1])
    proven = max(credit, min(bound, unproven))
    return CreditResult(held, credit * pairs.unit, proven * pairs.unit, price, best)
