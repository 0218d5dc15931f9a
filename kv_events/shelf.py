# SPDX-License-Identifier: Apache-2.0
"""What one node holds in one tier, by the engine's names, and the runs that wait for their parent."""

from __future__ import annotations

from kv_events.wire import Stored


class Shelf:
    """The blocks of one node in a tier below the device, by the engine's names.

    ``blocks`` counts the names of each block (sequence hash), so that it stays until its last name is removed.
    """

    __slots__ = ("blocks", "names")

    def __init__(self) -> None:
        self.blocks: dict[int, int] = {}
        self.names: dict[int, int] = {}

    def put(self, name: int, block: int) -> None:
        """Take in a block under a name."""
        old = self.names.get(name)
        if old == block:
            return
        if old is not None:
            self.take(name)
        self.names[name] = block
        self.blocks[block] = self.blocks.get(block, 0) + 1

    def take(self, name: int) -> bool:
        """Give up a name, and with its last name the block; return whether there was such a name."""
        block = self.names.pop(name, None)
        if block is None:
            return False
        names = self.blocks[block] - 1
        if names:
            self.blocks[block] = names
        else:
            del self.blocks[block]
        return True


class Orphans:
    """Runs whose parent was never announced, by the parent's name; at most ``limit`` blocks, oldest dropped."""

    __slots__ = ("_home", "_runs", "limit", "size")

    def __init__(self, limit: int) -> None:
        self._runs: dict[int, list[Waiting]] = {}
        self._home: dict[int, int] = {}
        self.limit = limit
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self._runs)

    def keep(self, run: Waiting) -> int:
        """Keep a run; return how many blocks had to be dropped for it."""
        dropped = 0
        parent = run.parent
        if len(run.names) > self.limit:
            return len(run.names)
        runs = self._runs.setdefault(parent, [])
        runs.append(run)
        self.size += len(run.names)
        for name in run.names:
            if name in self._home:
                self._announced_again(name)
            self._home[name] = parent
        while self.size > self.limit:
            oldest = next(iter(self._runs))
            dropped += sum(len(gone.names) for gone in self.claim(oldest))
        return dropped

    def claim(self, parent: int) -> list[Waiting]:
        """Hand over the runs that wait for a parent."""
        runs = self._runs.pop(parent, None)
        if runs is None:
            return []
        for run in runs:
            self.size -= len(run.names)
            for name in run.names:
                if self._home.get(name) == parent:
                    del self._home[name]
        return runs

    def drop_tier(self, tier: str) -> None:
        """Drop the runs of one tier."""
        for parent in list(self._runs):
            for run in self.claim(parent):
                if run.tier != tier:
                    self.keep(run)

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


class Waiting:
    """One stored event that waits; ``gone`` are the names of it that were removed meanwhile."""

    __slots__ = ("data", "gone", "names", "parent", "t", "tier")

    def __init__(self, tier: str, data: Stored, t: float) -> None:
        self.tier = tier
        self.data = data
        self.t = t
        self.parent = data.parent_hash or 0
        self.names = set(data.block_hashes)
        self.gone: set[int] = set()

    def strike(self, name: int) -> bool:
        """Note that one of its blocks was removed; return whether it has it."""
        if name not in self.names or name in self.gone:
            return False
        self.gone.add(name)
        return True
