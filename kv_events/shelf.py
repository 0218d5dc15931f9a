# SPDX-License-Identifier: Apache-2.0
"""What one node holds in one tier, by the engine's names, and the runs that wait for their parent."""

from __future__ import annotations

from collections.abc import Iterable

from kv_events.wire import StoredBlock


class Shelf:
    """The blocks of one node in one tier.

    ``blocks`` maps a sequence hash to the time of the last stored event that named it. Engines that name a block by
    its sequence hash (Dynamo's mock workers) need no further map; for the others ``names`` maps the engine's name to
    it, and ``more`` counts the second, third, … name of a block, so that it stays until its last name is removed.
    """

    __slots__ = ("blocks", "more", "names")

    def __init__(self) -> None:
        self.blocks: dict[int, float] = {}
        self.names: dict[int, int] = {}
        self.more: dict[int, int] = {}

    def find(self, name: int) -> int | None:
        """Return the sequence hash of the block of that name."""
        block = self.names.get(name)
        if block is None and name in self.blocks:
            return name
        return block

    def take(self, name: int) -> tuple[int | None, bool]:
        """Give up a name; return its block (None: unknown name) and whether the block is gone with it."""
        block = self.names.pop(name, None)
        if block is None:
            block = name
        others = self.more.get(block, 0)
        if others:
            if others > 1:
                self.more[block] = others - 1
            else:
                del self.more[block]
            return block, False
        if self.blocks.pop(block, None) is None:
            return None, False
        return block, True


class Orphans:
    """Runs whose parent was never announced, by the parent's name; at most ``limit`` blocks, oldest dropped."""

    __slots__ = ("_home", "_runs", "limit", "size")

    def __init__(self, limit: int) -> None:
        self._runs: dict[int, list[Run]] = {}
        self._home: dict[int, int] = {}
        self.limit = limit
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self._runs)

    def keep(self, parent: int, run: Run) -> int:
        """Keep a run; return how many blocks had to be dropped for it."""
        dropped = 0
        if len(run.blocks) > self.limit:
            return len(run.blocks)
        runs = self._runs.setdefault(parent, [])
        runs.append(run)
        self.size += len(run.blocks)
        for name in run.names:
            if name in self._home:
                self._announced_again(name)
            self._home[name] = parent
        while self.size > self.limit:
            oldest = next(iter(self._runs))
            dropped += sum(len(gone.blocks) for gone in self.claim(oldest))
        return dropped

    def claim(self, parent: int) -> list[Run]:
        """Hand over the runs that wait for a parent."""
        runs = self._runs.pop(parent, None)
        if runs is None:
            return []
        for run in runs:
            self.size -= len(run.blocks)
            for name in run.names:
                if self._home.get(name) == parent:
                    del self._home[name]
        return runs

    def drop_tier(self, tier: str) -> None:
        """Drop the runs of one tier."""
        for parent in list(self._runs):
            for run in self.claim(parent):
                if run.tier != tier:
                    self.keep(parent, run)

    def strike(self, tier: str, name: int) -> bool:
        """Note that a waiting block was removed; return whether it was one."""
        parent = self._home.get(name)
        if parent is None:
            return False
        hit = False
        for run in self._runs.get(parent, ()):
            if run.tier == tier and run.strike(name):
                hit = True
        return hit

    def _announced_again(self, name: int) -> None:
        for run in self._runs.get(self._home[name], ()):
            run.gone.discard(name)


class Run:
    """One stored event that waits; ``gone`` are those of its blocks that were removed meanwhile."""

    __slots__ = ("blocks", "gone", "names", "t", "tier")

    def __init__(self, tier: str, blocks: Iterable[StoredBlock], t: float) -> None:
        self.tier = tier
        self.blocks = list(blocks)
        self.t = t
        self.names = {block.block_hash for block in self.blocks}
        self.gone: set[int] = set()

    def strike(self, name: int) -> bool:
        """Note that one of its blocks was removed; return whether it has it."""
        if name not in self.names or name in self.gone:
            return False
        self.gone.add(name)
        return True
