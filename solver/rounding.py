# SPDX-License-Identifier: Apache-2.0
"""A snapshot as arrays of quanta, in a seeded order: what every method solves.

Costs are rounded up and capacities down, so a plan of the rounded problem fits the real one. Candidates
and nodes are permuted once, by a hash of seed and id; a method may then let the lowest index win wherever
a tie is left, and is deterministic without favouring any node.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from solver.columns import Ints, columns_of
from solver.problem import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from solver.columns import Snapshot

AUTO_QUANTA = 256
"""Quanta of the largest node at least, where the snapshot leaves the quantum to the solver."""


@dataclass(frozen=True, slots=True, eq=False)
class Rounded:
    """Index-based form of a problem; ``N`` candidates, ``M`` nodes, ``H`` non-zero credits.

    ``cost[N]``, ``capacity[M]`` in quanta; ``ready[N]`` 0 or 1; ``footprint[N]`` in tokens. Credits of
    candidate ``i`` are ``home_node[k], home_credit[k]`` (tokens, > 0) for ``home_start[i] <= k <
    home_start[i + 1]``, greatest first; a pair that cannot fit (cost over capacity) is left out.
    """

    quantum: int
    candidate_ids: tuple[str, ...]
    node_ids: tuple[str, ...]
    cost: Ints
    ready: Ints
    footprint: Ints
    capacity: Ints
    home_start: Ints
    home_node: Ints
    home_credit: Ints
    home_owner: Ints
    """``home_owner[k]`` is the candidate of credit ``k``."""
    tokens: Ints
    """``[N]``: costs before rounding."""
    lost_tokens: int
    """The capacities' remainders, which rounding makes unusable."""
    total_tokens: int
    """Sum of the nodes' capacities before rounding."""
    balance: bool
    """Whether ties between nodes go by the room left over, else by their order here."""

    def idlest(self, rooms: Ints) -> int:
        """The node of ``rooms[M]`` for what may go anywhere: that with most room, without balance the first."""
        return int(np.argmax(rooms)) if self.balance else 0

    def homes(self, i: int) -> list[tuple[int, int]]:
        """``(node, credit)`` of candidate ``i``, greatest credit first."""
        low, high = int(self.home_start[i]), int(self.home_start[i + 1])
        return list(zip(self.home_node[low:high].tolist(), self.home_credit[low:high].tolist(), strict=True))


def choose_quantum(largest_capacity: int, quanta: int = AUTO_QUANTA) -> int:
    """The greatest power of two that cuts ``largest_capacity`` tokens into ``quanta`` or more, at least 1."""
    return 1 << max(0, (largest_capacity // quanta).bit_length() - 1)


def hash_offset(seed: int) -> np.uint64:
    """What a seed adds to every CRC before it is hashed."""
    return np.uint64((seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % 2**64)


def seeded_order(ids: Sequence[str], seed: int) -> Ints:
    """Indices of ``ids`` in an order that depends on seed and ids only, not on how they are listed.

    The hash is splitmix64's finaliser over the id's CRC-32.
    """
    key = np.array([zlib.crc32(name.encode(errors="surrogatepass")) for name in ids], dtype=np.uint64)
    key += hash_offset(seed)
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    key ^= key >> np.uint64(31)
    order = key.argsort()
    ordered = key[order]
    if (ordered[1:] == ordered[:-1]).any():
        keyed = sorted(zip(key.tolist(), ids, range(len(ids)), strict=True))
        order = np.array([k for _, _, k in keyed], dtype=np.int64)
    return order


def round_problem(problem: Snapshot, quantum: int | None = None) -> Rounded:
    """Round a problem to ``quantum`` (default: its own, or a chosen one where that is 0).

    Raises:
        ProblemError: the problem breaks a rule.
    """
    columns = columns_of(problem)
    counts, ready, _, home, room, tokens, footprint, credit = columns.parts()
    unit = quantum or columns.quantum or choose_quantum(int(room.max(initial=1)))
    node_order = seeded_order(columns.node_ids, columns.seed)
    order = seeded_order(columns.candidate_ids, columns.seed)
    rooms, cost = room[node_order] // unit, -(-tokens[order] // unit)
    owner, node = _places(order)[np.arange(len(order)).repeat(counts)], _places(node_order)[home]
    kept = ((credit > 0) & (cost[owner] <= rooms[node])).nonzero()[0]
    # By candidate, then credit, greatest first, then node.
    kept = kept[np.lexsort((node[kept], -credit[kept], owner[kept]))]
    owner = owner[kept]
    real = int(room.sum())
    return Rounded(
        quantum=unit,
        candidate_ids=tuple([columns.candidate_ids[k] for k in order.tolist()]),
        node_ids=tuple([columns.node_ids[k] for k in node_order.tolist()]),
        cost=cost,
        tokens=tokens[order],
        ready=ready[order],
        footprint=footprint[order],
        capacity=rooms,
        home_start=owner.searchsorted(np.arange(len(order) + 1)),
        home_node=node[kept],
        home_credit=credit[kept],
        home_owner=owner,
        lost_tokens=real - int(rooms.sum()) * unit,
        total_tokens=real,
        balance=columns.balance,
    )


def _places(order: Ints) -> Ints:
    """Where each entry is in ``order``."""
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return places


def value_of(rounded: Rounded, assignment: Ints) -> Value:
    """The value of an assignment: ``assignment[i]`` is candidate ``i``'s node, or -1 where it stays out."""
    placed = assignment >= 0
    credit = int(credits_of(rounded, assignment).sum())
    return Value(credit, int(rounded.ready[placed].sum()), int(rounded.footprint[placed].sum()))


def credits_of(rounded: Rounded, assignment: Ints) -> Ints:
    """``[N]``: the credit (tokens) of every candidate on the node that it is assigned to."""
    owner = rounded.home_owner
    found = np.flatnonzero(assignment[owner] == rounded.home_node)
    credit = np.zeros(len(rounded.cost), dtype=np.int64)
    credit[owner[found]] = rounded.home_credit[found]
    return credit


def trivial_bound(rounded: Rounded) -> Value:
    """Every candidate that fits some node, at its best: an upper bound component by component."""
    if not len(rounded.capacity):
        return Value()
    fits = rounded.cost <= rounded.capacity.max()
    starts = rounded.home_start[:-1]
    best = rounded.home_credit[starts[starts < rounded.home_start[1:]]]
    return Value(int(best.sum()), int(rounded.ready[fits].sum()), int(rounded.footprint[fits].sum()))
