# SPDX-License-Identifier: Apache-2.0
"""The greatest total credit, by node: 0/1 knapsacks tied together by prices on candidates chosen twice.

Credit is non-zero on one or two nodes per candidate, so its optimum nearly separates into one knapsack per
node over the candidates at home there. Only "no candidate twice" couples them. It is relaxed with a price
``price[i] >= 0`` per candidate (Lagrange): for any prices

    bound = sum over nodes of knapsack(worth - price) + sum of price   >=   optimum

(Fisher 1981; for the assignment problem Martello and Toth 1990, ch. 7). Prices follow by subgradient
descent; every improved relaxation is repaired into a choice that is feasible. Where the two do not meet, a
candidate chosen twice, or priced and not chosen, is branched on (:mod:`solver.credit_search`).

``worth = credit * scale - cost``, ``scale`` greater than all room together: among equal credit the choice
that leaves most room. Where that would overflow, ``scale`` is 1 and the cost is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from solver.jit import compiled
from solver.packing import WORD_BITS

if TYPE_CHECKING:
    from solver.rounding import Ints, Rounded

Flags = npt.NDArray[np.uint8]

WORST = 1 << WORD_BITS
"""A bound that every relaxation improves on."""
PATIENCE = 6
"""Rounds without a better bound after which the step is shortened."""
REPAIR_EVERY = 8
"""Rounds from one repair to the next."""
REPAIR_PASSES = 3


class Pairs(NamedTuple):
    """The ``H`` (candidate, node) pairs with credit; by candidate in ``start[N + 1]``, by node through
    ``list_pair[H]`` in ``list_start[M + 1]``.
    """

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
    unit: int
    """Tokens per unit of ``credit``, their greatest common divisor: a bound between two multiples is the lower."""


class Work(NamedTuple):
    """Scratch of one knapsack, for the node with most pairs and the one with most room."""

    pair: Ints
    cost: Ints
    worth: Ints
    take: Flags
    value: Ints
    decision: Flags


def make_pairs(rounded: Rounded) -> Pairs:
    """The pairs of a rounded problem; of a candidate that costs nothing only its greatest credit."""
    count = len(rounded.cost)
    owner = rounded.home_owner
    first = np.arange(len(owner)) == rounded.home_start[owner]
    kept = first | (rounded.cost[owner] > 0)
    owner, node, credit = owner[kept], rounded.home_node[kept], rounded.home_credit[kept]
    unit = max(1, int(np.gcd.reduce(credit)) if len(credit) else 1)
    credit = credit // unit
    slack = int(rounded.capacity.sum())
    scale = 1 << slack.bit_length()
    if (sum(credit.tolist()) * scale).bit_length() > WORD_BITS - 1:
        scale, slack = 1, 0
    worth = credit * scale
    if scale > 1:
        worth = worth - rounded.cost[owner]
    order = np.argsort(node, kind="stable").astype(np.int64)
    return Pairs(
        starts(owner, count),
        owner,
        node,
        credit,
        worth,
        rounded.cost,
        rounded.capacity,
        starts(node, len(rounded.capacity)),
        order,
        scale,
        slack,
        unit,
    )


def starts(key: Ints, count: int) -> Ints:
    """Where each of ``count`` keys begins in a list sorted by key: ``count + 1`` offsets."""
    sizes = np.bincount(key, minlength=count)
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)))


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
    return int(work.value[now, room])


@compiled
def best_of_node(pairs: Pairs, n: int, banned: Flags, price: Ints, chosen: Flags, work: Work) -> int:
    """Node ``n``'s knapsack over ``worth - price``; marks its pairs in ``chosen``, returns the optimum."""
    count = 0
    for t in range(pairs.list_start[n], pairs.list_start[n + 1]):
        k = pairs.list_pair[t]
        i = pairs.owner[k]
        chosen[k] = 0
        worth = pairs.worth[k] - price[i]
        if worth > 0 and not banned[k]:
            work.pair[count] = k
            work.cost[count] = pairs.cost[i]
            work.worth[count] = worth
            count += 1
    optimum = knapsack(work, count, pairs.capacity[n])
    for j in range(count):
        chosen[work.pair[j]] = work.take[j]
    return optimum


@compiled
def relax(pairs: Pairs, banned: Flags, price: Ints, best: Ints, chosen: Flags, work: Work) -> int:
    """Every node's knapsack at these prices, into ``best`` and ``chosen``; returns the bound, in worth."""
    for n in range(len(pairs.capacity)):
        best[n] = best_of_node(pairs, n, banned, price, chosen, work)
    return int(best.sum() + price.sum())


@compiled
def credit_of(pairs: Pairs, bound: int) -> int:
    """The credit that a bound in worth allows at most."""
    return (bound + pairs.slack) // pairs.scale


class Descent(NamedTuple):
    """Where a subgradient descent stands, so that it can stop and go on.

    ``exact``, ``slope`` and ``trial`` per candidate, ``trial_best`` per node, ``trial_chosen`` per pair;
    ``pace`` is (step length, rounds since the bound improved, rounds in all).
    """

    exact: npt.NDArray[np.float64]
    slope: npt.NDArray[np.float64]
    trial: Ints
    trial_best: Ints
    trial_chosen: Flags
    pace: npt.NDArray[np.float64]


