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

from solver.jit import compiled
from solver.knapsack import COSTLESS, Flags, Floats, Work, knapsack, make_work, sort_by_rate
from solver.packing import WORD_BITS

if TYPE_CHECKING:
    from solver.columns import Ints

WORST = 1 << WORD_BITS
"""A bound that every relaxation improves on."""
PATIENCE = 6
"""Rounds without a better bound after which the step is shortened."""
MOMENTUM = 0.7
"""Share of the last direction that the next keeps."""
SHORTER = 0.6
SHORTEST = 0.03
"""Length of a step below which the descent ends: it gains little then, and branching more."""
REPAIR_EVERY = 8
"""Rounds from one repair to the next."""
REPAIR_PASSES = 3


class Pairs(NamedTuple):
    """The ``H`` (candidate, node) pairs with credit; by candidate in ``start[N + 1]``, by node through
    ``list_pair[H]`` in ``list_start[M + 1]``, within a node in the order that its knapsack last had.
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


@compiled
def make_pairs(cost: Ints, capacity: Ints, home_start: Ints, home_node: Ints, home_credit: Ints) -> Pairs:
    """The pairs of a rounded problem; of a candidate that costs nothing only its greatest credit."""
    count = len(cost)
    start = np.zeros(count + 1, np.int64)
    owner, node = np.empty(len(home_node), np.int64), np.empty(len(home_node), np.int64)
    credit = np.empty(len(home_node), np.int64)
    size, unit = 0, 0
    for i in range(count):
        for k in range(home_start[i], home_start[i + 1]):
            if k == home_start[i] or cost[i] > 0:
                owner[size], node[size], credit[size] = i, home_node[k], home_credit[k]
                divisor = home_credit[k] if unit != 1 else 0
                while divisor:
                    unit, divisor = divisor, unit % divisor
                size += 1
        start[i + 1] = size
    owner, node, credit = owner[:size].copy(), node[:size].copy(), credit[:size].copy()
    unit = max(1, unit)
    total = 0.0
    for k in range(size):
        credit[k] //= unit
        total += credit[k]
    slack = capacity.sum()
    scale = 1
    while scale <= slack:
        scale *= 2
    if total * scale >= 2.0 ** (WORD_BITS - 1):
        scale, slack = 1, 0
    worth = credit * scale
    if scale > 1:
        for k in range(size):
            worth[k] -= cost[owner[k]]
    list_start, list_pair = by_node(node, len(capacity))
    return Pairs(start, owner, node, credit, worth, cost, capacity, list_start, list_pair, scale, slack, unit)


@compiled
def by_node(node: Ints, nodes: int) -> tuple[Ints, Ints]:
    """``list_start[M + 1]`` and ``list_pair[H]`` of the pairs' nodes."""
    start = np.zeros(nodes + 1, np.int64)
    for n in node:
        start[n + 1] += 1
    for n in range(nodes):
        start[n + 1] += start[n]
    at = start[:nodes].copy()
    pairs = np.empty(len(node), np.int64)
    for k in range(len(node)):
        pairs[at[node[k]]] = k
        at[node[k]] += 1
    return start, pairs


@compiled
def thinned(pairs: Pairs, banned: Flags) -> Pairs:
    """The same pairs, but the nodes' lists without the banned ones: their knapsacks need not pass over them."""
    list_start = np.zeros_like(pairs.list_start)
    list_pair = np.empty(len(pairs.list_pair), np.int64)
    size = 0
    for n in range(len(pairs.capacity)):
        for t in range(pairs.list_start[n], pairs.list_start[n + 1]):
            if not banned[pairs.list_pair[t]]:
                list_pair[size] = pairs.list_pair[t]
                size += 1
        list_start[n + 1] = size
    return Pairs(
        pairs.start,
        pairs.owner,
        pairs.node,
        pairs.credit,
        pairs.worth,
        pairs.cost,
        pairs.capacity,
        list_start,
        list_pair[:size].copy(),
        pairs.scale,
        pairs.slack,
        pairs.unit,
    )


@compiled
def work_for(pairs: Pairs) -> Work:
    """Scratch for :func:`best_of_node`."""
    most, room = 1, 0
    for n in range(len(pairs.capacity)):
        most = max(most, pairs.list_start[n + 1] - pairs.list_start[n])
        room = max(room, pairs.capacity[n])
    return make_work(most, room)


@compiled
def best_of_node(pairs: Pairs, n: int, banned: Flags, price: Ints, chosen: Flags, work: Work) -> int:
    """Node ``n``'s knapsack over ``worth - price``; marks its pairs in ``chosen``, returns the optimum."""
    low = pairs.list_start[n]
    count = pairs.list_start[n + 1] - low
    size = 0
    for t in range(count):
        k = pairs.list_pair[low + t]
        chosen[k] = 0
        i = pairs.owner[k]
        worth = pairs.worth[k] - price[i]
        work.pair[t] = k
        if worth <= 0 or banned[k]:
            work.rate[t] = -1.0
            continue
        size += 1
        work.rate[t] = worth / pairs.cost[i] if pairs.cost[i] else COSTLESS
    sort_by_rate(work, count)
    for t in range(count):
        k = work.pair[t]
        pairs.list_pair[low + t] = k
        if t < size:
            work.cost[t] = pairs.cost[pairs.owner[k]]
            work.worth[t] = pairs.worth[k] - price[pairs.owner[k]]
    optimum = knapsack(work, size, pairs.capacity[n])
    for t in range(size):
        chosen[work.pair[t]] = work.take[t]
    return optimum


@compiled
def credit_of(pairs: Pairs, bound: int) -> int:
    """The credit that a bound in worth allows at most."""
    return (bound + pairs.slack) // pairs.scale


