# SPDX-License-Identifier: Apache-2.0
"""Which node holds how long a prefix of a token sequence, told by the KV events. Pure: time is an argument.

Memory is bounded by ``max_blocks``; what a million blocks take is measured by ``tao-bench index``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final

from kv_events.chain import sequence_hashes
from kv_events.forest import CLASH, NO_PARENT, PUT, Added, Forest
from kv_events.runs import Cuts, Holder
from kv_events.shelf import Orphans, Shelf, Waiting
from kv_events.stats import Counters, IndexStats, NodeStats
from kv_events.types import NodeId
from kv_events.wire import DEVICE, Cleared, KvEvent, Removed, Stored

_MAX_TIERS: Final = 8
_MAX_SETS: Final = 4096
_MAX_GONE: Final = 64


class Node:
    """One node inside the index. Read ``id``, ``bit``, ``block_size`` and ``stale``; the rest is the index's."""

    __slots__ = ("block_size", "holder", "id", "lower", "orphans", "removed", "stale", "stored", "version")

    def __init__(self, node: NodeId, holder: Holder, max_orphans: int) -> None:
        self.id = node
        self.holder = holder
        self.lower: dict[str, Shelf] = {}
        self.orphans = Orphans(max_orphans)
        self.block_size: int | None = None
        self.stale = False
        self.stored = 0
        self.removed = 0
        self.version = 0

    @property
    def bit(self) -> int:
        """The node's bit in sets of nodes; another one after its blocks have been cleared."""
        return self.holder.bit


