# SPDX-License-Identifier: Apache-2.0
"""Which workers live and what they hold: discovery and model cards, turned into nodes that join and leave."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kv_events.types import NodeId
from tao_dynamo.errors import ConfigError
from tao_dynamo.shell.logs import Events

log = Events("tao.workers")

POLL_S = 0.2
FIRST_SUSPICION_S = 3.0
LAST_SUSPICION_S = 15.0


@dataclass(frozen=True, slots=True)
class Card:
    """What a worker says of itself. Capacities are in tokens and per data-parallel rank; None: not told."""

    worker_id: int
    block_size: int | None
    capacity_tokens: int | None
    host_tokens: int
    first_rank: int
    ranks: int
    publishes_events: bool
    role: str
    model_name: str
    model_path: str
    tool_call_parser: str | None
    reasoning_parser: str | None
    adapter: bool = False
    """Whether it tells of a LoRA adapter rather than of the worker's own model."""

    @property
    def nodes(self) -> list[NodeId]:
        """One node per rank."""
        return [NodeId(self.worker_id, rank) for rank in range(self.first_rank, self.first_rank + self.ranks)]


def read_card(worker_id: int, text: str, host_tokens: Callable[[Mapping[str, Any]], int | None]) -> Card | None:
    """Read one of Dynamo's model cards; None if it is none.

    Args:
        worker_id: whose it is.
        text: the card's JSON.
        host_tokens: reads the offloading capacity out of the card's runtime data, in tokens.
    """
    try:
        card = json.loads(text)
    except ValueError:
        return None
    runtime = card.get("runtime_config") or {} if isinstance(card, dict) else None
    if not isinstance(runtime, dict):
        return None
    size, blocks = _positive(card.get("kv_cache_block_size")), _positive(runtime.get("total_kv_blocks"))
    first = runtime.get("data_parallel_start_rank")
    return Card(
        worker_id=worker_id,
        block_size=size,
        capacity_tokens=size * blocks if size and blocks else None,
        host_tokens=host_tokens(runtime.get("runtime_data") or {}) or 0,
        first_rank=first if isinstance(first, int) and first >= 0 else 0,
        ranks=_positive(runtime.get("data_parallel_size")) or 1,
        publishes_events=runtime.get("kv_event_publishing_enabled") is not False,
        role=str(card.get("worker_type") or "aggregated").lower(),
        model_name=str(card.get("display_name") or ""),
        model_path=str(card.get("source_path") or ""),
        tool_call_parser=runtime.get("tool_call_parser"),
        reasoning_parser=runtime.get("reasoning_parser"),
        adapter=card.get("lora") is not None,
    )


def _positive(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) and value > 0 else None


class NodeListener(Protocol):
    """Who wants to hear of nodes."""

    def joined(self, node: NodeId, card: Card, capacity_tokens: int, block_size: int) -> None:
        """A node is there, or tells another capacity than before."""

    def left(self, node: NodeId) -> None:
        """A node is gone."""


class Discovery(Protocol):
    """Where the live set and the cards come from; in the router Dynamo's client and model-card watch."""

    def instance_ids(self) -> Iterable[int]:
        """Ids of the live workers."""

    def cards(self) -> Mapping[int, str]:
        """JSON of each worker's card."""


