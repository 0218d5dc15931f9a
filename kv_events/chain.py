# SPDX-License-Identifier: Apache-2.0
"""Dynamo's names for the blocks of a token sequence.

The tokens hash of a block is xxh3_64 over its tokens as little-endian u32; the sequence hash of block *i* is
xxh3_64(le64(sequence hash of *i* - 1) + le64(tokens hash of *i*)), that of the first block its tokens hash. So equal
sequence hashes mean equal prefixes. A LoRA name and a cache salt change the seed of the tokens hash, each once
(`compute_salt_hash` in Dynamo's crate kv-hashing); an empty name is no name.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Final

import xxhash

SEED: Final = 1337
_MASK: Final = (1 << 64) - 1
pack_pair = Struct("<QQ").pack
xxh3 = xxhash.xxh3_64_intdigest


def hash_seed(salt: str | None = None, lora: str | None = None) -> int:
    """Return the seed of the tokens hash under a cache salt and a LoRA name."""
    seed = SEED
    if lora:
        seed += xxh3(lora.encode(), 0)
    if salt:
        seed += xxh3(salt.encode(), 1)
    return seed & _MASK


def next_hash(parent: int | None, tokens_hash: int) -> int:
    """Return the sequence hash of a block, given that of its parent (None for a first block)."""
    return tokens_hash if parent is None else xxh3(pack_pair(parent, tokens_hash), SEED)


def sequence_hashes(tokens_hashes: Sequence[int], parent: int | None = None) -> list[int]:
    """Chain tokens hashes to sequence hashes, one for each."""
    chained: list[int] = []
    last = parent
    for tokens_hash in tokens_hashes:
        last = tokens_hash if last is None else xxh3(pack_pair(last, tokens_hash), SEED)
        chained.append(last)
    return chained


def block_hashes(
    tokens: Sequence[int], block_size: int, *, salt: str | None = None, lora: str | None = None
) -> list[int]:
    """Return the tokens hashes of all full blocks, ``len(tokens) // block_size`` of them.

    Raises:
        OverflowError: a token id is negative or no u32.
    """
    return _tokens_hashes(_as_bytes(tokens), 4 * block_size, hash_seed(salt, lora))


class TokenChain:
    """The sequence hashes of one growing token sequence.

    A turn's prompt is, as a rule, the prompt of the turn before and something more. Then only the new blocks are
    hashed: that the old part has not changed is told by one 128-bit digest over it, which costs microseconds.
    Memory: 8 bytes per block.
    """

    __slots__ = ("_digest", "_seed", "block_size", "hashes")

    def __init__(self, block_size: int, *, salt: str | None = None, lora: str | None = None) -> None:
        self.block_size = block_size
        self.hashes: array[int] = array("Q")
        self._seed = hash_seed(salt, lora)
        self._digest = b""

    def update(self, tokens: Sequence[int]) -> int:
        """Take the whole sequence as it is now; return how many blocks of the old one are kept.

        Raises:
            OverflowError: a token id is negative or no u32; the chain is as it was.
        """
        data = _as_bytes(tokens)
        width = 4 * self.block_size
        old = self.hashes
        size = len(old) * width
        full = len(data) - len(data) % width
        if 0 < size <= full and xxhash.xxh3_128_digest(data[:size]) == self._digest:
            kept = len(old)
            fresh = _tokens_hashes(data[size:full], width, self._seed)
            old.extend(sequence_hashes(fresh, old[-1]))
        else:
            new = array("Q", sequence_hashes(_tokens_hashes(data, width, self._seed)))
            kept = common(old, new)
            self.hashes = new
        self._digest = xxhash.xxh3_128_digest(data[:full])
        return kept


def common(old: Sequence[int], new: Sequence[int]) -> int:
    """Return the length of the common prefix of two chains of sequence hashes, in O(log n)."""
    low, high = 0, min(len(old), len(new))
    if high and old[high - 1] == new[high - 1]:
        return high
    while low < high:
        middle = (low + high) // 2
        if old[middle] == new[middle]:
            low = middle + 1
        else:
            high = middle
    return low


def _as_bytes(tokens: Sequence[int]) -> memoryview:
    packed = tokens if isinstance(tokens, array) and tokens.typecode == "I" else array("I", tokens)
    if sys.byteorder == "big":
        packed = packed[:]
        packed.byteswap()
    return memoryview(packed).cast("B")


def _tokens_hashes(data: memoryview, width: int, seed: int) -> list[int]:
    return [xxh3(data[at : at + width], seed) for at in range(0, len(data) - width + 1, width)]
