# SPDX-License-Identifier: Apache-2.0
"""The pieces that a forest of blocks is made of, and the walk over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class Run:
    """Consecutive blocks that the same nodes hold.

    Attributes:
        blocks: sequence hashes; after: the block before the first, None at the beginning of a chain.
        mask: the nodes that hold it; rooted: those where it is rooted.
        names: per node what its engine calls the blocks; absent where the names are the sequence hashes.
        t: when a stored event last named it, on the nodes that ``times`` does not list.
    """

    __slots__ = ("after", "blocks", "id", "mask", "names", "rooted", "t", "times")

    def __init__(self, at: int, blocks: list[int], after: int | None, mask: int, rooted: int, t: float) -> None:
        self.id = at
        self.blocks = blocks
        self.after = after
        self.mask = mask
        self.rooted = rooted
        self.names: dict[int, list[int]] = {}
        self.t = t
        self.times: dict[int, float] = {}

    def touch(self, bit: int, t: float) -> None:
        """Note a stored event."""
        if self.mask == bit:
            self.t = t
        else:
            self.times[bit] = t

    def seen(self, bit: int) -> float:
        """Return when a stored event last named it on a node."""
        return self.times.get(bit, self.t)

    def drop(self, bit: int) -> None:
        """Take a node from it."""
        self.mask &= ~bit
        self.rooted &= ~bit
        self.names.pop(bit, None)
        self.times.pop(bit, None)


Cuts = list[tuple[int, int, Run]]
"""Where a chain ends: (length in blocks, the nodes whose longest prefix it is, the last run of it), ascending."""


class Holder:
    """One node's side of the forest: the engine's name of each block that it holds, to the run that has it."""

    __slots__ = ("aliases", "bit", "book", "more")

    def __init__(self, bit: int) -> None:
        self.bit = bit
        self.book: dict[int, int] = {}
        self.aliases: dict[int, list[int]] = {}
        """Block to its second, third, … name. They are in the book too."""
        self.more = 0
        """How many of those there are."""

    def __len__(self) -> int:
        """Blocks held."""
        return len(self.book) - self.more


def walk(heads: Mapping[int, Run], chain: Sequence[int], among: int) -> Cuts:
    """Return the longest prefix of a chain on each of some nodes, those with none left out.

    Args:
        heads: the runs by their first blocks.
        chain: sequence hashes, first block first.
        among: the nodes asked for.
    """
    found: Cuts = []
    nodes, at, size = among, 0, len(chain)
    last: Run | None = None
    while at < size:
        run = heads.get(chain[at])
        if run is None:
            break
        rest = nodes & run.rooted
        if rest != nodes:
            if last is not None:
                found.append((at, nodes & ~rest, last))
            nodes = rest
            if not nodes:
                return found
        last = run
        blocks = run.blocks
        end = at + len(blocks)
        at = end if end <= size and chain[end - 1] == blocks[-1] else at + match(blocks, 0, chain, at)
    if last is not None:
        found.append((at, nodes, last))
    return found


def match(blocks: Sequence[int], at: int, others: Sequence[int], start: int) -> int:
    """Return how many blocks two chains have in common from two places on, where they have the first in common.

    Equal sequence hashes mean equal prefixes, so the last equal one is found by bisection.
    """
    longest = min(len(blocks) - at, len(others) - start)
    if blocks[at + longest - 1] == others[start + longest - 1]:
        return longest
    low, high = 1, longest - 1
    while low < high:
        middle = (low + high + 1) // 2
        if blocks[at + middle - 1] == others[start + middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
