# SPDX-License-Identifier: Apache-2.0
"""What the bus says of each node, for people: blocks, load, rates, lag, gaps. Pure: time is an argument.

Nothing here asks anybody for state, so of a node that was there before us we know what came since: its view is *late*
until its engine restarts or clears its cache. A hole in a publisher's numbers makes the views of its nodes *broken*
in the same way.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, Literal

from kv_events import wire
from kv_events.recording import Message
from kv_events.types import NodeId
from kv_events.wire import DEVICE, Cleared, Envelope, ForwardPass, KvEvent, KvMetrics, Removed, Stored
from tao_dynamo.errors import WireError

View = Literal["whole", "late", "broken"]

_MAX_NODES: Final = 4096
_MAX_PUBLISHERS: Final = 16_384
_MAX_NAMES: Final = 4_000_000
_MAX_ROOTS: Final = 1000
RATE_OVER_S: Final = 5.0


@dataclass
class NodeMeter:
    """One node. Counts are blocks, unless said otherwise; ``lag_s`` is the age of its last message by two clocks."""

    node: NodeId
    stored: int = 0
    removed: int = 0
    events: int = 0
    messages: int = 0
    gaps: int = 0
    healed: int = 0
    """Times that a view which was not whole became so."""
    restarts: int = 0
    used_blocks: int | None = None
    """In use by requests now, as the engine says."""
    running: int | None = None
    queued: int | None = None
    prefilled: int = 0
    """Tokens computed, so far as passes told."""
    lag_s: float = 0.0
    max_lag_s: float = 0.0
    heard: float = 0.0
    view: View = "whole"
    held: dict[str, set[int]] = field(default_factory=dict)
    roots: set[int] = field(default_factory=set)
    """Tokens hashes of first blocks: what prompts begin with."""
    met: int = 0
    """Stored events that hold a block that was looked out for."""
    marks: deque[tuple[float, int, int]] = field(default_factory=deque)

    @property
    def blocks(self) -> int:
        """Blocks on the device that were announced since we listen, and not removed."""
        return len(self.held.get(DEVICE, ()))

    @property
    def lower(self) -> int:
        """The same in all tiers below."""
        return sum(len(names) for tier, names in self.held.items() if tier != DEVICE)

    def rates(self) -> tuple[float, float]:
        """Return stored and removed blocks per second of the last seconds."""
        if len(self.marks) < 2:
            return 0.0, 0.0
        (t0, stored0, removed0), (t1, stored1, removed1) = self.marks[0], self.marks[-1]
        return (stored1 - stored0) / (t1 - t0), (removed1 - removed0) / (t1 - t0)

    def mark(self, t: float) -> None:
        """Note where the counters stand."""
        if self.marks and t <= self.marks[-1][0]:
            return
        self.marks.append((t, self.stored, self.removed))
        while len(self.marks) > 2 and self.marks[1][0] <= t - RATE_OVER_S:
            self.marks.popleft()


@dataclass
class _Publisher:
    sequence: int
    published_at: int
    nodes: set[NodeId] = field(default_factory=set)


class Meters:
    """Takes messages of the three topics of workers; tool events are ``kv_events.inspection.toolboard``'s.

    Args:
        expected: tokens hashes of blocks to look out for.
    """

    def __init__(self, expected: AbstractSet[int] | None = None) -> None:
        self.nodes: dict[NodeId, NodeMeter] = {}
        self.messages: Counter[str] = Counter()
        self.unreadable = 0
        self.unknown = 0
        self.repeats = 0
        self.gaps = 0
        self.missing = 0
        """Messages that the numbers say were published and that did not come."""
        self.refused = 0
        """Events of nodes over the bound, and blocks over theirs."""
        self.left_out = 0
        """Messages whose payload was not looked at."""
        self._expected = expected
        self._marked = 0.0
        self._names = 0
        self._publishers: dict[int, _Publisher] = {}

    def take(self, message: Message, wall_s: float, *, look: bool = True) -> None:
        """Take a message in.

        Args:
            message: the message.
            wall_s: the Unix time at which it came, for the lag.
            look: False: only count it and keep track of its publisher's numbers.
        """
        topic = message.topic
        self.messages[topic] += 1
        try:
            envelope = wire.decode_envelope(message.data)
            publisher = self._follow(envelope)
            if publisher is None:
                return
            if not look:
                self.left_out += 1
                return
            lag = max(0.0, wall_s - envelope.published_at / 1e3) if envelope.published_at else 0.0
            if topic == wire.KV_EVENTS:
                batch = wire.decode_kv_events(envelope.payload)
                self.unknown += batch.unknown
                self.unreadable += batch.malformed
                for event in batch.events:
                    self._event(event, publisher, envelope)
                for node in {event.node for event in batch.events}:
                    self._heard(node, message.t, lag)
            elif topic == wire.KV_METRICS:
                self._load(wire.decode_kv_metrics(envelope.payload), message.t, lag, envelope)
            elif topic == wire.FORWARD_METRICS:
                self._pass(wire.decode_forward_pass(envelope.payload), message.t, lag, envelope)
        except WireError:
            self.unreadable += 1

    def mark(self, t: float) -> None:
        """Note where all counters stand, for the rates; about once a second."""
        self._marked = t
        for meter in self.nodes.values():
            meter.mark(t)

    def _follow(self, envelope: Envelope) -> _Publisher | None:
        """Keep track of a publisher's numbers; None for a message that was here before."""
        publisher = self._publishers.get(envelope.publisher_id)
        if publisher is None:
            publisher = self._publishers[envelope.publisher_id] = _Publisher(envelope.sequence, envelope.published_at)
            if len(self._publishers) > _MAX_PUBLISHERS:
                del self._publishers[next(iter(self._publishers))]
            return publisher
        step = envelope.sequence - publisher.sequence
        if step <= 0 and envelope.published_at <= publisher.published_at:
            self.repeats += 1
            return None
        if step > 1:
            self.gaps += 1
            self.missing += step - 1
            for node in publisher.nodes:
                self.nodes[node].gaps += 1
                self.nodes[node].view = "broken"
        elif step <= 0:
            for node in publisher.nodes:
                self._restart(self.nodes[node])
        publisher.sequence, publisher.published_at = envelope.sequence, envelope.published_at
        return publisher

    def _meter(self, node: NodeId) -> NodeMeter | None:
        meter = self.nodes.get(node)
        if meter is None:
            if len(self.nodes) >= _MAX_NODES:
                self.refused += 1
                return None
            meter = self.nodes[node] = NodeMeter(node)
            meter.mark(self._marked)
        return meter

    def _seen(self, node: NodeId, t: float, lag: float, envelope: Envelope) -> NodeMeter | None:
        """Hear of a node by its load. One that told its load before us may have stored blocks before us too."""
        if node not in self.nodes and envelope.sequence > 0 and (meter := self._meter(node)) is not None:
            meter.view = "late"
        return self._heard(node, t, lag)

    def _heard(self, node: NodeId, t: float, lag: float) -> NodeMeter | None:
        meter = self._meter(node)
        if meter is not None:
            meter.messages += 1
            meter.heard = t
            meter.lag_s = lag
            meter.max_lag_s = max(meter.max_lag_s, lag)
        return meter

    def _load(self, metrics: KvMetrics, t: float, lag: float, envelope: Envelope) -> None:
        meter = self._seen(metrics.node, t, lag, envelope)
        if meter is not None and metrics.kv_used_blocks is not None:
            meter.used_blocks = metrics.kv_used_blocks

    def _pass(self, metrics: ForwardPass, t: float, lag: float, envelope: Envelope) -> None:
        meter = self._seen(metrics.node, t, lag, envelope)
        if meter is not None:
            now, waiting = metrics.scheduled_requests, metrics.queued_requests
            meter.running = now.num_prefill_requests + now.num_decode_requests
            meter.queued = waiting.num_prefill_requests + waiting.num_decode_requests
            meter.prefilled += now.sum_prefill_tokens

    def _event(self, event: KvEvent, publisher: _Publisher, envelope: Envelope) -> None:
        meter = self._meter(event.node)
        if meter is None:
            return
        if event.node not in publisher.nodes:
            others = [other for other in self._publishers.values() if event.node in other.nodes]
            for other in others:
                other.nodes.discard(event.node)
            publisher.nodes.add(event.node)
            if others:
                self._restart(meter)
            meter.view = "late" if event.event_id > 1 or envelope.sequence > 0 else "whole"
        meter.events += 1
        data = event.data
        if isinstance(data, Stored):
            self._store(meter, event.tier, data)
        elif isinstance(data, Removed):
            held = meter.held.get(event.tier, set())
            before = len(held)
            held.difference_update(data.block_hashes)
            self._names -= before - len(held)
            meter.removed += len(data.block_hashes)
        elif isinstance(data, Cleared):
            self._names -= len(meter.held.pop(event.tier, ()))
            if event.tier == DEVICE:
                self._whole(meter)

    def _store(self, meter: NodeMeter, tier: str, data: Stored) -> None:
        names = data.block_hashes
        meter.stored += len(names)
        if self._expected:
            meter.met += not self._expected.isdisjoint(data.tokens_hashes)
        if data.parent_hash is None and not data.start_position and names and len(meter.roots) < _MAX_ROOTS:
            meter.roots.add(data.tokens_hashes[0])
        if self._names + len(names) > _MAX_NAMES:
            self.refused += len(names)
            meter.view = "broken"
            return
        held = meter.held.setdefault(tier, set())
        before = len(held)
        held.update(names)
        self._names += len(held) - before

    def _restart(self, meter: NodeMeter) -> None:
        meter.restarts += 1
        self._names -= sum(map(len, meter.held.values()))
        meter.held.clear()
        meter.roots.clear()
        self._whole(meter)

    def _whole(self, meter: NodeMeter) -> None:
        meter.healed += meter.view != "whole"
        meter.view = "whole"