class Descent(NamedTuple):
    """Where a subgradient descent stands, so that it can stop and go on.

    ``exact``, ``slope`` and ``trial`` per candidate, ``trial_best`` and ``stale`` (to be solved anew) per
    node, ``trial_chosen`` per pair; ``pace`` is (step length, rounds since the bound improved, rounds in all,
    whether the best relaxation has not been repaired yet).
    """

    exact: Floats
    slope: Floats
    trial: Ints
    trial_best: Ints
    stale: Flags
    trial_chosen: Flags
    pace: Floats


@compiled
def begin(pairs: Pairs, price: Ints, length: float) -> Descent:
    """A descent that starts at ``price`` with steps of this length (1: as if the credit known were the optimum)."""
    return Descent(
        price.astype(np.float64),
        np.zeros(len(price), np.float64),
        price.copy(),
        np.zeros(len(pairs.capacity), np.int64),
        np.ones(len(pairs.capacity), np.uint8),
        np.zeros(len(pairs.node), np.uint8),
        np.array([length, 0.0, 0.0, 0.0]),
    )


@compiled
def begin_from(pairs: Pairs, price: Ints, best: Ints, chosen: Flags, banned: Flags, item: int) -> Descent:
    """A descent from a relaxation known but for new bans and for candidate ``item``, whose price may have changed."""
    stale = np.zeros(len(pairs.capacity), np.uint8)
    for k in range(len(chosen)):
        if chosen[k] and banned[k]:
            stale[pairs.node[k]] = 1
    for k in range(pairs.start[item], pairs.start[item + 1]):
        stale[pairs.node[k]] = 1
    return Descent(
        price.astype(np.float64),
        np.zeros(len(price), np.float64),
        price.copy(),
        best.copy(),
        stale,
        chosen.copy(),
        np.array([1.0, 0.0, 0.0, 0.0]),
    )


@compiled
def bar(descent: Descent, pairs: Pairs, banned: Flags) -> None:
    """Take banned pairs out of the last trial; their nodes become stale."""
    for k in range(len(banned)):
        if banned[k] and descent.trial_chosen[k]:
            descent.trial_chosen[k] = 0
            descent.stale[pairs.node[k]] = 1


@compiled
def _relax(pairs: Pairs, descent: Descent, banned: Flags, work: Work) -> int:
    """Solve the stale nodes' knapsacks at the trial prices; returns the bound, in worth."""
    bound = 0
    for n in range(len(pairs.capacity)):
        if descent.stale[n]:
            descent.stale[n] = 0
            descent.trial_best[n] = best_of_node(pairs, n, banned, descent.trial, descent.trial_chosen, work)
        bound += descent.trial_best[n]
    for p in descent.trial:
        bound += p
    return bound


@compiled
def _turn(pairs: Pairs, descent: Descent, banned: Flags) -> float:
    """Turn ``slope`` to the last trial's subgradient (chosen how often, less one); returns its squared length."""
    norm = 0.0
    for i in range(len(descent.trial)):
        low, high = pairs.start[i], pairs.start[i + 1]
        if high - low < 2:
            continue
        count = -1
        alive = 0
        for k in range(low, high):
            count += descent.trial_chosen[k]
            alive += 1 - banned[k]
        if alive < 2 or (descent.trial[i] == 0 and count < 0):
            descent.slope[i] = 0.0
        else:
            descent.slope[i] = MOMENTUM * descent.slope[i] + count
        norm += descent.slope[i] * descent.slope[i]
    return norm


@compiled
def _step(pairs: Pairs, descent: Descent, length: float) -> None:
    """Move the trial prices along the slope; nodes of a candidate whose price changes become stale."""
    for i in range(len(descent.trial)):
        if descent.slope[i] != 0.0:
            descent.exact[i] = max(0.0, descent.exact[i] + length * descent.slope[i])
        moved = np.int64(descent.exact[i])
        if moved != descent.trial[i]:
            descent.trial[i] = moved
            for k in range(pairs.start[i], pairs.start[i + 1]):
                descent.stale[pairs.node[k]] = 1


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
    pace = descent.pace
    over = False
    for _ in range(rounds):
        now = _relax(pairs, descent, banned, work)
        if now < bound:
            bound = now
            price[:], best[:], chosen[:] = descent.trial, descent.trial_best, descent.trial_chosen
            pace[1] = 0.0
            pace[3] = 1.0
        else:
            pace[1] += 1.0
            if pace[1] >= PATIENCE:
                pace[0] *= SHORTER
                pace[1] = 0.0
        if pace[3] and pace[2] % REPAIR_EVERY == 0:
            credit = _repaired(pairs, chosen, held, credit, work)
            pace[3] = 0.0
        pace[2] += 1.0
        if credit_of(pairs, bound) <= credit:
            over = True
            break
        norm = _turn(pairs, descent, banned)
        if norm < 1e-9 or pace[0] < SHORTEST:
            over = True
            break
        _step(pairs, descent, pace[0] * max(now - credit * pairs.scale, 1) / norm)
    if over and pace[3] and credit_of(pairs, bound) > credit:
        credit = _repaired(pairs, chosen, held, credit, work)
        pace[3] = 0.0
    return bound, credit, over


@compiled
def _repaired(pairs: Pairs, chosen: Flags, held: Flags, credit: int, work: Work) -> int:
    """Repair ``chosen``; where that is better than ``credit``, ``held`` becomes it. Returns the better credit."""
    total, repaired = repair(pairs, chosen, work)
    if total > credit:
        held[:] = repaired
        return total
    return credit


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
