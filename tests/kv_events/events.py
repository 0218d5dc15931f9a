# SPDX-License-Identifier: Apache-2.0
"""Builders of events and messages, and fakes of the seams, for the tests of this room."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from kv_events.chain import sequence_hashes
from kv_events.resync import Dump
from kv_events.types import NodeId
from kv_events.wire import DEVICE, Cleared, Envelope, KvBatch, KvEvent, Removed, Stored

A = NodeId(7, 0)
B = NodeId(7, 1)
C = NodeId(9, 0)


def tokens_hash(name: int) -> int:
    """The tokens hash of block number ``name``."""
    return 1_000_003 * name + 17


def chain(names: Iterable[int]) -> list[int]:
    """The sequence hashes of blocks that follow each other."""
    return sequence_hashes([tokens_hash(name) for name in names])


def stored(
    names: Iterable[int], parent: int | None = None, *, node: NodeId = A, at: int = 1, tier: str = DEVICE
) -> KvEvent:
    """Stored event of an engine with opaque names: block number n is called n."""
    named = list(names)
    return KvEvent(node, at, Stored(named, [tokens_hash(name) for name in named], parent), tier)


def removed(names: Iterable[int], *, node: NodeId = A, at: int = 1, tier: str = DEVICE) -> KvEvent:
    """Removed event of the same engine."""
    return KvEvent(node, at, Removed(list(names)), tier)


def cleared(*, node: NodeId = A, at: int = 1, tier: str = DEVICE) -> KvEvent:
    """Cleared event."""
    return KvEvent(node, at, Cleared(), tier)


def envelope(sequence: int, *, publisher: int = 1, published_at: int = 0) -> Envelope:
    """An envelope whose payload nobody looks at."""
    return Envelope(publisher, sequence, b"", published_at, "kv-events")


def batch(*events: KvEvent) -> KvBatch:
    """A decoded payload."""
    return KvBatch(list(events))


def message(events: Sequence[KvEvent], sequence: int, *, publisher: int = 1, published_at: int = 0) -> bytes:
    """The bytes that a worker would publish."""
    payload = msgspec.msgpack.encode([_wired(event) for event in events])
    return msgspec.msgpack.encode(
        {
            "publisher_id": publisher,
            "sequence": sequence,
            "published_at": published_at,
            "topic": "kv-events",
            "payload": payload,
        }
    )


def _wired(event: KvEvent) -> dict[str, Any]:
    data = event.data
    wired: Any
    if isinstance(data, Stored):
        blocks = [
            {"block_hash": name, "tokens_hash": tokens, "mm_extra_info": None}
            for name, tokens in zip(data.block_hashes, data.tokens_hashes, strict=True)
        ]
        wired = {"stored": {"parent_hash": data.parent_hash, "start_position": None, "blocks": blocks}}
    elif isinstance(data, Removed):
        wired = {"removed": {"block_hashes": data.block_hashes}}
    else:
        wired = "cleared"
    return {
        "worker_id": event.node.worker_id,
        "storage_tier": event.tier,
        "residency_domain": "worker",
        "event": {"event_id": event.event_id, "data": wired, "dp_rank": event.node.dp_rank},
    }


class FakeSource:
    """A resync source that answers with what the test puts into it, when the test lets it."""

    def __init__(self, *events: KvEvent, as_of: dict[NodeId, int] | None = None) -> None:
        self.events = list(events)
        self.as_of = as_of or {}
        self.asked = 0
        self.errors: list[Exception] = []
        self.open = asyncio.Event()
        self.open.set()

    async def dump(self) -> Dump:
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)
        events, as_of = list(self.events), dict(self.as_of)
        await self.open.wait()
        return Dump(events, as_of)


class Listener:
    """Writes down what it hears of nodes."""

    def __init__(self) -> None:
        self.heard: list[tuple[NodeId, str]] = []

    def on_node(self, node: NodeId, change: str, reason: str) -> None:
        assert reason
        self.heard.append((node, change))
