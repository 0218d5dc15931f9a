# SPDX-License-Identifier: Apache-2.0
"""What the index counts."""

from __future__ import annotations

from dataclasses import dataclass

from kv_events.types import NodeId


@dataclass
class Counters:
    """What the index has seen since it was made; blocks, unless said otherwise."""

    stored: int = 0
    removed: int = 0
    cleared: int = 0
    """Events."""
    unknown: int = 0
    """Events of a kind that we do not know."""
    unknown_removed: int = 0
    """Removals of blocks that were not there."""
    self_parented: int = 0
    """Runs in which a block was its own parent, or had the name of another; rejected from there on."""
    misplaced: int = 0
    """Runs that claim to start in mid-sequence and name no parent; rejected."""
    orphaned: int = 0
    joined: int = 0
    orphans_dropped: int = 0
    refused: int = 0
    """Over ``max_blocks``, ``max_nodes`` or too many tiers."""


@dataclass(frozen=True)
class NodeStats:
    """One node as the index knows it; ``lower`` are the blocks of each tier below the device."""

    node: NodeId
    block_size: int | None
    blocks: int
    lower: dict[str, int]
    orphans: int
    stale: bool
    stored: int
    removed: int
    """Blocks since the node was first heard of."""


@dataclass(frozen=True)
class IndexStats:
    """The index as a whole; ``blocks`` are distinct ones, ``resident`` counts each node's."""

    nodes: int
    blocks: int
    resident: int
    lower: int
    orphans: int
    counters: Counters
