# SPDX-License-Identifier: Apache-2.0
"""Rounding and the order of a plan, compiled: the same results as :mod:`solver.rounding` and
:mod:`solver.planning` for the methods that need compiled loops anyway, at a third of the time.
"""

from __future__ import annotations

import zlib
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from solver.jit import compiled
from solver.planning import Review
from solver.rounding import Rounded, choose_quantum, hash_offset, round_problem

if TYPE_CHECKING:
    from solver.problem import Problem
    from solver.rounding import Ints


def round_quick(problem: Problem) -> Rounded:
    """As :func:`solver.rounding.round_problem` with the problem's own quantum."""
    nodes, candidates = problem.nodes, problem.candidates
    unit = problem.quantum or choose_quantum(max([node.capacity for node in nodes], default=1))
    node_names = [node.id for node in nodes]
    names = [candidate.id for candidate in candidates]
    credits_ = [candidate.credit for candidate in candidates]
    index = dict(zip(node_names, range(len(nodes)), strict=True))
    # One list, since the conversion costs more per array than per number.
    flat = [zlib.crc32(name.encode()) for name in node_names]
    flat += [zlib.crc32(name.encode()) for name in names]
    flat += [node.capacity for node in nodes]
    flat += [candidate.cost for candidate in candidates]
    flat += [candidate.ready for candidate in candidates]
    flat += [candidate.footprint for candidate in candidates]
    flat += map(len, credits_)
    flat += map(index.__getitem__, chain.from_iterable(credits_))
    flat += chain.from_iterable([credit.values() for credit in credits_])
    numbers = np.array(flat, dtype=np.int64)
    ordered, node_order, order, *arrays, lost, total = _arrange(
        numbers, len(nodes), len(names), unit, hash_offset(problem.seed)
    )
    if not ordered:
        return round_problem(problem)
    cost, ready, footprint, capacity, start, home_node, home_credit, home_owner = arrays
    return Rounded(
        quantum=unit,
        candidate_ids=tuple([names[k] for k in order.tolist()]),
        node_ids=tuple([node_names[k] for k in node_order.tolist()]),
        cost=cost,
        ready=ready,
        footprint=footprint,
        capacity=capacity,
        home_start=start,
        home_node=home_node,
        home_credit=home_credit,
        home_owner=home_owner,
        lost_tokens=lost,
        total_tokens=total,
        balance=problem.balance,
    )


@compiled
def _arrange(
    numbers: Ints, nodes: int, count: int, unit: int, offset: np.uint64
) -> tuple[bool, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, int, int]:
    """The arrays of :class:`Rounded` from the listed columns, one behind the other in ``numbers``.

    First whether the orders are unique; where two names have one hash they are not, and the rest is void.
    """
    node_order, node_sure = _seeded(numbers[:nodes], offset)
    order, sure = _seeded(numbers[nodes : nodes + count], offset)
    at = nodes + count
    room = numbers[at : at + nodes]
    columns = numbers[at + nodes : at + nodes + 4 * count].reshape((4, count))
    homes = numbers[at + nodes + 4 * count :].reshape((2, -1))
    capacity, place = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    lost, total = 0, 0
    for k in range(nodes):
        place[node_order[k]] = k
        capacity[k] = room[node_order[k]] // unit
        total += room[node_order[k]]
        lost += room[node_order[k]] % unit
    first = np.zeros(count + 1, np.int64)
    for i in range(count):
        first[i + 1] = first[i] + columns[3, i]
    cost, ready, footprint = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    start, size = np.zeros(count + 1, np.int64), 0
    home, credit = np.empty(first[count], np.int64), np.empty(first[count], np.int64)
    owner = np.empty(first[count], np.int64)
    for i in range(count):
        k = order[i]
        cost[i] = -(-columns[0, k] // unit)
        ready[i] = columns[1, k]
        footprint[i] = columns[2, k]
        lost += cost[i] * unit - columns[0, k]
        for h in range(first[k], first[k + 1]):
            n, c = place[homes[0, h]], homes[1, h]
            if c <= 0 or cost[i] > capacity[n]:
                continue
            # Greatest credit first, then by node.
            j = size
            while j > start[i] and (credit[j - 1] < c or (credit[j - 1] == c and home[j - 1] > n)):
                home[j], credit[j] = home[j - 1], credit[j - 1]
                j -= 1
            home[j], credit[j] = n, c
            owner[size] = i
            size += 1
        start[i + 1] = size
    return (
        node_sure and sure,
        node_order,
        order,
        cost,
        ready,
        footprint,
        capacity,
        start,
        home[:size].copy(),
        credit[:size].copy(),
        owner[:size].copy(),
        lost,
        total,
    )


@compiled
def _seeded(crc: Ints, offset: np.uint64) -> tuple[Ints, bool]:
    """As :func:`solver.rounding.seeded_order`, from the CRCs; False where two have the same key."""
    key = np.empty(len(crc), np.uint64)
    for k in range(len(crc)):
        word = np.uint64(crc[k]) + offset
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        key[k] = word ^ (word >> np.uint64(31))
    order = np.argsort(key)
    sure = True
    for k in range(1, len(order)):
        sure &= key[order[k]] != key[order[k - 1]]
    return order, sure


def review_quick(rounded: Rounded, assignment: Ints) -> Review:
    """As :func:`solver.planning.review`."""
    return Review(
        *_review(
            rounded.cost,
            rounded.ready,
            rounded.footprint,
            rounded.home_start,
            rounded.home_node,
            rounded.home_credit,
            assignment,
            len(rounded.capacity),
        )
    )


@compiled
def _review(
    cost: Ints, ready: Ints, footprint: Ints, start: Ints, home: Ints, credit: Ints, at: Ints, nodes: int
) -> tuple[Ints, Ints, int, int, int]:
    order, used = np.empty(len(cost), np.int64), np.zeros(nodes, np.int64)
    mine = np.zeros(len(cost), np.int64)
    size, value, ones, filled = 0, 0, 0, 0
    for i in range(len(cost)):
        if at[i] < 0:
            continue
        used[at[i]] += cost[i]
        for k in range(start[i], start[i + 1]):
            if home[k] == at[i]:
                mine[i] = credit[k]
        value += mine[i]
        ones += ready[i]
        filled += footprint[i]
        order[size] = i
        size += 1
    order = order[:size].copy()
    # Stable sorts, the last component first.
    order = order[np.argsort(-footprint[order], kind="mergesort")]
    order = order[np.argsort(-ready[order], kind="mergesort")]
    order = order[np.argsort(-mine[order], kind="mergesort")]
    return order, used, value, ones, filled
