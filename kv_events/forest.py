# SPDX-License-Identifier: Apache-2.0
"""Which nodes hold which block of the device tier: one radix forest over all nodes.

A *run* is a piece of a chain that the same nodes hold; where that differs, a run is cut in two. A block is *rooted*
on a node when the node holds it and everything before it, and a run carries the set of nodes where it is rooted. So
the longest prefix of a chain on every node is found by one walk over the runs of the chain, tens of steps for
thousands of blocks, and taking in an event costs one map entry per block: the engine's name of the block, per node.

Engines evict the tail first, and then nothing is ever unrooted. Where they do not (a duplicate dropped from the
middle, a sliding window), the flag is taken from the runs behind the hole, once, and given back when it closes.

Sets of nodes are Python ints, one bit per node. The big maps hold plain ints, which the garbage collector skips.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from kv_events.chain import SEED, pack_pair, xxh3
from kv_events.run_store import LONGEST, RunStore
from kv_events.runs import Cuts, Holder, Run, match, walk

Added = Literal["put", "no parent", "clash"]
PUT: Final = "put"
NO_PARENT: Final = "no parent"
CLASH: Final = "clash"


class Forest(RunStore):
    """The blocks that at least one node holds; see the module."""

    __slots__ = ()

    def join(self, bit: int) -> Holder:
        """Take in a node under a bit that nobody has."""
        holder = self._holders[bit] = Holder(bit)
        return holder

    def block(self, holder: Holder, name: int) -> int | None:
        """Return the sequence hash of the node's block of that name."""
        found = self._find(holder, name)
        return None if found is None else found[0].blocks[found[1]]

    def begins(self, holder: Holder, block: int) -> bool:
        """Whether the node holds this first block of a chain."""
        run = self._heads.get(block)
        return run is not None and bool(run.mask & holder.bit)

    def cuts(self, chain: Sequence[int], among: int) -> Cuts:
        """Return the longest prefix of a chain on each of some nodes, those with none left out.

        Args:
            chain: sequence hashes, first block first.
            among: the nodes asked for.
        """
        return walk(self._heads, chain, among)

    def add(self, holder: Holder, parent: int | None, names: list[int], tokens: list[int], t: float) -> Added:
        """Put consecutive blocks on a node.

        Args:
            holder: the node.
            parent: the node's name of the block before them; None at the beginning of a chain.
            names: what the engine calls them.
            tokens: their tokens hashes.
            t: seconds.

        Returns:
            What came of it: ``PUT``; ``NO_PARENT``, the node does not hold the parent; ``CLASH``, one of them has the
            name of the parent or of another of them. Nothing was put then.
        """
        # The usual case, new blocks behind the last one of a run that is the node's alone, is written out: it is what
        # most events are, and calls are what costs.
        bit, book = holder.bit, holder.book
        run: Run | None = None
        place, last = -1, None
        if parent is not None:
            at = book.get(parent)
            if at is None:
                return NO_PARENT
            run = self._run(at)
            held = run.names.get(bit, run.blocks)
            if held[-1] == parent:
                place = len(held) - 1
            else:
                run, place = self._place_of(holder, run, parent)
            last = run.blocks[place]
        blocks: list[int] = []
        for tokens_hash in tokens:
            last = tokens_hash if last is None else xxh3(pack_pair(last, tokens_hash), SEED)
            blocks.append(last)
        named = names != blocks
        if (named and not book.keys().isdisjoint(names)) or self._lost or blocks[0] in self._heads:
            return self._add_slowly(holder, parent, names, blocks, t)
        if run is None or run.mask != bit or place >= LONGEST or place + 1 != len(run.blocks):
            if run is not None and place + 1 != len(run.blocks):
                return self._add_slowly(holder, parent, names, blocks, t)
            return PUT if self._grow(holder, run, place, names, blocks, t) else CLASH
        at, size, before = run.id, len(names), len(book)
        for name in names:
            book[name] = at
        if len(book) - before != size:
            for name in names:
                book.pop(name, None)
            return CLASH
        if named or run.names:
            if not run.names:
                run.names[bit] = list(run.blocks)
            run.names[bit] += names
        run.blocks += blocks
        run.t = t
        self.size += size
        self.held += size
        return PUT

    def _add_slowly(self, holder: Holder, parent: int | None, names: list[int], blocks: list[int], t: float) -> Added:
        """Put blocks some of which are there already, or whose names stand for others, or within a run."""
        if parent in names or len(set(names)) != len(names):
            return CLASH
        self._settle(holder, names, blocks)
        run: Run | None = None
        place = -1
        if parent is not None:
            found = self._find(holder, parent)
            if found is None:
                return NO_PARENT
            run, place = found
        bit, heads = holder.bit, self._heads
        at, size = 0, len(blocks)
        while at < size:
            there, first = heads.get(blocks[at]), 0
            if run is not None and place + 1 < len(run.blocks) and run.blocks[place + 1] == blocks[at]:
                there, first = run, place + 1
            if there is None:
                end = at + 1
                while end < size and blocks[end] not in heads:
                    end += 1
                grown = self._grow(holder, run, place, names[at:end], blocks[at:end], t)
                if grown is None:
                    return CLASH
                run, place = grown
                at = end
                continue
            count = match(there.blocks, first, blocks, at)
            if there.mask & bit:
                there.touch(bit, t)
                self._also_named(holder, there, first, names[at : at + count])
                run, place = there, first + count - 1
            else:
                rooted = run is None or bool(run.rooted & bit)
                if first:
                    there = self._cut(there, first)
                if count < len(there.blocks):
                    self._cut(there, count)
                self._enter(holder, there, names[at : at + count], t, rooted=rooted)
                run, place = there, count - 1
            at += count
        return PUT

    def remove(self, holder: Holder, name: int) -> bool:
        """Take a name from a node, and with the last name the block; return whether the node had it."""
        bit = holder.bit
        at = holder.book.get(name)
        if at is None:
            return False
        run = self._run(at)
        names = run.names.get(bit, run.blocks)
        if holder.aliases and self._one_name_less(holder, run, names, name):
            return True
        if run.mask == bit and names[-1] == name and run.blocks[-1] not in self._children:
            del holder.book[name]
            self.held -= 1
            block = run.blocks.pop()
            if names is not run.blocks:
                names.pop()
            self.size -= 1
            if not run.blocks:
                del self._heads[block]
                self._discard(run)
            return True
        self._take_out(holder, run, names.index(name))
        del holder.book[name]
        self.held -= 1
        return True

    def remove_tail(self, holder: Holder, names: list[int], start: int) -> int:
        """Take the end of a run from a node at once: what engines that evict the tail first announce in one event.

        Args:
            holder: the node.
            names: names to remove, last block first.
            start: where in them to begin.

        Returns:
            How many were removed; 0 where ``remove`` has to look closer, at one name.
        """
        bit, book = holder.bit, holder.book
        at = book.get(names[start])
        if at is None or holder.aliases:
            return 0
        run = self._run(at)
        held = run.names.get(bit, run.blocks)
        if run.mask != bit or held[-1] != names[start]:
            return 0
        longest = min(len(held), len(names) - start)
        tail = held[-longest:]
        tail.reverse()
        if tail != names[start : start + longest]:
            longest = next(place for place, name in enumerate(tail) if name != names[start + place])
        blocks = run.blocks[-longest:]
        if not self._children.keys().isdisjoint(blocks):
            return 0
        for name in held[-longest:]:
            del book[name]
        self.held -= longest
        self.size -= longest
        if held is not run.blocks:
            del held[-longest:]
        if longest == len(run.blocks):
            del self._heads[blocks[0]]
            self._discard(run)
        del run.blocks[-longest:]
        return longest

    def leave(self, holder: Holder) -> Iterator[None]:
        """Take everything from a node, one run per step, so that it can be done by and by; then the bit is free.

        The node must not be asked about or added to any more.
        """
        bit, book = holder.bit, holder.book
        while book:
            _, at = book.popitem()
            self.held -= 1
            run = self._runs[at]
            if run is not None and run.mask & bit:
                run.drop(bit)
                if not run.mask:
                    self._kill(run)
                yield
        del self._holders[bit]

    # names

    def _find(self, holder: Holder, name: int) -> tuple[Run, int] | None:
        at = holder.book.get(name)
        return None if at is None else self._place_of(holder, self._run(at), name)

    def _place_of(self, holder: Holder, run: Run, name: int) -> tuple[Run, int]:
        """Return the run again, and where in it the node's block of that name is."""
        names = run.names.get(holder.bit, run.blocks)
        if names[-1] == name:
            return run, len(names) - 1
        if holder.aliases and name not in names:
            block = next(block for block, others in holder.aliases.items() if name in others)
            return run, run.blocks.index(block)
        return run, names.index(name)

    def _settle(self, holder: Holder, names: list[int], blocks: list[int]) -> None:
        """Give up the names that stood for other blocks so far."""
        pairs: dict[int, dict[int, int]] = {}
        stray = []
        for name, block in zip(names, blocks, strict=True):
            at = holder.book.get(name)
            if at is None:
                continue
            if at not in pairs:
                run = self._run(at)
                pairs[at] = dict(zip(run.names.get(holder.bit, run.blocks), run.blocks, strict=True))
            stands_for = pairs[at].get(name)
            if stands_for is None:
                stands_for = self.block(holder, name)
            if stands_for != block:
                stray.append(name)
        for name in stray:
            self.remove(holder, name)

    def _also_named(self, holder: Holder, run: Run, first: int, names: list[int]) -> None:
        """Note the names that are new of blocks which the node holds already."""
        held = run.names.get(holder.bit, run.blocks)
        if held[first : first + len(names)] == names:
            return
        for block, name in zip(run.blocks[first : first + len(names)], names, strict=True):
            if name not in holder.book:
                holder.book[name] = run.id
                holder.aliases.setdefault(block, []).append(name)
                holder.more += 1
                self.held += 1

    def _one_name_less(self, holder: Holder, run: Run, names: list[int], name: int) -> bool:
        """Take a name from a block that has others; False if it has none."""
        if name in names:
            place = names.index(name)
            block = run.blocks[place]
            others = holder.aliases.get(block)
            if not others:
                return False
            if names is run.blocks:
                names = run.names[holder.bit] = list(run.blocks)
            names[place] = others.pop()
        else:
            block, others = next(pair for pair in holder.aliases.items() if name in pair[1])
            others.remove(name)
        if not others:
            del holder.aliases[block]
        holder.more -= 1
        self.held -= 1
        del holder.book[name]
        return True

    def _grow(
        self, holder: Holder, run: Run | None, place: int, names: list[int], blocks: list[int], t: float
    ) -> tuple[Run, int] | None:
        """Put blocks that nobody holds behind a block, or at the beginning of a chain.

        Returns:
            Where the last one is; None if two of them have one name: then nothing was put.
        """
        bit, book, size = holder.bit, holder.book, len(blocks)
        longer = run is not None and run.mask == bit and place + 1 == len(run.blocks) and place < LONGEST
        at = run.id if run is not None and longer else self._free[-1] if self._free else len(self._runs)
        before = len(book)
        for name in names:
            book[name] = at
        if len(book) - before != size:
            for name in names:
                book.pop(name, None)
            return None
        self.size += size
        self.held += size
        if run is not None and longer:
            if names != blocks or run.names:
                if not run.names:
                    run.names[bit] = list(run.blocks)
                run.names[bit] += names
            run.blocks += blocks
            run.t = t
        else:
            rooted = bit if run is None else run.rooted & bit
            after = None if run is None else run.blocks[place]
            run = self._new(list(blocks), after, bit, rooted, t)
            if names != blocks:
                run.names[bit] = list(names)
        if self._lost and not self._lost.isdisjoint(blocks):
            for block in self._lost.intersection(blocks):
                self._lost.discard(block)
                if run.rooted:
                    self._root_below(bit, [block])
        return run, len(run.blocks) - 1

    def _enter(self, holder: Holder, run: Run, names: list[int], t: float, *, rooted: bool) -> None:
        """Let a node hold a run that others hold already."""
        bit = holder.bit
        if not run.mask:
            run.t = t
        run.mask |= bit
        run.times[bit] = t
        if names != run.blocks:
            run.names[bit] = list(names)
        book, at = holder.book, run.id
        for name in names:
            book[name] = at
        self.held += len(names)
        if rooted:
            run.rooted |= bit
            self._root_below(bit, run.blocks)
