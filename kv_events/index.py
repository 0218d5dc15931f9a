# SPDX-License-Identifier: Apache-2.0
"""Which node holds how long a prefix of a token sequence, told by the KV events. Pure: time is an argument.

Memory is bounded by ``max_blocks``; what a million blocks take is measured by ``tao-bench index``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from kv_events.chain import SEED, pack_pair, xxh3
from kv_events.forest import Cuts, Forest
from kv_events.shelf import Orphans, Run, Shelf
from kv_events.types import NodeId
from kv_events.wire import DEVICE, Cleared, KvEvent, Removed, Stored, StoredBlock

_MAX_TIERS: Final = 8
_SWEEP: Final = 512


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
    """Runs in which a block was its own parent; rejected from there on."""
    misplaced: int = 0
    """Runs that claim to start in mid-sequence and name no parent; rejected (events)."""
    orphaned: int = 0
    joined: int = 0
    orphans_dropped: int = 0
    refused: int = 0
    """Over ``max_blocks``, ``max_nodes`` or too many tiers."""


@dataclass(frozen=True)
class NodeStats:
    """One node as the index knows it."""

    node: NodeId
    block_size: int | None
    blocks: int
    lower: dict[str, int]
    orphans: int
    stale: bool


@dataclass(frozen=True)
class IndexStats:
    """The index as a whole; ``blocks`` are distinct ones, ``resident`` counts each node's."""

    nodes: int
    blocks: int
    resident: int
    lower: int
    orphans: int
    counters: Counters


@dataclass
class _Node:
    id: NodeId
    bit: int
    orphans: Orphans
    device: Shelf = field(default_factory=Shelf)
    lower: dict[str, Shelf] = field(default_factory=dict)
    block_size: int | None = None
    stale: bool = False