@compiled
def begin(pairs: Pairs, price: Ints) -> Descent:
    """A descent that starts at ``price``."""
    return Descent(
        price.astype(np.float64),
        np.zeros(len(price), np.float64),
        price.copy(),
        np.zeros(len(pairs.capacity), np.int64),
        np.zeros(len(pairs.node), np.uint8),
        np.array([1.0, 0.0, 0.0]),
    )


@compiled
def _turn(pairs: Pairs, descent: Descent, banned: Flags) -> float:
    """Turn ``slope`` to the last trial's subgradient (chosen how often, less one); returns its squared length."""
    norm = 0.0
    for i in range(len(descent.trial)):
        count = -1
        alive = 0
        for k in range(pairs.start[i], pairs.start[i + 1]):
            count += descent.trial_chosen[k]
            alive += 1 - banned[k]
        if alive < 2 or (descent.trial[i] == 0 and count < 0):
            descent.slope[i] = 0.0
        else:
            descent.slope[i] = 0.3 * descent.slope[i] + count
        norm += descent.slope[i] * descent.slope[i]
    return norm


@compiled
def descend(
    pairs: Pairs,
    descent: Descent,
    banned: Flags,
    price: Ints,
    best: Ints,
    chosen: Flags,
    held: Flags,
    bound: int,
    credit: int,
    rounds: int,
    work: Work,
) -> tuple[int, int, bool]:
    """Subgradient descent (Held, Wolfe and Crowder 1974) on the prices, repairing now and then.

    ``price``, ``best`` and ``chosen`` become the best relaxation, ``bound`` (worth) is its; ``held`` and
    ``credit`` the best choice known. Returns bound, credit and whether there is no more to gain.
    """
    exact, slope, trial, pace = descent.exact, descent.slope, descent.trial, descent.pace
    over = False
    fresh = False
    for turn in range(rounds):
        now = relax(pairs, banned, trial, descent.trial_best, descent.trial_chosen, work)
        if now < bound:
            bound = now
            price[:], best[:], chosen[:] = trial, descent.trial_best, descent.trial_chosen
            pace[1] = 0.0
            fresh = True
        else:
            pace[1] += 1.0
            if pace[1] >= PATIENCE:
                pace[0] *= 0.6
                pace[1] = 0.0
                exact[:] = price
        if fresh and (pace[2] % REPAIR_EVERY == 0 or turn == rounds - 1):
            fresh = False
            total, repaired = repair(pairs, chosen, work)
            if total > credit:
                credit = total
                held[:] = repaired
        pace[2] += 1.0
        if credit_of(pairs, bound) <= credit:
            over = True
            break
        norm = _turn(pairs, descent, banned)
        if norm < 1e-9 or pace[0] < 1e-3:
            over = True
            break
        step = pace[0] * max(now - credit * pairs.scale, 1) / norm
        for i in range(len(price)):
            if slope[i] != 0.0:
                exact[i] = max(0.0, exact[i] + step * slope[i])
                trial[i] = np.int64(exact[i])
    if over and credit_of(pairs, bound) > credit:
        total, repaired = repair(pairs, chosen, work)
        if total > credit:
            credit = total
            held[:] = repaired
    return bound, credit, over


@compiled
def repair(pairs: Pairs, chosen: Flags, work: Work) -> tuple[int, Flags]:
    """A feasible choice near ``chosen``, improved node by node.

    Each candidate stays where it is worth most; then every node's knapsack is solved over its own, the
    unplaced, and the others' candidates at what they would gain by coming here. No step lowers the total.
    """
    free = np.zeros(len(pairs.node), np.uint8)
    holds = np.zeros(len(pairs.node), np.uint8)
    at = np.full(len(pairs.cost), -1, np.int64)
    held_worth = np.zeros(len(pairs.cost), np.int64)
    for k in range(len(pairs.node)):
        i = pairs.owner[k]
        if chosen[k] and (at[i] < 0 or pairs.worth[k] > held_worth[i]):
            at[i] = k
            held_worth[i] = pairs.worth[k]
    for _ in range(REPAIR_PASSES):
        changed = False
        for n in range(len(pairs.capacity)):
            low, high = pairs.list_start[n], pairs.list_start[n + 1]
            for t in range(low, high):
                k = pairs.list_pair[t]
                if at[pairs.owner[k]] == k:
                    held_worth[pairs.owner[k]] = 0
            best_of_node(pairs, n, free, held_worth, holds, work)
            for t in range(low, high):
                k = pairs.list_pair[t]
                i = pairs.owner[k]
                if holds[k]:
                    changed |= at[i] != k
                    at[i] = k
                    held_worth[i] = pairs.worth[k]
                elif at[i] == k:
                    changed = True
                    at[i] = -1
        if not changed:
            break
    total = 0
    holds[:] = 0
    for i in range(len(at)):
        if at[i] >= 0:
            holds[at[i]] = 1
            total += pairs.credit[at[i]]
    return total, holds
