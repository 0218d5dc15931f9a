# SPDX-License-Identifier: Apache-2.0
"""Rounding and the order of a plan, compiled: the same results as :mod:`solver.rounding` and
:mod:`solver.planning` for the methods that need compiled loops anyway, at a third of the time.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from solver.columns import columns_of
from solver.jit import compiled
from solver.planning import Review
from solver.rounding import Rounded, choose_quantum, hash_offset, seeded_order

if TYPE_CHECKING:
    from solver.columns import Columns, Ints, Snapshot

UNKNOWN = np.empty(0, dtype=np.int64)
Letters = npt.NDArray[np.uint8]

# Of one byte, zlib gives the entry at its complement, with the last complement and shift applied.
CRC_TABLE = np.array([crc32(bytes([k ^ 0xFF])) ^ 0xFF000000 for k in range(256)], dtype=np.uint32)


class Arranged(NamedTuple):
    """The arrays of :class:`solver.rounding.Rounded`, and where the columns have what is at each place here.

    ``sure`` is False where two names have one hash, so that their order is not known; then the rest is void.
    """

    sure: bool
    node_order: Ints
    order: Ints
    cost: Ints
    tokens: Ints
    ready: Ints
    footprint: Ints
    capacity: Ints
    home_start: Ints
    home_node: Ints
    home_credit: Ints
    home_owner: Ints
    lost: int
    total: int


def round_quick(problem: Snapshot) -> Rounded:
    """As :func:`solver.rounding.round_problem` with the problem's own quantum."""
    columns = columns_of(problem)
    count, nodes, _ = columns.shape
    unit = unit_of(columns)
    given = columns.numbers, columns.tiered, nodes, count, unit, hash_offset(columns.seed)
    made = arrange(*given, *spelled(columns))
    if not made.sure:
        made = arrange(*given, *ordered(columns))
    return Rounded(
        quantum=unit,
        candidate_ids=tuple([columns.candidate_ids[k] for k in made.order.tolist()]),
        node_ids=tuple([columns.node_ids[k] for k in made.node_order.tolist()]),
        cost=made.cost,
        tokens=made.tokens,
        ready=made.ready,
        footprint=made.footprint,
        capacity=made.capacity,
        home_start=made.home_start,
        home_node=made.home_node,
        home_credit=made.home_credit,
        home_owner=made.home_owner,
        lost_tokens=made.lost,
        total_tokens=made.total,
        balance=columns.balance,
    )


def unit_of(columns: Columns) -> int:
    """The quantum that the snapshot asks for, or one that suits its nodes."""
    if columns.quantum:
        return columns.quantum
    return choose_quantum(int(columns.parts().capacity.max(initial=1)))


Order = tuple["Letters", "Ints"]
"""What :func:`arrange` orders by: all ids, nodes first, each with a zero byte behind it; or else the order itself."""


def spelled(columns: Columns) -> Order:
    """By the ids; their order is not sure where two have one hash."""
    ids = "\0".join(chain(columns.node_ids, columns.candidate_ids, ("",)))
    if ids.count("\0") > len(columns.node_ids) + len(columns.candidate_ids):
        return ordered(columns)
    return np.frombuffer(ids.encode(errors="surrogatepass"), dtype=np.uint8), UNKNOWN


def ordered(columns: Columns) -> Order:
    """By the order, nodes first, then candidates."""
    orders = seeded_order(columns.node_ids, columns.seed), seeded_order(columns.candidate_ids, columns.seed)
    return np.frombuffer(b"", dtype=np.uint8), np.concatenate(orders)


@compiled
def arrange(
    numbers: Ints,
    tiered: bool,
    nodes: int,
    count: int,
    unit: int,
    offset: np.uint64,
    text: Letters,
    known: Ints,
) -> Arranged:
    """Round the numbers of :class:`solver.columns.Columns` to ``unit`` tokens; ``offset`` by ``hash_offset``.

    ``text`` and ``known``: see :data:`Order`.
    """
    if len(known):
        node_order, order, sure = known[:nodes], known[nodes:], True
    else:
        crc = _checksums(text, nodes + count)
        node_order, node_sure = _seeded(crc[:nodes], offset)
        order, sure = _seeded(crc[nodes:], offset)
        sure &= node_sure
    columns = 4 if tiered else 3
    homes = (len(numbers) - (columns + 1) * count - nodes) // 2
    counts, given_ready, at = numbers[:count], numbers[count : 2 * count], (columns - 1) * count
    home_of, at = numbers[at : at + homes], at + homes
    room, at = numbers[at : at + nodes], at + nodes
    given_cost, given_footprint = numbers[at : at + count], numbers[at + count : at + 2 * count]
    credit_of = numbers[at + 2 * count :]
    capacity, place = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    lost, total = 0, 0
    for k in range(nodes):
        place[node_order[k]] = k
        capacity[k] = room[node_order[k]] // unit
        total += room[node_order[k]]
        lost += room[node_order[k]] % unit
    first = np.zeros(count + 1, np.int64)
    for i in range(count):
        first[i + 1] = first[i] + counts[i]
    cost, tokens = np.empty(count, np.int64), np.empty(count, np.int64)
    ready, footprint = np.empty(count, np.int64), np.empty(count, np.int64)
    start, size = np.zeros(count + 1, np.int64), 0
    home, credit = np.empty(first[count], np.int64), np.empty(first[count], np.int64)
    owner = np.empty(first[count], np.int64)
    for i in range(count):
        k = order[i]
        tokens[i] = given_cost[k]
        cost[i] = -(-tokens[i] // unit)
        ready[i] = given_ready[k]
        footprint[i] = given_footprint[k]
        for h in range(first[k], first[k + 1]):
            n, c = place[home_of[h]], credit_of[h]
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
    return Arranged(
        sure,
        node_order,
        order,
        cost,
        tokens,
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
def _checksums(text: Letters, count: int) -> Ints:
    """The CRC-32 of every id, as :func:`zlib.crc32` gives it."""
    crc = np.empty(count, np.int64)
    k, word = 0, np.uint32(0xFFFFFFFF)
    for byte in text:
        if byte:
            word = CRC_TABLE[(word ^ byte) & np.uint32(0xFF)] ^ (word >> np.uint32(8))
        else:
            crc[k] = word ^ np.uint32(0xFFFFFFFF)
            k, word = k + 1, np.uint32(0xFFFFFFFF)
    return crc


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
        *review_arrays(
            rounded.cost,
            rounded.ready,
            rounded.footprint,
            rounded.home_start,
            rounded.home_node,
            rounded.home_credit,
            rounded.tokens,
            assignment,
            len(rounded.capacity),
            rounded.quantum,
            rounded.lost_tokens,
        )
    )


@compiled
def review_arrays(
    cost: Ints,
    ready: Ints,
    footprint: Ints,
    start: Ints,
    home: Ints,
    credit: Ints,
    tokens: Ints,
    at: Ints,
    nodes: int,
    unit: int,
    lost: int,
) -> tuple[Ints, Ints, int, int, int, int]:
    """The fields of a review, from the arrays of a rounded problem."""
    order, used = np.empty(len(cost), np.int64), np.zeros(nodes, np.int64)
    mine = np.zeros(len(cost), np.int64)
    size, value, ones, filled = 0, 0, 0, 0
    for i in range(len(cost)):
        if at[i] < 0:
            continue
        used[at[i]] += cost[i]
        lost += cost[i] * unit - tokens[i]
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
    return order, used, value, ones, filled, lost