class Workers:
    """The live set, as nodes.

    Args:
        discovery: where it comes from.
        listener: who hears of it.
        block_size: what ``--router-block-size`` says, None for each worker's own.
        node_capacity: tokens of a node whose worker does not tell.
        host_tokens: see :func:`read_card`.
        clock: seconds.
    """

    def __init__(
        self,
        discovery: Discovery,
        listener: NodeListener,
        *,
        clock: Callable[[], float],
        block_size: int | None = None,
        node_capacity: int | None = None,
        host_tokens: Callable[[Mapping[str, Any]], int | None] = lambda _data: None,
    ) -> None:
        self.nodes: dict[NodeId, Card] = {}
        self.largest_node: float = math.inf
        """Tokens of the largest node; without any, as many as you like."""
        self.model: str | None = None
        """What the workers serve, once that is settled: one router is for one model."""
        self.refused: dict[int, str] = {}
        self.faults = 0
        self._discovery = discovery
        self._listener = listener
        self._block_size = block_size
        self._node_capacity = node_capacity
        self._host_tokens = host_tokens
        self._clock = clock
        self._read: dict[int, tuple[str, Card | None]] = {}
        self._suspects: dict[int, tuple[float, float]] = {}

    async def run(self) -> None:
        """Follow the live set for ever."""
        while True:
            try:
                self.sync()
            except Exception:
                self.faults += 1
                log.exception("discovery_failed")
            await asyncio.sleep(POLL_S)

    def sync(self) -> None:
        """Look once; tell the listener of what changed."""
        live = set(self._discovery.instance_ids())
        cards = self._discovery.cards()
        now = self._clock()
        found: dict[NodeId, Card] = {}
        for worker_id in live:
            if self._suspects.get(worker_id, (0.0, 0.0))[0] > now:
                continue
            card = self._card(worker_id, cards.get(worker_id))
            if card is not None and self._usable(card):
                found.update(dict.fromkeys(card.nodes, card))
        for node in [node for node in self.nodes if node not in found]:
            del self.nodes[node]
            self._listener.left(node)
            log.info("node_left", node=node)
        for node, card in found.items():
            if self.nodes.get(node) != card:
                self.nodes[node] = card
                capacity, size = self._capacity(card), card.block_size or self._block_size or 1
                self._listener.joined(node, card, capacity, size)
                log.info("node_joined", node=node, tokens=capacity, block_size=size, host_tokens=card.host_tokens)
        self.largest_node = max(map(self._capacity, self.nodes.values()), default=math.inf)
        for gone in [worker_id for worker_id in self._read if worker_id not in live]:
            del self._read[gone]
            self._suspects.pop(gone, None)
            self.refused.pop(gone, None)

    def known_cards(self) -> list[Card]:
        """The cards of all live workers, the refused ones' too."""
        return [card for _, card in self._read.values() if card is not None]

    def suspect(self, worker_id: int) -> None:
        """A turn could not reach the worker: leave it out for a while, longer each time.

        Turns that were on their way when it was left out, and fail as well, say nothing new.
        """
        if all(node.worker_id != worker_id for node in self.nodes):
            return
        _, last = self._suspects.get(worker_id, (0.0, FIRST_SUSPICION_S / 2))
        pause = min(2 * last, LAST_SUSPICION_S)
        self._suspects[worker_id] = (self._clock() + pause, pause)
        log.warning("worker_unreachable", worker=worker_id, left_out_s=pause)
        self.sync()

    def trust(self, worker_id: int) -> None:
        """A turn reached the worker."""
        if worker_id in self._suspects:
            del self._suspects[worker_id]

    def _card(self, worker_id: int, text: str | None) -> Card | None:
        if text is None:
            return None
        known = self._read.get(worker_id)
        if known is None or known[0] != text:
            known = self._read[worker_id] = (text, read_card(worker_id, text, self._host_tokens))
        return known[1]

    def _capacity(self, card: Card) -> int:
        return card.capacity_tokens or self._node_capacity or 0

    def _usable(self, card: Card) -> bool:
        reason = ""
        if self._block_size is not None and card.block_size is not None and card.block_size != self._block_size:
            reason = str(mismatch(self._block_size, card.block_size))
        elif card.role != "aggregated":
            reason = f"it is a {card.role} worker; TAO serves graphs without disaggregation only"
        elif self.model is not None and card.model_name != self.model and not card.adapter:
            reason = f"it serves {card.model_name}; this router is for {self.model}: each needs a router of its own"
        elif not self._capacity(card):
            reason = "it does not tell its KV capacity; set --tao-node-capacity"
        if reason and self.refused.get(card.worker_id) != reason:
            self.refused[card.worker_id] = reason
            log.warning("worker_refused", worker=card.worker_id, reason=reason)
        if not reason:
            self.refused.pop(card.worker_id, None)
        return not reason


def mismatch(ours: int, theirs: int) -> ConfigError:
    """The router and a worker have different block sizes (case C7)."""
    return ConfigError("--router-block-size", ours, f"{theirs}, the worker's block size, or no such flag")
