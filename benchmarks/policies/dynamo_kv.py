# SPDX-License-Identifier: Apache-2.0
"""Dynamo's KV router.

Rule: for each node, cost = w x blocks to prefill (the prompt's not yet cached there, and those of requests that
are still being prefilled) + blocks in use by its live requests, this one included; the node of least cost gets the
turn, at temperature 0.
Source: Dynamo 1.6.1, ``lib/kv-router`` default selector; its guide "KV cache routing".
Parameters: overlap weight w = 1.0, temperature 0, active blocks tracked, block size 16.
Good when: everything fits. It holds nobody back, so beyond that sessions evict one another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.policies.base import Action, Plain, Request, Send, Site

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(slots=True)
class _Active:
    node: int
    to_prefill: int
    blocks: int


class ActiveBlocks:
    """The router's own book of live requests: blocks to prefill and blocks in use, per node."""

    def __init__(self, nodes: int, block_size: int) -> None:
        self.prefill = [0] * nodes
        self.used = [0] * nodes
        self._block_size = block_size
        self._live: dict[str, _Active] = {}

    def add(self, request: Request, node: int, overlap: int) -> None:
        """A request goes to a node that has ``overlap`` tokens of it."""
        active = _Active(node, self.blocks(max(0, request.prompt - overlap)), self.blocks(request.prompt))
        self._live[request.request_id] = active
        self.prefill[node] += active.to_prefill
        self.used[node] += active.blocks

    def prefilled(self, request_id: str) -> None:
        """Its prompt is computed."""
        active = self._live.get(request_id)
        if active is not None:
            self.prefill[active.node] -= active.to_prefill
            active.to_prefill = 0

    def remove(self, request_id: str) -> None:
        """It has ended."""
        self.prefilled(request_id)
        active = self._live.pop(request_id, None)
        if active is not None:
            self.used[active.node] -= active.blocks

    def blocks(self, tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-tokens // self._block_size)


class DynamoKv(Plain):
    """See the module."""

    def __init__(self, site: Site, *, overlap_weight: float = 1.0) -> None:
        super().__init__(site)
        self._weight = overlap_weight
        self._book = ActiveBlocks(site.setup.nodes, site.setup.block_size)

    def turn_arrived(self, request: Request, t: float) -> list[Action]:
        """The node of least cost."""
        overlap = self.site.overlap(request.chain)
        node = min(self.nodes, key=lambda n: (self._cost(request, n, overlap), n))
        self._book.add(request, node, overlap.get(node, 0))
        return [Send(request.request_id, node)]

    def first_token(self, request_id: str, t: float) -> list[Action]:
        """Its prefill counts no longer."""
        self._book.prefilled(request_id)
        return []

    def turn_ended(self, request_id: str, *, cached: int, output: int, t: float) -> list[Action]:
        """It counts no longer."""
        self._book.remove(request_id)
        return []

    def _cost(self, request: Request, node: int, overlap: Mapping[int, int]) -> float:
        book = self._book
        to_prefill = book.blocks(max(0, request.prompt - overlap.get(node, 0))) + book.prefill[node]
        return self._weight * to_prefill + book.used[node] + book.blocks(request.prompt)
