# SPDX-License-Identifier: Apache-2.0
"""The rooms of all nodes, and which of them has the most left: kept in order, so that no event looks at every node."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice

from kv_events.types import NodeId
from tao_dynamo.core.room import Room


class Rooms(dict[NodeId, Room]):
    """Rooms by node; read it as a dict, change it by :meth:`join`, :meth:`resize` and :meth:`leave` only.

    Args:
        mark: share of a node's capacity up to which new room is given.
    """

    def __init__(self, mark: float) -> None:
        super().__init__()
        self.largest = 0
        """Tokens of the largest node."""
        self.smallest = 0
        """Tokens of the smallest node."""
        self.total = 0
        """Tokens of all nodes."""
        self._mark = mark
        self._touched: set[NodeId] = set()
        self._order: list[tuple[int, int, NodeId]] = []
        self._entry: dict[NodeId, tuple[int, int, NodeId]] = {}
        self._claiming: set[NodeId] = set()
        self._idle: dict[NodeId, None] = {}
        self._resting: dict[NodeId, None] = {}
        self._joined = 0

    @property
    def mark(self) -> float:
        """Share of a node's capacity up to which new room is given."""
        return self._mark

    @mark.setter
    def mark(self, mark: float) -> None:
        if mark != self._mark:
            self._mark = mark
            self._touched.update(self)

    @property
    def claimed(self) -> int:
        """Tokens kept free for overdue sessions, on all nodes."""
        self._refresh()
        return sum(self[node].claimed for node in self._claiming)

    def claimants(self) -> list[str]:
        """Sessions for which room is kept free."""
        self._refresh()
        return [session_id for node in self._claiming for session_id in self[node].claims]

    def join(self, node: NodeId, capacity: int, block_size: int, host_tokens: int) -> None:
        """A node is there, or tells other sizes than before."""
        room = self.get(node)
        if room is None:
            room = Room(node, capacity, block_size, host_tokens, self._touched)
            self[node] = room
        else:
            room.resize(capacity, block_size, host_tokens)
        self._touched.add(node)
        self._measure()

    def leave(self, node: NodeId) -> None:
        """A node is gone."""
        del self[node]
        self._touched.add(node)
        self._measure()

    def by_residual(self) -> Iterator[tuple[int, Room]]:
        """Every node with the tokens that may still be given there, most first; of equal ones that which joined first.

        Nothing may be held or released while this runs.
        """
        self._refresh()
        for negative, _, node in self._order:
            yield -negative, self[node]

    def idle(self) -> list[Room]:
        """The nodes on which nothing is held."""
        self._refresh()
        return [self[node] for node in self._idle]

    @property
    def resting(self) -> int:
        """How many nodes are at rest."""
        self._refresh()
        return len(self._resting)

    def at_rest(self, limit: int) -> list[Room]:
        """At most so many of the nodes on which room is held and nothing runs; those given come last the next time."""
        self._refresh()
        chosen = list(islice(self._resting, limit))
        for node in chosen:
            self._resting[node] = self._resting.pop(node)
        return [self[node] for node in chosen]

    def nothing_runs(self) -> bool:
        """Whether on no node anything runs."""
        return not any(room.runs for room in self.values())

    def most_residual(self) -> int:
        """The most tokens that may still be given on one node."""
        self._refresh()
        return -self._order[0][0] if self._order else 0

    def _measure(self) -> None:
        self.largest = max((room.capacity for room in self.values()), default=0)
        self.smallest = min((room.capacity for room in self.values()), default=0)
        self.total = sum(room.capacity for room in self.values())

    def _refresh(self) -> None:
        for node in self._touched:
            entry = self._entry.pop(node, None)
            if entry is not None:
                del self._order[bisect_left(self._order, entry)]
            self._claiming.discard(node)
            self._idle.pop(node, None)
            if node not in self or not self[node].at_rest:
                self._resting.pop(node, None)
            room = self.get(node)
            if room is None:
                continue
            if entry is None:
                self._joined += 1
            entry = (-room.residual(self._mark), self._joined if entry is None else entry[1], node)
            self._entry[node] = entry
            insort(self._order, entry)
            if room.claims:
                self._claiming.add(node)
            if room.idle:
                self._idle[node] = None
            if room.at_rest:
                self._resting[node] = None
        self._touched.clear()
