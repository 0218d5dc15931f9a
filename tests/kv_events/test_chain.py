# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv_events.chain import TokenChain, block_hashes, common, next_hash, sequence_hashes

# What dynamo.llm.compute_block_hash_for_seq of Dynamo 1.6.1 returns for range(32), block size 16.
DYNAMO = {
    (None, None): [15310707395893867146],
    (None, "adapter"): [8452581587455479075],
    ("ns", None): [14456718079074535195],
    ("ns", "adapter"): [9720303643282159755],
}


def test_as_dynamo_hashes() -> None:
    for (salt, lora), first in DYNAMO.items():
        assert block_hashes(range(16), 16, salt=salt, lora=lora) == first
    assert block_hashes(range(32), 16, salt="ns")[1] == 6215220757240946953
    assert block_hashes(range(16), 16, salt="", lora="") == DYNAMO[None, None]


@pytest.mark.parametrize(("salt", "lora"), list(DYNAMO))
@pytest.mark.parametrize("size", [16, 32, 64])
def test_equal_to_the_installed_dynamo(salt: str | None, lora: str | None, size: int) -> None:
    compute = pytest.importorskip("dynamo.llm").compute_block_hash_for_seq
    rng = random.Random(size)
    tokens = [rng.randrange(2**32) for _ in range(1000)]
    assert block_hashes(tokens, size, salt=salt, lora=lora) == compute(tokens, size, None, lora, None, salt)


def test_a_first_blocks_sequence_hash_is_its_tokens_hash() -> None:
    assert next_hash(None, 5) == 5
    assert sequence_hashes([5, 6, 7])[1:] == sequence_hashes([6, 7], 5)
    assert next_hash(5, 6) == sequence_hashes([5, 6])[1]


def test_c17_no_overlap_across_adapters_and_salts_and_each_applied_once() -> None:
    tokens = list(range(64))
    variants = [(None, None), ("s", None), ("t", None), (None, "a"), (None, "b"), ("s", "a"), ("a", None), ("a", "s")]
    chains = []
    for salt, lora in variants:
        chain = TokenChain(16, salt=salt, lora=lora)
        chain.update(tokens)
        assert list(chain.hashes) == sequence_hashes(block_hashes(tokens, 16, salt=salt, lora=lora))
        chains.append(set(chain.hashes))
    for at, one in enumerate(chains):
        assert all(one.isdisjoint(other) for other in chains[at + 1 :])


def test_an_update_keeps_what_has_not_changed() -> None:
    chain = TokenChain(4)
    assert chain.update(range(10)) == 0
    assert len(chain.hashes) == 2
    kept = chain.hashes
    assert chain.update(range(17)) == 2
    assert chain.hashes is kept
    assert len(kept) == 4
    assert chain.update([*range(9), 99, *range(10, 17)]) == 2
    assert chain.update(range(6)) == 1
    assert chain.update([]) == 0
    assert len(chain.hashes) == 0


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.lists(st.integers(0, 3), max_size=30)), max_size=8))
def test_updates_equal_hashing_afresh(edits: list[tuple[int, list[int]]]) -> None:
    chain = TokenChain(3)
    tokens: list[int] = []
    for cut, more in edits:
        old = list(chain.hashes)
        tokens = tokens[:cut] + more
        kept = chain.update(tokens)
        fresh = sequence_hashes(block_hashes(tokens, 3))
        assert list(chain.hashes) == fresh
        assert fresh[:kept] == old[:kept]
        assert kept == len(old) or kept == len(fresh) or fresh[kept] != old[kept]


def test_a_token_that_is_no_u32_leaves_the_chain_as_it_was() -> None:
    chain = TokenChain(2)
    chain.update([1, 2, 3, 4])
    before = list(chain.hashes)
    with pytest.raises(OverflowError):
        chain.update([1, 2, -3, 4])
    assert list(chain.hashes) == before
    assert chain.update(array("I", [1, 2, 3, 4])) == 2


def test_common_prefix() -> None:
    assert common([1, 2, 3], [1, 2, 3, 4]) == 3
    assert common([1, 2, 3], [9, 8, 7]) == 0
    assert common([1, 2, 3, 4, 5], [1, 2, 9, 8, 7]) == 2
    assert common([], [1]) == 0
