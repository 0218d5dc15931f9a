# SPDX-License-Identifier: Apache-2.0
"""What Dynamo's file discovery says of the workers: how they publish, tokens per block, blocks. Read only."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kv_events import wire
from kv_events.types import NodeId
from tao_dynamo.errors import UsageError


@dataclass(frozen=True)
class Card:
    """One node as its worker announced it; None where it did not say."""

    node: NodeId
    block_size: int | None
    total_blocks: int | None
    publishes: bool


@dataclass
class Discovery:
    """The nodes that hold KV blocks, and how many channels of each topic go over which transport."""

    cards: dict[NodeId, Card] = field(default_factory=dict)
    channels: dict[str, Counter[str]] = field(default_factory=dict)

    def transports(self, topic: str) -> Counter[str]:
        """Return the transports of a topic: ``nats``, ``zmq``."""
        return self.channels.get(topic, Counter())


def read(folder: Path) -> Discovery:
    """Read a discovery folder (``DYN_FILE_KV``); entries that cannot be read, or are just going, are left out.

    Raises:
        UsageError: it is no folder.
    """
    if not folder.is_dir():
        raise UsageError("--discovery", str(folder), "the folder that the workers have as DYN_FILE_KV")
    found = Discovery()
    served = set()
    cards = []
    for path in sorted(folder.rglob("*")):
        try:
            entry = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
        except (OSError, ValueError):
            continue
        if not isinstance(entry, dict):
            continue
        if entry.get("type") == "EventChannel":
            transport = entry.get("transport")
            kind = str(transport.get("kind") if isinstance(transport, dict) else transport).lower()
            found.channels.setdefault(str(entry.get("topic")), Counter())[kind] += 1
        elif entry.get("type") == "EventSource" and entry.get("topic") == wire.KV_EVENTS:
            served.add(_path(entry.get("metadata"), "worker", "worker_id"))
        elif entry.get("type") == "Model":
            cards.append(entry)
    for entry in cards:
        for card in _cards(entry):
            # A router registers a model too, but has no blocks and is no source of events.
            if card.total_blocks or card.node.worker_id in served:
                found.cards[card.node] = card
    return found


def _cards(entry: dict[str, Any]) -> list[Card]:
    worker, card = entry.get("instance_id"), entry.get("card_json")
    config = card.get("runtime_config") if isinstance(card, dict) else None
    if not isinstance(worker, int) or not isinstance(card, dict) or not isinstance(config, dict):
        return []
    first, ranks = _whole(config.get("data_parallel_start_rank")) or 0, _whole(config.get("data_parallel_size")) or 1
    return [
        Card(
            NodeId(worker, rank),
            _whole(card.get("kv_cache_block_size")),
            _whole(config.get("total_kv_blocks")),
            bool(config.get("kv_event_publishing_enabled", True)),
        )
        for rank in range(first, first + min(ranks, 4096))
    ]


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _path(value: object, *keys: str) -> object:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
