# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
from array import array

import pytest

from kv_events.chain import TokenChain, block_hashes, sequence_hashes
from kv_events.credit import CreditTable
from kv_events.index import BlockIndex
from kv_events.types import NodeId
from kv_events.wire import Cleared, KvEvent, Removed, Stored
from tests.kv_events.events import A, B, C, chain, cleared, removed, stored

SIZE = 16


def table_with(*nodes: NodeId, size: int = SIZE, **options: object) -> tuple[BlockIndex, CreditTable]:
    index = BlockIndex()
    for node in nodes:
        index.set_block_size(node, size)
    return index, CreditTable(index, **options)  # type: ignore[arg-type]


def test_no_evidence_no_credit() -> None:
    _, table = table_with(A)
    assert table.credits("s", 0.0) == {}
    assert table.resident("s") == {}
    table.turn("s", {SIZE: chain([1, 2])}, 0.0)
    assert table.credits("s", 0.0) == {}


def test_credit_halves_in_a_half_life_from_the_last_confirmation() -> None:
    index, table = table_with(A, half_life_s=10.0)
    index.apply(stored([1, 2, 3, 4]), 100.0)
    table.turn("s", {SIZE: chain([1, 2, 3, 4])}, 101.0)
    assert table.credits("s", 100.0) == {A: 64}
    assert table.credits("s", 110.0) == {A: 32}
    assert table.credits("s", 105.0) == {A: int(64 * 2**-0.5)}
    assert table.credits("s", 161.0) == {}
    assert table.resident("s") == {A: 64}
    table.ran_on("s", A, 64, 110.0)
    assert table.credits("s", 120.0) == {A: 32}
    index.apply(stored([1, 2, 3, 4]), 130.0)
    assert table.credits("s", 130.0) == {A: 64}
    assert table.credits("s", 90.0) == {A: 64}


def test_a_removed_block_shortens_the_prefix_at_once() -> None:
    index, table = table_with(A)
    index.apply(stored([1, 2, 3, 4]), 0.0)
    table.turn("s", {SIZE: chain([1, 2, 3, 4])}, 0.0)
    assert table.credits("s", 0.0) == {A: 64}
    index.apply(removed([4]), 0.0)
    assert table.credits("s", 0.0) == {A: 48}
    index.apply(removed([2]), 0.0)
    assert table.credits("s", 0.0) == {A: 16}
    index.apply(stored([2], 1), 0.0)
    assert table.credits("s", 0.0) == {A: 48}
    index.apply(cleared(), 0.0)
    assert table.credits("s", 0.0) == {}


def test_a_stale_node_counts_half() -> None:
    index, table = table_with(A, B)
    for node in (A, B):
        index.apply(stored([1, 2], node=node), 0.0)
    table.turn("s", {SIZE: chain([1, 2])}, 0.0)
    index.set_stale(A, True)
    assert table.credits("s", 0.0) == {A: 16, B: 32}
    index.set_stale(A, False)
    assert table.credits("s", 0.0) == {A: 32, B: 32}


def test_c7_credit_is_in_tokens_whatever_the_block_size() -> None:
    index = BlockIndex()
    table = CreditTable(index)
    tokens = list(range(256))
    chains = {}
    for node, size in ((A, 16), (C, 64)):
        index.set_block_size(node, size)
        hashes = block_hashes(tokens[:128], size)
        index.apply(KvEvent(node, 1, Stored(sequence_hashes(hashes), hashes)), 0.0)
        chains[size] = sequence_hashes(block_hashes(tokens, size))
    table.turn("s", chains, 0.0)
    assert table.credits("s", 0.0) == {A: 128, C: 128}
    table.turn("s", {16: chains[16]}, 0.0)
    assert table.credits("s", 0.0) == {A: 128}


def test_c12_credit_on_a_worker_that_left_is_gone_and_does_not_come_back() -> None:
    index, table = table_with(A, C)
    for node in (A, C):
        index.apply(stored([1, 2], node=node), 0.0)
    table.turn("s", {SIZE: chain([1, 2])}, 0.0)
    table.ran_on("s", A, 32, 0.0)
    assert table.credits("s", 0.0) == {A: 32, C: 32}
    index.drop_worker(A.worker_id)
    table.forget_node(A)
    assert table.credits("s", 0.0) == {C: 32}
    index.set_block_size(A, SIZE)
    assert table.credits("s", 0.0) == {C: 32}


def test_lower_tiers_count_by_their_factor() -> None:
    index, table = table_with(A, B, tier_factors={"host_pinned": 0.5, "disk": 0.25, "external": 0.0})
    index.apply(stored([1, 2]), 0.0)
    index.apply(stored([3, 4], 2, tier="host_pinned"), 0.0)
    index.apply(stored([5], 4, tier="disk"), 0.0)
    index.apply(stored([6], 5, tier="external"), 0.0)
    index.apply(stored([1, 2], node=B, tier="host_pinned"), 0.0)
    table.turn("s", {SIZE: chain([1, 2, 3, 4, 5, 6])}, 0.0)
    assert table.resident("s") == {A: 32 + 16 + 4, B: 16}
    assert table.credits("s", 0.0) == {A: 52}
    table.ran_on("s", B, 32, 0.0)
    assert table.credits("s", 0.0) == {A: 52, B: 16}
    plain = CreditTable(index)
    plain.turn("s", {SIZE: chain([1, 2, 3, 4, 5, 6])}, 0.0)
    assert plain.resident("s") == {A: 32}
    plain.value_tier("host_pinned", 1.0)
    assert plain.resident("s") == {A: 64, B: 32}, "a worker that has the tier came later"
    plain.value_tier("host_pinned", 0.0)
    assert plain.resident("s") == {A: 32}