class BlockIndex:
    """The blocks of every node and tier.

    Args:
        max_blocks: blocks kept over all nodes and tiers; beyond it new ones are refused and counted.
        max_orphans: blocks that may wait for a parent that was never announced; beyond it the node's oldest go.
        max_nodes: nodes; beyond it the events of new ones are refused and counted.
    """

    def __init__(self, *, max_blocks: int = 8_000_000, max_orphans: int = 65_536, max_nodes: int = 4096) -> None:
        self.counters = Counters()
        self.max_blocks = max_blocks
        self._max_orphans = max_orphans
        self._max_nodes = max_nodes
        self._forest = Forest()
        self._nodes: dict[NodeId, _Node] = {}
        self._by_bit: dict[int, _Node] = {}
        self._free: list[int] = []
        self._next_bit = 1
        self._all = 0
        self._sized: dict[int, int] = {}
        self._graves: list[tuple[int, Shelf]] = []
        self._count = 0

    # nodes

    @property
    def nodes(self) -> Sequence[NodeId]:
        """Every node heard of."""
        return tuple(self._nodes)

    def set_block_size(self, node: NodeId, size: int) -> None:
        """Say how many tokens a block of the node has; a changed size forgets the node's blocks."""
        known = self._join(node)
        if known is None or known.block_size == size:
            return
        if known.block_size is not None:
            self.clear(node)
        self._hide(known)
        known.block_size = size
        self._show(known)

    def block_size(self, node: NodeId) -> int | None:
        """Return the tokens per block of a node, None while nobody has said."""
        known = self._nodes.get(node)
        return known.block_size if known else None

    def set_stale(self, node: NodeId, stale: bool) -> None:
        """Mark a node whose events have a gap, or take the mark away."""
        known = self._join(node)
        if known is not None:
            known.stale = stale

    def is_stale(self, node: NodeId) -> bool:
        """Whether what we know of the node is not to be taken as exact."""
        known = self._nodes.get(node)
        return known is not None and known.stale

    def drop_node(self, node: NodeId) -> None:
        """Forget a node. Its blocks earn nothing from now on; their memory is given back by and by."""
        known = self._nodes.pop(node, None)
        if known is None:
            return
        self._hide(known)
        self._bury(known)
        self._count -= sum(len(shelf.blocks) for shelf in known.lower.values())

    def drop_worker(self, worker_id: int) -> list[NodeId]:
        """Forget every rank of a worker; return them."""
        ranks = [node for node in self._nodes if node.worker_id == worker_id]
        for node in ranks:
            self.drop_node(node)
        return ranks

    def clear(self, node: NodeId) -> None:
        """Forget the blocks of a node in every tier, and its orphans; the node stays."""
        known = self._nodes.get(node)
        if known is None:
            return
        self._renew(known)
        self._count -= sum(len(shelf.blocks) for shelf in known.lower.values())
        known.lower.clear()
        known.orphans = Orphans(self._max_orphans)

    # events

    def apply(self, event: KvEvent, t: float) -> None:
        """Take in one event; ``t`` in seconds, of any clock that goes forward."""
        known = self._nodes.get(event.node) or self._join(event.node)
        if known is None:
            return
        if self._graves:
            self._sweep()
        data = event.data
        if isinstance(data, Stored):
            self._store(known, event.tier, data, t)
        elif isinstance(data, Removed):
            self._remove(known, event.tier, data.block_hashes)
        elif isinstance(data, Cleared):
            self._clear_tier(known, event.tier)
        else:
            self.counters.unknown += 1

    # questions

    def overlap(self, hashes: Sequence[int], block_size: int | None = None) -> dict[NodeId, int]:
        """Return the longest prefix on the device tier of every node, in blocks; nodes with none are left out.

        Args:
            hashes: sequence hashes, first block first.
            block_size: only nodes with this block size (None: all; hashes of another size never match anyway).
        """
        return {node: blocks for blocks, node in self.expand(self.cuts(hashes, block_size))}

    def cuts(self, hashes: Sequence[int], block_size: int | None = None, hint: Iterable[tuple[int, int]] = ()) -> Cuts:
        """Return the same in compact form; ``hint`` is an earlier answer for a prefix of these hashes."""
        among = self._all if block_size is None else self._sized.get(block_size, 0)
        return self._forest.cuts(hashes, among, hint)

    def expand(self, cuts: Cuts) -> Iterator[tuple[int, NodeId]]:
        """Spell out what ``cuts`` returned, (blocks, node) each."""
        for blocks, mask in cuts:
            rest = mask
            while rest:
                bit = rest & -rest
                rest ^= bit
                yield blocks, self._by_bit[bit].id

    def beyond(self, node: NodeId, hashes: Sequence[int], start: int, tiers: Sequence[str]) -> dict[str, int]:
        """Return how the prefix goes on behind its first ``start`` blocks in lower tiers, in blocks per tier.

        Each block counts for the first of ``tiers`` that has it; the walk ends where none has.
        """
        known = self._nodes.get(node)
        found: dict[str, int] = {}
        if known is None:
            return found
        shelves = [(tier, known.lower[tier].blocks) for tier in tiers if tier in known.lower]
        for at in range(start, len(hashes)):
            block = hashes[at]
            for tier, blocks in shelves:
                if block in blocks:
                    found[tier] = found.get(tier, 0) + 1
                    break
            else:
                if block not in known.device.blocks:
                    break
                found[DEVICE] = found.get(DEVICE, 0) + 1
        return found

    def stored_at(self, node: NodeId, block: int) -> float | None:
        """Return when a stored event of the device tier last named the block on the node."""
        known = self._nodes.get(node)
        return known.device.blocks.get(block) if known else None

    def holds_any(self, node: NodeId) -> bool:
        """Whether the node holds any block in any tier."""
        known = self._nodes.get(node)
        return known is not None and (bool(known.device.blocks) or any(s.blocks for s in known.lower.values()))

    def node_stats(self, node: NodeId) -> NodeStats | None:
        """Return one node's figures."""
        known = self._nodes.get(node)
        if known is None:
            return None
        lower = {tier: len(shelf.blocks) for tier, shelf in known.lower.items()}
        blocks = len(known.device.blocks)
        return NodeStats(node, known.block_size, blocks, lower, known.orphans.size, known.stale)

    def stats(self) -> IndexStats:
        """Return the figures of the whole."""
        nodes = self._nodes.values()
        resident = sum(len(known.device.blocks) for known in nodes)
        lower = sum(len(shelf.blocks) for known in nodes for shelf in known.lower.values())
        orphans = sum(known.orphans.size for known in nodes)
        return IndexStats(len(nodes), len(self._forest), resident, lower, orphans, self.counters)

    # inside

    def _join(self, node: NodeId) -> _Node | None:
        known = self._nodes.get(node)
        if known is None:
            if len(self._nodes) >= self._max_nodes:
                self.counters.refused += 1
                return None
            known = _Node(node, 0, Orphans(self._max_orphans))
            self._nodes[node] = known
            self._show(known)
        return known

    def _show(self, known: _Node) -> None:
        if not known.bit:
            if self._free:
                known.bit = self._free.pop()
            else:
                known.bit = self._next_bit
                self._next_bit <<= 1
        self._by_bit[known.bit] = known
        self._all |= known.bit
        if known.block_size is not None:
            self._sized[known.block_size] = self._sized.get(known.block_size, 0) | known.bit

    def _hide(self, known: _Node) -> None:
        del self._by_bit[known.bit]
        self._all &= ~known.bit
        if known.block_size is not None:
            self._sized[known.block_size] &= ~known.bit
            if not self._sized[known.block_size]:
                del self._sized[known.block_size]

    def _bury(self, known: _Node) -> None:
        if known.device.blocks:
            self._graves.append((known.bit, known.device))
            known.device = Shelf()
        else:
            self._free.append(known.bit)
        known.bit = 0

    def _renew(self, known: _Node) -> None:
        """Give a node an empty device shelf and a new bit, in no time whatever it held."""
        if known.device.blocks:
            self._hide(known)
            self._bury(known)
            self._show(known)

    def _sweep(self, blocks: int = _SWEEP) -> None:
        bit, shelf = self._graves[-1]
        left = shelf.blocks
        forget = self._forest.forget
        for _ in range(min(blocks, len(left))):
            forget(bit, left.popitem()[0])
            self._count -= 1
        if not left:
            self._graves.pop()
            self._free.append(bit)

    def _shelf(self, known: _Node, tier: str) -> Shelf | None:
        if tier == DEVICE:
            return known.device
        shelf = known.lower.get(tier)
        if shelf is None:
            if len(known.lower) >= _MAX_TIERS:
                return None
            shelf = known.lower[tier] = Shelf()
        return shelf

    def _find(self, known: _Node, shelf: Shelf, name: int) -> int | None:
        block = shelf.find(name)
        if block is None and shelf is not known.device:
            block = known.device.find(name)
        if block is None and known.lower:
            for other in known.lower.values():
                block = other.find(name)
                if block is not None:
                    break
        return block

    def _store(self, known: _Node, tier: str, data: Stored, t: float) -> None:
        counters = self.counters
        shelf = self._shelf(known, tier)
        if shelf is None or self._count + len(data.blocks) > self.max_blocks:
            counters.refused += len(data.blocks)
            return
        if data.parent_hash is None:
            if data.start_position:
                counters.misplaced += 1
                return
            parent = None
        else:
            if data.blocks and data.blocks[0].block_hash == data.parent_hash:
                counters.self_parented += 1
                return
            parent = self._find(known, shelf, data.parent_hash)
            if parent is None:
                self._wait_for(known, data.parent_hash, Run(tier, data.blocks, t))
                return
        self._place(known, shelf, parent, data.blocks, t)
        if known.orphans:
            self._join_orphans(known, data.blocks)

    def _wait_for(self, known: _Node, parent: int, run: Run) -> None:
        elsewhere = sum(other.orphans.size for other in self._nodes.values()) - known.orphans.size
        known.orphans.limit = self._max_orphans - elsewhere
        self.counters.orphaned += len(run.blocks)
        self.counters.orphans_dropped += known.orphans.keep(parent, run)

    def _place(
        self, known: _Node, shelf: Shelf, parent: int | None, run: Sequence[StoredBlock], t: float
    ) -> int | None:
        """Put a run on a shelf behind its parent; return the sequence hash of its last block."""
        blocks, names = shelf.blocks, shelf.names
        before = len(blocks)
        first = parent
        placed: list[int] = []
        last = None
        for item in run:
            name = item.block_hash
            if name == last:
                self.counters.self_parented += 1
                break
            last = name
            parent = item.tokens_hash if parent is None else xxh3(pack_pair(parent, item.tokens_hash), SEED)
            if name != parent:
                old = names.get(name)
                if old != parent:
                    if old is not None:
                        self._give_up(known, shelf, name)
                    names[name] = parent
                    if parent in blocks:
                        shelf.more[parent] = shelf.more.get(parent, 0) + 1
            blocks[parent] = t
            placed.append(parent)
        self._count += len(blocks) - before
        self.counters.stored += len(placed)
        if shelf is known.device:
            self._forest.add(known.bit, first, placed)
        return parent

    def _give_up(self, known: _Node, shelf: Shelf, name: int) -> bool:
        block, gone = shelf.take(name)
        if block is None:
            return False
        if gone:
            self._count -= 1
            if shelf is known.device:
                self._forest.remove(known.bit, block)
        return True

    def _join_orphans(self, known: _Node, run: Sequence[StoredBlock]) -> None:
        """Place the runs that waited for a block of this run, and those that waited for them, and so on."""
        todo = [item.block_hash for item in run]
        struck: list[Run] = []
        while todo and known.orphans:
            name = todo.pop()
            for waiting in known.orphans.claim(name):
                shelf = self._shelf(known, waiting.tier)
                if shelf is None:
                    continue
                parent = self._find(known, shelf, name)
                if parent is None:
                    continue
                self._place(known, shelf, parent, waiting.blocks, waiting.t)
                self.counters.joined += len(waiting.blocks)
                todo += [item.block_hash for item in waiting.blocks]
                if waiting.gone:
                    struck.append(waiting)
        for run_with_holes in struck:
            self._remove(known, run_with_holes.tier, run_with_holes.gone)

    def _remove(self, known: _Node, tier: str, names: Iterable[int]) -> None:
        shelf = self._shelf(known, tier)
        counters = self.counters
        if shelf is None:
            return
        for name in names:
            if self._give_up(known, shelf, name):
                counters.removed += 1
            elif not (known.orphans and known.orphans.strike(tier, name)):
                counters.unknown_removed += 1

    def _clear_tier(self, known: _Node, tier: str) -> None:
        self.counters.cleared += 1
        known.orphans.drop_tier(tier)
        if tier == DEVICE:
            self._renew(known)
        elif tier in known.lower:
            self._count -= len(known.lower.pop(tier).blocks)