class BlockIndex:
    """The blocks of every node and tier.

    Args:
        max_blocks: blocks kept, summed over all nodes, and per node in lower tiers; beyond it new ones are refused.
        max_orphans: blocks that may wait for a parent that was never announced; beyond it the node's oldest go.
        max_nodes: nodes; beyond it the events of new ones are refused and counted.
    """

    def __init__(self, *, max_blocks: int = 8_000_000, max_orphans: int = 65_536, max_nodes: int = 4096) -> None:
        self.counters = Counters()
        self.max_blocks = max_blocks
        self.version = 0
        """Changes whenever an answer may."""
        self._max_orphans = max_orphans
        self._max_nodes = max_nodes
        self._forest = Forest()
        self._nodes: dict[NodeId, Node] = {}
        self._by_bit: dict[int, Node] = {}
        self._sets: dict[int, tuple[Node, ...]] = {}
        self._free: list[int] = []
        self._next_bit = 1
        self._all = 0
        self._sized: dict[int, int] = {}
        self._recent: OrderedDict[Node, None] = OrderedDict()
        self._latest: Node | None = None
        self._forgotten = 0
        """Changes up to this version are no longer told."""
        self._leaving: list[tuple[Holder, Iterator[None]]] = []

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
        if known is not None:
            self._hide(known)
            self._retire(known.holder)

    def drop_worker(self, worker_id: int) -> list[NodeId]:
        """Forget every rank of a worker; return them."""
        ranks = [node for node in self._nodes if node.worker_id == worker_id]
        for node in ranks:
            self.drop_node(node)
        return ranks

    def clear(self, node: NodeId) -> None:
        """Forget the blocks of a node in every tier, and its orphans; the node stays."""
        known = self._nodes.get(node)
        if known is not None:
            self._clear_device(known)
            known.lower.clear()
            known.orphans = Orphans(self._max_orphans)

    # events

    def apply(self, event: KvEvent, t: float) -> None:
        """Take in one event; ``t`` in seconds, of any clock that goes forward."""
        known = self._nodes.get(event.node) or self._join(event.node)
        if known is None:
            return
        self.version = known.version = self.version + 1
        if known is not self._latest:
            self._changed(known)
        data = event.data
        if type(data) is Stored:
            self._store(known, event.tier, data, t)
        elif type(data) is Removed:
            self._remove(known, event.tier, data.block_hashes)
        elif type(data) is Cleared:
            self._clear_tier(known, event.tier)
        else:
            self.counters.unknown += 1
        if self._leaving:
            self._sweep()

    # questions

    def overlap(self, hashes: Sequence[int], block_size: int | None = None) -> dict[NodeId, int]:
        """Return the longest prefix on the device tier of every node, in blocks; nodes with none are left out.

        Args:
            hashes: sequence hashes, first block first.
            block_size: only nodes with this block size (None: all; hashes of another size never match anyway).
        """
        return {node.id: blocks for blocks, mask, _ in self.cuts(hashes, block_size) for node in self.members(mask)}

    def cuts(self, hashes: Sequence[int], block_size: int | None = None, among: int = -1) -> Cuts:
        """Return the same by sets of nodes, see ``members``, with the run that says when it was last announced.

        ``among`` is the set of nodes asked about, -1 for all.
        """
        asked = among & (self._all if block_size is None else self._sized.get(block_size, 0))
        return self._forest.cuts(hashes, asked) if asked else []

    def changed_since(self, version: int) -> list[Node] | None:
        """Return the nodes of which an answer may have changed; None: too long ago to tell."""
        if version < self._forgotten:
            return None
        found: list[Node] = []
        for node in reversed(self._recent):
            if node.version <= version:
                break
            found.append(node)
        return found

    def sized(self, block_size: int) -> int:
        """Return the set of nodes with that block size."""
        return self._sized.get(block_size, 0)

    def node(self, node: NodeId) -> Node | None:
        """Return the index's own record of a node."""
        return self._nodes.get(node)

    def members(self, mask: int) -> tuple[Node, ...]:
        """Return the nodes of a set."""
        found = self._sets.get(mask)
        if found is None:
            if len(self._sets) >= _MAX_SETS:
                self._sets.clear()
            found = self._sets[mask] = tuple(self._spell(mask))
        return found

    def beyond(self, node: NodeId, hashes: Sequence[int], start: int, tiers: Sequence[str]) -> dict[str, int]:
        """Return how the prefix goes on behind its first ``start`` blocks in lower tiers, in blocks per tier.

        Each block counts for the first of ``tiers`` that has it; the walk ends where none has.
        """
        known = self._nodes.get(node)
        found: dict[str, int] = {}
        if known is None:
            return found
        shelves = [(tier, known.lower[tier].blocks) for tier in tiers if tier in known.lower]
        for at in range(start, len(hashes) if shelves else start):
            tier = next((tier for tier, blocks in shelves if hashes[at] in blocks), None)
            if tier is None:
                break
            found[tier] = found.get(tier, 0) + 1
        return found

    def begins(self, node: NodeId, first_block: int) -> bool:
        """Whether the node holds a block that begins a chain, given its hash."""
        known = self._nodes.get(node)
        return known is not None and self._forest.begins(known.holder, first_block)

    def holds_any(self, node: NodeId) -> bool:
        """Whether the node holds any block in any tier."""
        known = self._nodes.get(node)
        return known is not None and bool(known.holder.book or any(shelf.names for shelf in known.lower.values()))

    def node_stats(self, node: NodeId) -> NodeStats | None:
        """Return one node's figures."""
        known = self._nodes.get(node)
        if known is None:
            return None
        return NodeStats(
            node=node,
            block_size=known.block_size,
            blocks=len(known.holder),
            lower={tier: len(shelf.blocks) for tier, shelf in known.lower.items()},
            orphans=known.orphans.size,
            stale=known.stale,
            stored=known.stored,
            removed=known.removed,
        )

    def stats(self) -> IndexStats:
        """Return the figures of the whole."""
        nodes = self._nodes.values()
        return IndexStats(
            nodes=len(nodes),
            blocks=self._forest.size,
            resident=sum(len(known.holder) for known in nodes),
            lower=sum(len(shelf.blocks) for known in nodes for shelf in known.lower.values()),
            orphans=sum(known.orphans.size for known in nodes),
            counters=self.counters,
        )

    # inside: nodes

    def _join(self, node: NodeId) -> Node | None:
        known = self._nodes.get(node)
        if known is None:
            if len(self._nodes) >= self._max_nodes:
                self.counters.refused += 1
                return None
            known = self._nodes[node] = Node(node, self._new_holder(), self._max_orphans)
            self._show(known)
        return known

    def _changed(self, known: Node) -> None:
        self.version = known.version = self.version + 1
        if known is self._latest:
            return
        self._latest = known
        self._recent[known] = None
        self._recent.move_to_end(known)
        if len(self._recent) > 2 * len(self._nodes) + _MAX_GONE:
            self._forgotten = self._recent.popitem(last=False)[0].version

    def _new_holder(self) -> Holder:
        if self._free:
            return self._forest.join(self._free.pop())
        self._next_bit <<= 1
        return self._forest.join(self._next_bit >> 1)

    def _show(self, known: Node) -> None:
        bit = known.bit
        self._by_bit[bit] = known
        self._all |= bit
        if known.block_size is not None:
            self._sized[known.block_size] = self._sized.get(known.block_size, 0) | bit
        self._sets.clear()
        self._changed(known)

    def _hide(self, known: Node) -> None:
        bit = known.bit
        del self._by_bit[bit]
        self._all &= ~bit
        if known.block_size is not None:
            self._sized[known.block_size] &= ~bit
            if not self._sized[known.block_size]:
                del self._sized[known.block_size]
        self._sets.clear()
        self._changed(known)

    def _spell(self, mask: int) -> Iterator[Node]:
        rest = mask
        while rest:
            bit = rest & -rest
            rest ^= bit
            yield self._by_bit[bit]

    def _retire(self, holder: Holder) -> None:
        self._leaving.append((holder, self._forest.leave(holder)))

    def _clear_device(self, known: Node) -> None:
        """Give a node an empty device tier, in no time whatever it held: under a new bit."""
        if known.holder.book:
            self._hide(known)
            self._retire(known.holder)
            known.holder = self._new_holder()
            self._show(known)

    def _sweep(self) -> None:
        """Take one run from a node that has left."""
        holder, steps = self._leaving[-1]
        for _ in range(4):
            if next(steps, self) is self:
                self._leaving.pop()
                self._free.append(holder.bit)
                return

    # inside: blocks

    def _store(self, known: Node, tier: str, data: Stored, t: float) -> None:
        size = len(data.block_hashes)
        below = sum(len(shelf.names) for shelf in known.lower.values()) if known.lower else 0
        if not size:
            return
        # Blocks of nodes that have left count until they are swept.
        if self._forest.held + below + size > self.max_blocks:
            self.counters.refused += size
        elif data.start_position and data.parent_hash is None:
            self.counters.misplaced += 1
        elif not self._place(known, tier, data, t):
            self._wait_for(known, Waiting(tier, data, t))
        elif known.orphans.size:
            self._join_orphans(known, data.block_hashes)

    def _wait_for(self, known: Node, run: Waiting) -> None:
        elsewhere = sum(other.orphans.size for other in self._nodes.values()) - known.orphans.size
        known.orphans.limit = self._max_orphans - elsewhere
        self.counters.orphaned += len(run.names)
        self.counters.orphans_dropped += known.orphans.keep(run)

    def _place(self, known: Node, tier: str, data: Stored, t: float) -> bool:
        """Put a run on the node; False if its parent is not there.

        On the device a parent must be on the device: behind a block that is not, nothing is a prefix.
        """
        names = data.block_hashes
        parent = data.parent_hash
        if tier == DEVICE:
            outcome = CLASH
            if names[0] != parent:
                outcome = self._forest.add(known.holder, parent, names, data.tokens_hashes, t)
        else:
            outcome = self._shelve(known, tier, data)
        if outcome == PUT:
            known.stored += len(names)
            self.counters.stored += len(names)
        elif outcome == CLASH:
            self.counters.self_parented += 1
        return outcome != NO_PARENT

    def _shelve(self, known: Node, tier: str, data: Stored) -> Added:
        shelf = known.lower.get(tier)
        names, parent = data.block_hashes, data.parent_hash
        block: int | None = None
        if parent is not None:
            block = self._forest.block(known.holder, parent)
            if block is None:
                below = (other.names[parent] for other in known.lower.values() if parent in other.names)
                block = next(below, None)
            if block is None:
                return NO_PARENT
            if parent in names:
                return CLASH
        if len(set(names)) != len(names):
            return CLASH
        if shelf is None:
            if len(known.lower) >= _MAX_TIERS:
                self.counters.refused += len(names)
                return CLASH
            shelf = known.lower[tier] = Shelf()
        for name, put in zip(names, sequence_hashes(data.tokens_hashes, block), strict=True):
            shelf.put(name, put)
        return PUT

    def _join_orphans(self, known: Node, names: Sequence[int]) -> None:
        """Place the runs that waited for one of these blocks, and those that waited for them, and so on."""
        todo = list(names)
        struck: list[Waiting] = []
        while todo and known.orphans:
            for run in known.orphans.claim(todo.pop()):
                if not self._place(known, run.tier, run.data, run.t):
                    # Its parent is there, but in another tier than it must be.
                    known.orphans.keep(run)
                    continue
                self.counters.joined += len(run.names)
                todo += run.data.block_hashes
                if run.gone:
                    struck.append(run)
        for run in struck:
            self._remove(known, run.tier, list(run.gone))

    def _remove(self, known: Node, tier: str, names: list[int]) -> None:
        orphans = known.orphans
        shelf = known.lower.get(tier)
        at = removed = unknown = 0
        while at < len(names):
            count = self._forest.remove_tail(known.holder, names, at) if tier == DEVICE else 0
            if count:
                removed += count
                at += count
                continue
            name = names[at]
            at += 1
            if self._forest.remove(known.holder, name) if tier == DEVICE else shelf is not None and shelf.take(name):
                removed += 1
            elif not (orphans and orphans.strike(tier, name)):
                unknown += 1
        known.removed += removed
        self.counters.removed += removed
        self.counters.unknown_removed += unknown

    def _clear_tier(self, known: Node, tier: str) -> None:
        self.counters.cleared += 1
        known.orphans.drop_tier(tier)
        if tier == DEVICE:
            self._clear_device(known)
        else:
            known.lower.pop(tier, None)
