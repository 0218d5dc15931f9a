# SPDX-License-Identifier: Apache-2.0
"""The order of events, per publisher and per node: gaps, restarts, and what waits while a node is re-synchronised.

Pure: it never reads a clock or does I/O. Every call returns what the caller has to do. A node is *lost* from the
moment that something of it may have been missed until a dump of its state has been taken in. While it is lost its
events are held back, and however much more goes wrong meanwhile, one ``Resync`` is asked for, not one per event. Only
what goes wrong *after* a dump was asked for makes a second one necessary.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from kv_events.types import NodeId
from kv_events.wire import Envelope, KvBatch, KvEvent, Removed, Stored

_MAX_PUBLISHERS: Final = 16_384
_RETIRED: Final = 4
_ODD_IDS: Final = 3
_OLD_RUN: Final = 3


@dataclass(frozen=True)
class Apply:
    """Give this event to the index."""

    event: KvEvent


@dataclass(frozen=True)
class Restarted:
    """The engine of this node began anew: forget its blocks before anything else is done."""

    node: NodeId


@dataclass(frozen=True)
class Resync:
    """The node is stale from now on; ask for a dump, once, and hand it to ``dumped``."""

    node: NodeId
    reason: str


@dataclass(frozen=True)
class Healed:
    """The node needs no dump any more: it restarted, and nothing was missed since."""

    node: NodeId


Action = Apply | Restarted | Resync | Healed


@dataclass(frozen=True)
class Recovery:
    """What to do with a node's part of a dump.

    ``usable``: replace the node's blocks by the dump and then apply ``held``. ``again``: the node stays stale and
    another dump is needed.
    """

    usable: bool
    held: tuple[KvEvent, ...]
    again: Resync | None


@dataclass
class StreamCounters:
    """Events, unless said otherwise."""

    gaps: int = 0
    """Times that a node was lost."""
    restarts: int = 0
    duplicates: int = 0
    late: int = 0
    """Messages of the past, dropped."""
    held: int = 0
    held_dropped: int = 0
    refused: int = 0
    """Of nodes beyond ``max_nodes``."""


@dataclass
class _Lost:
    held: list[KvEvent] = field(default_factory=list)
    weight: int = 0
    dumping: bool = False
    again: str = ""


@dataclass
class _Node:
    publisher: int | None
    retired: list[int] = field(default_factory=list)
    seen: int | None = None
    covered: int = -1
    warm: bool = False
    odd_ids: int = 0
    lost: _Lost | None = None


@dataclass
class _Publisher:
    sequence: int
    published_at: int
    old_run: int = 0
    old_sequence: int = -1
    nodes: set[NodeId] = field(default_factory=set)


class Sequencer:
    """Tells new from old, complete from broken.

    Args:
        max_held: blocks per node held back during a resync; beyond it they are dropped and another dump is needed.
        max_nodes: nodes followed; events of further ones are refused and counted.
    """

    def __init__(self, *, max_held: int = 262_144, max_nodes: int = 4096) -> None:
        self.counters = StreamCounters()
        self._max_held = max_held
        self._max_nodes = max_nodes
        self._nodes: dict[NodeId, _Node] = {}
        self._publishers: OrderedDict[int, _Publisher] = OrderedDict()
        self._lost_track = ""

    def receive(self, envelope: Envelope, batch: KvBatch) -> list[Action]:
        """Take in one message; return what to do, in order."""
        todo: list[Action] = []
        publisher = self._publishers.get(envelope.publisher_id)
        contiguous = True
        if publisher is None:
            publisher = self._publishers[envelope.publisher_id] = _Publisher(envelope.sequence, envelope.published_at)
            while len(self._publishers) > _MAX_PUBLISHERS:
                self._publishers.popitem(last=False)
        else:
            self._publishers.move_to_end(envelope.publisher_id)
            step = envelope.sequence - publisher.sequence
            contiguous = step == 1
            if step <= 0:
                if not _begins_anew(publisher, envelope, batch):
                    self.counters.late += 1
                    return todo
                for node in publisher.nodes:
                    self._restart(node, todo)
            elif not contiguous or batch.malformed:
                for node in publisher.nodes - {event.node for event in batch.events}:
                    self._lose(node, "gap", todo)
            publisher.sequence = envelope.sequence
            publisher.published_at = envelope.published_at
            publisher.old_run = 0
        for event in batch.events:
            self._one(envelope.publisher_id, publisher, event, contiguous, todo)
        return todo

    def lose_track(self, reason: str, nodes: Iterable[NodeId] | None = None, *, unseen: bool = False) -> list[Action]:
        """Mark nodes (None: all) as possibly incomplete: the bus was away, or messages were dropped.

        ``unseen`` includes those whose first event is still to come, and which then are incomplete though it has.
        """
        todo: list[Action] = []
        if unseen:
            self._lost_track = reason
        for node in list(self._nodes) if nodes is None else nodes:
            if node in self._nodes:
                self._lose(node, reason, todo)
        return todo

    def expect(self, node: NodeId) -> list[Action]:
        """Name a node before its first event: what it holds already is to be fetched.

        Whoever calls this is subscribed, or will call ``lose_track`` once he is: then the first event that comes
        after the dump goes on from it, whatever its id.
        """
        todo: list[Action] = []
        if node not in self._nodes and len(self._nodes) < self._max_nodes:
            self._nodes[node] = _Node(None)
            self._lose(node, "not heard of yet", todo)
        return todo

    def heard(self, node: NodeId) -> bool:
        """Whether any event of the node has come."""
        known = self._nodes.get(node)
        return known is not None and known.seen is not None

    def lost(self) -> list[NodeId]:
        """Return the nodes that wait for a dump."""
        return [node for node, known in self._nodes.items() if known.lost is not None]

    def dumping(self) -> list[NodeId]:
        """Note that a dump is being asked for now; return the nodes that it is for."""
        nodes = []
        self._lost_track = ""
        for node, known in self._nodes.items():
            if known.lost is not None:
                known.lost.dumping = True
                known.lost.again = ""
                nodes.append(node)
        return nodes

    def dumped(self, node: NodeId, as_of: int | None = None) -> Recovery | None:
        """Note that the dump asked for is here; None when the node has no use for it any more.

        Args:
            node: one of those that ``dumping`` returned.
            as_of: id of the node's last event that the dump contains, where known.
        """
        known = self._nodes.get(node)
        if known is None or known.lost is None or not known.lost.dumping:
            return None
        lost = known.lost
        held = lost.held
        if as_of is not None:
            held = [event for event in held if event.event_id > as_of]
            oldest = held[0].event_id if held else (as_of if known.seen is None else known.seen) + 1
            if oldest > as_of + 1:
                lost.dumping = False
                return Recovery(False, (), Resync(node, "the dump is older than the gap"))
            known.covered = as_of
        again = Resync(node, lost.again) if lost.again else None
        known.lost = _Lost() if again else None
        return Recovery(True, tuple(held), again)

    def failed(self, node: NodeId) -> None:
        """Note that the dump asked for did not come; the node still waits for one."""
        known = self._nodes.get(node)
        if known is not None and known.lost is not None:
            known.lost.dumping = False

    def doubt(self, node: NodeId, held: Iterable[KvEvent], reason: str) -> Resync:
        """Ask for another dump of a node whose last one cannot have been complete; ``held`` is to follow that too."""
        lost = _Lost()
        for event in held:
            self._hold(lost, event)
        self._nodes[node].lost = lost
        self.counters.gaps += 1
        return Resync(node, reason)

    def cursor(self, node: NodeId) -> int | None:
        """Return the id of the last event that is taken in, None before the first."""
        known = self._nodes.get(node)
        if known is None or known.seen is None:
            return None
        if known.lost is not None and known.lost.held:
            return known.lost.held[0].event_id - 1
        return max(known.seen, known.covered)

    def forget(self, node: NodeId) -> None:
        """Forget a node that has left; a dump that is on its way for it will be turned away."""
        known = self._nodes.pop(node, None)
        if known is not None and known.publisher is not None:
            publisher = self._publishers.get(known.publisher)
            if publisher is not None:
                publisher.nodes.discard(node)

    def forget_worker(self, worker_id: int) -> None:
        """Forget every rank of a worker."""
        for node in [node for node in self._nodes if node.worker_id == worker_id]:
            self.forget(node)

    def _one(
        self, publisher_id: int, publisher: _Publisher, event: KvEvent, contiguous: bool, todo: list[Action]
    ) -> None:
        node = event.node
        known = self._nodes.get(node)
        if known is None:
            if len(self._nodes) >= self._max_nodes:
                self.counters.refused += 1
                return
            known = self._nodes[node] = _Node(publisher_id)
            if self._lost_track:
                # Of this node too something may be missing, though its first event is there.
                known.seen = event.event_id - 1
                self._lose(node, self._lost_track, todo)
        elif known.publisher is None:
            known.publisher = publisher_id
            known.warm = True
        elif known.publisher != publisher_id:
            if publisher_id in known.retired:
                self.counters.late += 1
                return
            known.retired = [*known.retired[1 - _RETIRED :], known.publisher]
            known.publisher = publisher_id
            self._restart(node, todo)
        publisher.nodes.add(node)
        if not self._in_order(node, known, event, contiguous, todo):
            return
        known.seen = event.event_id
        if event.event_id <= known.covered:
            return
        if known.lost is None:
            todo.append(Apply(event))
        else:
            self._hold(known.lost, event)

    def _in_order(self, node: NodeId, known: _Node, event: KvEvent, contiguous: bool, todo: list[Action]) -> bool:
        """Judge an event's id, and do what follows from it; return whether the event is to be taken in."""
        at = event.event_id
        if known.seen is None:
            warm, known.warm = known.warm, False
            if at > 1 and not warm:
                self._lose(node, "first seen in mid-stream", todo)
            elif at <= 1 and known.lost is not None:
                known.lost = None
                todo.append(Healed(node))
            elif at <= 1 and warm:
                todo.append(Restarted(node))
            return True
        if at == known.seen:
            self.counters.duplicates += 1
            return False
        if at > known.seen:
            if at > max(known.seen, known.covered) + 1:
                # Ids that jump though no message is missing: after a few times they are this publisher's way.
                known.odd_ids += contiguous
                if not contiguous or known.odd_ids <= _ODD_IDS:
                    self._lose(node, "gap", todo)
            return True
        self._restart(node, todo)
        return self._in_order(node, known, event, contiguous, todo)

    def _hold(self, lost: _Lost, event: KvEvent) -> None:
        self.counters.held += 1
        lost.held.append(event)
        data = event.data
        if isinstance(data, (Stored, Removed)):
            lost.weight += len(data.block_hashes)
        lost.weight += 1
        if lost.weight > self._max_held:
            self.counters.held_dropped += len(lost.held)
            lost.held.clear()
            lost.weight = 0
            if lost.dumping:
                lost.again = "too much was held back"

    def _lose(self, node: NodeId, reason: str, todo: list[Action]) -> None:
        known = self._nodes[node]
        if known.lost is None:
            self.counters.gaps += 1
            known.lost = _Lost()
            todo.append(Resync(node, reason))
        elif known.lost.dumping and not known.lost.again:
            known.lost.again = reason

    def _restart(self, node: NodeId, todo: list[Action]) -> None:
        known = self._nodes[node]
        if known.seen is None:
            return
        self.counters.restarts += 1
        known.seen = None
        known.covered = -1
        if known.lost is not None:
            known.lost.held.clear()
            known.lost.weight = 0
            if known.lost.dumping:
                known.lost.again = "restarted during the dump"
        todo.append(Restarted(node))


def _begins_anew(publisher: _Publisher, envelope: Envelope, batch: KvBatch) -> bool:
    """Whether a message with an old number is the first of a new life, rather than a late or doubled one."""
    if envelope.sequence == publisher.sequence and envelope.published_at == publisher.published_at:
        return False
    if envelope.published_at > publisher.published_at:
        return True
    first = batch.events[0].event_id if batch.events else 0
    if envelope.sequence == 0 and first == 1 and envelope.published_at >= publisher.published_at:
        return True
    # A publisher whose clock went back too: several old numbers in a row, each one more than the last.
    publisher.old_run = publisher.old_run + 1 if envelope.sequence == publisher.old_sequence + 1 else 1
    publisher.old_sequence = envelope.sequence
    return publisher.old_run >= _OLD_RUN
