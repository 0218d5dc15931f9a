# SPDX-License-Identifier: Apache-2.0
"""Which part of a session's context it shares with other live sessions (DESIGN §4.7).

Sessions of one harness begin with the same system prompt. On a node those blocks exist once, so they are
charged once. The registry counts, for a sample of block positions of each session's first prompt, how many
live sessions pass through that block. A session's shared prefix is the longest sampled prefix that at least
one other session has too.

Counts only fall along a chain, so what one session shares with the others ends at one position. Next to the
count stands the XOR of the sessions' numbers: when a count falls to one, it names the session that is left.
The answer does not depend on the order in which sessions come and go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class SharedPrefix(NamedTuple):
    """A prefix that several live sessions have: the hash of its last block, and its length in tokens."""

    key: int
    tokens: int


class PrefixRegistry:
    """Shared prefixes of all live sessions.

    Args:
        stride: every how many blocks a chain is sampled; lengths are rounded down to it.
        max_blocks: blocks of a first prompt that are looked at, which bounds the memory per session.
    """

    def __init__(self, *, stride: int = 4, max_blocks: int = 4096) -> None:
        self._stride = stride
        self._max_blocks = max_blocks
        self._seen: dict[int, tuple[int, int]] = {}
        self._chains: dict[int, tuple[tuple[int, ...], int]] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, session: int, hashes: Sequence[int], block_size: int) -> set[int]:
        """Count a session in. Returns the sessions whose shared prefix may have changed, itself included."""
        sampled = tuple(hashes[self._stride - 1 : self._max_blocks : self._stride])
        self._chains[session] = (sampled, block_size)
        changed = {session}
        for block in sampled:
            count, members = self._seen.get(block, (0, 0))
            if count == 1:
                changed.add(members)
            self._seen[block] = (count + 1, members ^ session)
        return changed

    def remove(self, session: int) -> set[int]:
        """Count a session out. Returns the other sessions whose shared prefix may have changed."""
        sampled, _ = self._chains.pop(session, ((), 0))
        changed: set[int] = set()
        for block in sampled:
            count, members = self._seen[block]
            if count == 1:
                del self._seen[block]
                continue
            self._seen[block] = (count - 1, members ^ session)
            if count == 2:
                changed.add(members ^ session)
        return changed

    def common(self, first: int, second: int) -> int:
        """Tokens that the first prompts of two sessions have in common, rounded down to the stride."""
        one, two = self._chains.get(first), self._chains.get(second)
        if one is None or two is None or one[1] != two[1]:
            return 0
        low, high = 0, min(len(one[0]), len(two[0]))
        while low < high:
            middle = (low + high) // 2
            if one[0][middle] == two[0][middle]:
                low = middle + 1
            else:
                high = middle
        return low * self._stride * one[1]

    def shared(self, session: int) -> SharedPrefix | None:
        """The longest prefix that this session has in common with another live session."""
        entry = self._chains.get(session)
        if entry is None:
            return None
        sampled, block_size = entry
        low, high = 0, len(sampled)
        while low < high:
            middle = (low + high) // 2
            if self._seen[sampled[middle]][0] > 1:
                low = middle + 1
            else:
                high = middle
        if not low:
            return None
        return SharedPrefix(sampled[low - 1], low * self._stride * block_size)
