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
import numpy.typing as npt

from solver.problem import Problem, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

Ints = npt.NDArray[np.int64]

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
    lost_tokens: int
    """Room that rounding makes unusable at most: capacities' remainders plus the costs' round-up."""
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


def seeded_order(ids: Sequence[str], seed: int) -> list[int]:
    """Indices of ``ids`` in an order that depends on seed and ids only, not on how they are listed.

    The hash is splitmix64's finaliser over the id's CRC-32.
    """
    key = np.array([zlib.crc32(name.encode()) for name in ids], dtype=np.uint64)
    key += np.uint64((seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % 2**64)
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    key ^= key >> np.uint64(31)
    keyed = sorted(zip(key.tolist(), ids, range(len(ids)), strict=True))
    return [k for _, _, k in keyed]


def round_problem(problem: Problem, quantum: int | None = None) -> Rounded:
    """Round a valid problem to ``quantum`` (default: its own, or a chosen one where that is 0)."""
    unit = quantum or problem.quantum or choose_quantum(max((node.capacity for node in problem.nodes), default=1))
    nodes = [problem.nodes[k] for k in seeded_order([node.id for node in problem.nodes], problem.seed)]
    order = seeded_order([candidate.id for candidate in problem.candidates], problem.seed)
    candidates = [problem.candidates[k] for k in order]
    index = {node.id: k for k, node in enumerate(nodes)}
    capacity = [node.capacity // unit for node in nodes]
    cost = [-(-candidate.cost // unit) for candidate in candidates]
    start, home_node, home_credit, home_owner = [0], [], [], []
    for i, (candidate, quanta) in enumerate(zip(candidates, cost, strict=True)):
        if candidate.credit:
            homes = [(-c, index[n]) for n, c in candidate.credit.items() if c > 0 and quanta <= capacity[index[n]]]
            homes.sort()
            for c, n in homes:
                home_node.append(n)
                home_credit.append(-c)
                home_owner.append(i)
        start.append(len(home_node))
    real = sum(node.capacity for node in nodes)
    lost = real - sum(capacity) * unit + sum(cost) * unit - sum(c.cost for c in candidates)
    return Rounded(
        quantum=unit,
        candidate_ids=tuple(candidate.id for candidate in candidates),
        node_ids=tuple(node.id for node in nodes),
        cost=np.array(cost, dtype=np.int64),
        ready=np.array([candidate.ready for candidate in candidates], dtype=np.int64),
        footprint=np.array([candidate.footprint for candidate in candidates], dtype=np.int64),
        capacity=np.array(capacity, dtype=np.int64),
        home_start=np.array(start, dtype=np.int64),
        home_node=np.array(home_node, dtype=np.int64),
        home_credit=np.array(home_credit, dtype=np.int64),
        home_owner=np.array(home_owner, dtype=np.int64),
        lost_tokens=lost,
        total_tokens=real,
        balance=problem.balance,
    )


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
