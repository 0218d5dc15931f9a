# SPDX-License-Identifier: Apache-2.0
"""Which nodes hold which block of the device tier, as one forest over all nodes.

A block is *rooted* on a node when the node holds it and everything before it. The forest keeps that flag right at
every change, so along any chain the set of nodes where a block is rooted can only shrink, and the longest prefix on
every node is found by bisection instead of a walk: a few look-ups for a chain of thousands of blocks.

Engines evict the tail first, and then nothing is ever unrooted. Where they do not (a duplicate dropped from the
middle, a sliding window), the flag is taken from the blocks behind the hole, once, and given back when it closes.

Nodes are bits of a Python int. All maps hold plain ints, which the garbage collector does not have to visit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

Cuts = list[tuple[int, int]]
"""Where a chain ends: (length in blocks, the nodes whose longest prefix has that length), longer ones later."""

_MAX_INTERNED: Final = 65_536


class Forest:
    """The blocks that at least one node holds; see the module."""

    __slots__ = ("_branches", "_child", "_masks", "_parents", "_sets", "_unrooted")

    def __init__(self) -> None:
        self._masks: dict[int, int] = {}
        self._unrooted: dict[int, int] = {}
        self._parents: dict[int, int] = {}
        self._child: dict[int, int] = {}
        self._branches: dict[int, set[int]] = {}
        self._sets: dict[int, int] = {}

    def __len__(self) -> int:
        """Distinct blocks."""
        return len(self._masks)

    def holds(self, bit: int, block: int) -> bool:
        """Whether the node holds the block, rooted or not."""
        return bool(self._masks.get(block, 0) & bit)

    def rooted(self, block: int) -> int:
        """Return the set of nodes where the block is rooted."""
        mask = self._masks.get(block, 0)
        return mask & ~self._unrooted[block] if block in self._unrooted else mask

    def add(self, bit: int, parent: int | None, blocks: Iterable[int]) -> None:
        """Put a run, each block the child of the one before, on a node."""
        masks, parents, child, unrooted = self._masks, self._parents, self._child, self._unrooted
        rooted = parent is None or bool(self.rooted(parent) & bit)
        for block in blocks:
            mask = masks.get(block)
            if mask is None:
                masks[block] = bit
                if parent is not None:
                    parents[block] = parent
                    if child.setdefault(parent, block) != block:
                        self._branches.setdefault(parent, set()).add(block)
            elif mask & bit:
                parent = block
                continue
            else:
                masks[block] = self._one_object(mask | bit)
            if not rooted:
                unrooted[block] = unrooted.get(block, 0) | bit
            elif unrooted:
                self._root_below(bit, block)
            parent = block

    def remove(self, bit: int, block: int) -> None:
        """Take a block that the node holds from it."""
        if self._unrooted and self._unrooted.get(block, 0) & bit:
            self._set_unrooted(block, self._unrooted[block] & ~bit)
        elif block in self._child:
            self._unroot_below(bit, block)
        self._take(bit, block)

    def forget(self, bit: int, block: int) -> None:
        """Take a block from a node that is leaving, whose flags are of no interest any more."""
        if self._unrooted and self._unrooted.get(block, 0) & bit:
            self._set_unrooted(block, self._unrooted[block] & ~bit)
        self._take(bit, block)

    def cuts(self, chain: Sequence[int], among: int, hint: Iterable[tuple[int, int]] = ()) -> Cuts:
        """Return the longest prefix of a chain on each of some nodes, those with none left out.

        Args:
            chain: sequence hashes, first block first.
            among: the nodes asked for.
            hint: the answer of an earlier call with a prefix of this chain: where it still holds, it costs two
                look-ups per entry; it never changes the answer.
        """
        found: Cuts = []
        size = len(chain)
        if not size:
            return found
        rooted = self.rooted
        nodes = rooted(chain[0]) & among
        at = 0
        hints = iter(hint)
        while nodes:
            if rooted(chain[size - 1]) & among == nodes:
                found.append((size, nodes))
                break
            low, high = at, size - 1
            for guess, _ in hints:
                if low < guess < high:
                    if rooted(chain[guess - 1]) & among == nodes:
                        low = guess - 1
                        if rooted(chain[guess]) & among != nodes:
                            high = guess
                        else:
                            low = guess
                    else:
                        high = guess - 1
                    break
            while high - low > 1:
                middle = (low + high) // 2
                if rooted(chain[middle]) & among == nodes:
                    low = middle
                else:
                    high = middle
            rest = rooted(chain[high]) & among
            found.append((high, nodes & ~rest))
            nodes, at = rest, high
        return found

    def _one_object(self, mask: int) -> int:
        if len(self._sets) >= _MAX_INTERNED:
            self._sets.clear()
        return self._sets.setdefault(mask, mask)

    def _take(self, bit: int, block: int) -> None:
        mask = self._masks[block] & ~bit
        if mask:
            self._masks[block] = self._one_object(mask)
            return
        del self._masks[block]
        parent = self._parents.pop(block, None)
        if parent is None:
            return
        others = self._branches.get(parent)
        if self._child[parent] != block:
            others = self._branches[parent]
            others.discard(block)
        elif others:
            self._child[parent] = others.pop()
        else:
            del self._child[parent]
        if others is not None and not others:
            del self._branches[parent]

    def _set_unrooted(self, block: int, mask: int) -> None:
        if mask:
            self._unrooted[block] = mask
        else:
            del self._unrooted[block]

    def _children(self, block: int) -> list[int]:
        first = self._child.get(block)
        if first is None:
            return []
        return [first, *self._branches.get(block, ())]

    def _root_below(self, bit: int, block: int) -> None:
        todo = self._children(block)
        while todo:
            below = todo.pop()
            mask = self._unrooted.get(below, 0)
            if mask & bit:
                self._set_unrooted(below, mask & ~bit)
                todo += self._children(below)

    def _unroot_below(self, bit: int, block: int) -> None:
        todo = self._children(block)
        while todo:
            below = todo.pop()
            mask = self._unrooted.get(below, 0)
            if self._masks[below] & bit and not mask & bit:
                self._unrooted[below] = mask | bit
                todo += self._children(below)