def test_a_silent_node_is_served_by_what_was_run_on_it() -> None:
    index, table = table_with(A, B)
    index.apply(stored([1, 2], node=B), 0.0)
    table.turn("s", {SIZE: chain(range(8))}, 0.0)
    table.ran_on("s", A, 130, 0.0)
    table.ran_on("s", B, 130, 0.0)
    assert table.credits("s", 0.0) == {}
    table.approximate(A)
    assert table.resident("s") == {A: 130}
    assert table.credits("s", 10.0) == {A: 65}
    table.turn("s", {SIZE: chain([0, 1, 2, 99])}, 10.0)
    assert table.resident("s") == {A: 48}
    table.approximate(A, on=False)
    assert table.resident("s") == {}


def test_sessions_are_bounded_and_the_one_not_heard_of_goes() -> None:
    index, table = table_with(A, max_sessions=3)
    index.apply(stored([1]), 0.0)
    for session in "abcd":
        table.turn(session, {SIZE: chain([1])}, 0.0)
        table.turn("a", {SIZE: chain([1])}, 0.0)
    assert len(table) == 3
    assert table.forgotten == 1
    assert [session for session in "abcd" if session in table] == ["a", "c", "d"]
    table.forget("a")
    assert table.credits("a", 0.0) == {}


def test_nodes_remembered_per_session_are_bounded() -> None:
    _, table = table_with(A, max_nodes_per_session=2)
    for rank in range(5):
        table.approximate(NodeId(1, rank))
        table.ran_on("s", NodeId(1, rank), 10, 0.0)
    assert table.resident("s") == {NodeId(1, 3): 10, NodeId(1, 4): 10}


def test_a_chain_that_grows_in_place() -> None:
    index, table = table_with(A, B)
    growing = TokenChain(SIZE)
    tokens = list(range(160))
    hashes = block_hashes(tokens, SIZE)
    index.apply(KvEvent(A, 1, Stored(sequence_hashes(hashes), hashes)), 0.0)
    index.apply(KvEvent(B, 1, Stored(sequence_hashes(hashes[:2]), hashes[:2])), 0.0)
    for upto, expected in ((40, {A: 32, B: 32}), (100, {A: 96, B: 32}), (160, {A: 160, B: 32})):
        growing.update(tokens[:upto])
        table.turn("s", {SIZE: growing.hashes}, 0.0)
        assert table.resident("s") == expected


@pytest.mark.parametrize("seed", range(6))
def test_residency_is_exact_whatever_happens(seed: int) -> None:
    """Against the index asked afresh, under turns, evictions from anywhere, restarts and rewritten histories."""
    rng = random.Random(seed)
    index = BlockIndex()
    table = CreditTable(index)
    nodes = [NodeId(worker, 0) for worker in range(5)]
    sizes = dict(zip(nodes, (16, 16, 16, 32, 32), strict=True))
    for node, size in sizes.items():
        index.set_block_size(node, size)
    shared = [rng.randrange(1000) for _ in range(100)]
    tokens = {str(session): list(shared) for session in range(6)}
    chains = {(session, size): TokenChain(size) for session in tokens for size in (16, 32)}
    names: dict[NodeId, list[int]] = {node: [] for node in nodes}
    for step in range(600):
        node = rng.choice(nodes)
        what = rng.random()
        if what < 0.5:
            session = rng.choice(list(tokens))
            if rng.random() < 0.1:
                tokens[session] = tokens[session][: rng.randrange(50, len(tokens[session]) + 1)]
            tokens[session] = tokens[session] + [rng.randrange(1000) for _ in range(rng.randrange(60))]
            hashes = block_hashes(tokens[session], sizes[node])
            blocks = sequence_hashes(hashes)
            index.apply(KvEvent(node, 1, Stored(blocks, hashes)), float(step))
            names[node] += blocks
            for size in (16, 32):
                chains[session, size].update(tokens[session])
            as_arrays = {size: chains[session, size].hashes for size in (16, 32)}
            copied = {size: tuple(hashes) for size, hashes in as_arrays.items()}
            table.turn(session, as_arrays if rng.random() < 0.7 else copied, float(step))
        elif what < 0.9 and names[node]:
            gone = rng.sample(names[node], min(len(names[node]), rng.randrange(1, 6)))
            index.apply(KvEvent(node, 1, Removed(gone)), float(step))
        elif what < 0.95:
            index.apply(KvEvent(node, 1, Cleared()), float(step))
            names[node].clear()
        elif what < 0.97:
            index.drop_node(node)
            index.set_block_size(node, sizes[node])
            names[node].clear()
        for session in rng.sample(list(tokens), 2):
            expected: dict[NodeId, int] = {}
            if session in table:
                for size in (16, 32):
                    hashes = sequence_hashes(block_hashes(tokens[session], size))
                    expected |= {each: size * blocks for each, blocks in index.overlap(hashes, size).items()}
            assert table.resident(session) == expected


def test_a_copied_chain_does_not_follow_the_original() -> None:
    index, table = table_with(A)
    index.apply(stored([1, 2, 3]), 0.0)
    hashes = chain([1, 2])
    table.turn("s", {SIZE: hashes}, 0.0)
    hashes.append(chain([1, 2, 3])[2])
    assert table.resident("s") == {A: 32}
    table.turn("s", {SIZE: array("Q", hashes)}, 0.0)
    assert table.resident("s") == {A: 48}
