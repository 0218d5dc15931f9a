# SPDX-License-Identifier: Apache-2.0
"""The runs of a forest of blocks: made, cut, joined and dropped, and where each is rooted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Final

from kv_events.runs import Holder, Run

LONGEST: Final = 4096
"""Blocks at which a run stops growing."""


class RunStore:
    """Keeps the runs that at least one node holds, and what hangs on what; see ``kv_events.forest``."""

    __slots__ = ("_children", "_free", "_heads", "_holders", "_lost", "_runs", "held", "size")

    def __init__(self) -> None:
        self.size = 0
        """Distinct blocks."""
        self.held = 0
        """Names of blocks over all nodes, those that are leaving too."""
        self._runs: list[Run | None] = []
        self._free: list[int] = []
        self._heads: dict[int, Run] = {}
        self._children: dict[int, set[int]] = {}
        self._lost: set[int] = set()
        """Blocks that are not there although runs hang on them."""
        self._holders: dict[int, Holder] = {}

    def _run(self, at: int) -> Run:
        run = self._runs[at]
        if run is None:
            raise AssertionError(f"run {at} is gone")
        return run

    def _new(self, blocks: list[int], after: int | None, mask: int, rooted: int, t: float) -> Run:
        if self._free:
            at = self._free.pop()
        else:
            at = len(self._runs)
            self._runs.append(None)
        run = self._runs[at] = Run(at, blocks, after, mask, rooted, t)
        self._heads[blocks[0]] = run
        if after is not None:
            self._children.setdefault(after, set()).add(at)
        return run

    def _cut(self, run: Run, at: int) -> Run:
        """Cut a run in two; return the second part."""
        rest = self._new(run.blocks[at:], run.blocks[at - 1], run.mask, run.rooted, run.t)
        rest.times = dict(run.times)
        del run.blocks[at:]
        for bit, names in run.names.items():
            rest.names[bit] = names[at:]
            del names[at:]
        for holder in self._holders_of(rest.mask):
            holder.book.update(zip(rest.names.get(holder.bit, rest.blocks), repeat(rest.id)))
            if holder.aliases:
                for block in holder.aliases.keys() & set(rest.blocks):
                    holder.book.update(zip(holder.aliases[block], repeat(rest.id)))
        return rest

    def _take_out(self, holder: Holder, run: Run, place: int) -> None:
        """Take a block from the middle of a run, or one that others hold too, or one on which runs hang."""
        bit = holder.bit
        if place + 1 < len(run.blocks):
            self._cut(run, place + 1)
        if place:
            run = self._cut(run, place)
        if run.rooted & bit:
            self._unroot_below(bit, run.blocks)
        run.drop(bit)
        if not run.mask:
            self._kill(run)
        else:
            self._join_next(run)

    def _join_next(self, run: Run) -> None:
        """Put a run of one block in front of the run behind it, if that is the only one and the same nodes hold it."""
        block = run.blocks[0]
        behind = self._children.get(block)
        if behind is None or len(behind) > 1 or len(run.blocks) > 1:
            return
        rest = self._run(next(iter(behind)))
        if (rest.mask, rest.rooted) != (run.mask, run.rooted) or len(rest.blocks) >= LONGEST:
            return
        for holder in self._holders_of(run.mask):
            bit = holder.bit
            name = run.names[bit][0] if bit in run.names else block
            if name != block and bit not in rest.names:
                rest.names[bit] = list(rest.blocks)
            if bit in rest.names:
                rest.names[bit].insert(0, name)
            holder.book[name] = rest.id
            for other in holder.aliases.get(block, ()):
                holder.book[other] = rest.id
        del self._heads[rest.blocks[0]]
        del self._children[block]
        rest.blocks.insert(0, block)
        rest.after = run.after
        self._heads[block] = rest
        if run.after is not None:
            self._children[run.after].add(rest.id)
        self._discard(run)

    def _kill(self, run: Run) -> None:
        """Drop a run that nobody holds."""
        del self._heads[run.blocks[0]]
        self.size -= len(run.blocks)
        if not self._children.keys().isdisjoint(run.blocks):
            self._lost.update(self._children.keys() & set(run.blocks))
        self._discard(run)

    def _discard(self, run: Run) -> None:
        self._runs[run.id] = None
        self._free.append(run.id)
        after = run.after
        if after is not None:
            behind = self._children[after]
            behind.discard(run.id)
            if not behind:
                del self._children[after]
                self._lost.discard(after)

    def _holders_of(self, mask: int) -> Iterator[Holder]:
        while mask:
            bit = mask & -mask
            mask ^= bit
            yield self._holders[bit]

    def _behind(self, blocks: list[int]) -> list[Run]:
        if self._children.keys().isdisjoint(blocks):
            return []
        return [self._run(at) for block in blocks for at in self._children.get(block, ())]

    def _root_below(self, bit: int, blocks: list[int]) -> None:
        todo = self._behind(blocks)
        while todo:
            run = todo.pop()
            if run.mask & bit and not run.rooted & bit:
                run.rooted |= bit
                todo += self._behind(run.blocks)

    def _unroot_below(self, bit: int, blocks: list[int]) -> None:
        todo = self._behind(blocks)
        while todo:
            run = todo.pop()
            if run.rooted & bit:
                run.rooted &= ~bit
                todo += self._behind(run.blocks)
