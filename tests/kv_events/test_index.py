# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time

import pytest

from kv_events.index import BlockIndex
from kv_events.types import NodeId
from kv_events.wire import KvEvent, Stored, Unknown
from tests.kv_events.events import A, B, C, chain, cleared, removed, stored, tokens_hash


def index_with(*events: KvEvent, **options: int) -> BlockIndex:
    index = BlockIndex(**options)
    for event in events:
        index.apply(event, 0.0)
    return index


def test_overlap_is_the_longest_prefix_per_node() -> None:
    index = index_with(stored([1, 2, 3]), stored([1, 2], node=B), stored([2, 3], node=C))
    assert index.overlap(chain([1, 2, 3, 4])) == {A: 3, B: 2}
    assert index.overlap(chain([2, 3])) == {C: 2}
    assert index.overlap(chain([5])) == {}
    assert index.overlap([]) == {}


def test_a_run_goes_on_from_its_parent() -> None:
    index = index_with(stored([1, 2]), stored([3, 4], 2), stored([5], 2))
    assert index.overlap(chain([1, 2, 3, 4])) == {A: 4}
    assert index.overlap(chain([1, 2, 5])) == {A: 3}


def test_c2_cleared_concerns_one_rank_and_one_tier() -> None:
    names = range(1, 11)
    index = index_with(stored(names), stored(names, node=B), stored(names, node=B, tier="host_pinned"), cleared(node=B))
    assert index.overlap(chain(names)) == {A: 10}
    assert index.beyond(B, chain(names), 0, ["host_pinned"]) == {"host_pinned": 10}
    index.apply(cleared(node=B, tier="host_pinned"), 0.0)
    assert index.beyond(B, chain(names), 0, ["host_pinned"]) == {}
    assert index.overlap(chain(names)) == {A: 10}


def test_c2_a_kind_that_we_do_not_know_is_counted() -> None:
    index = index_with(KvEvent(A, 1, Unknown("moved")), stored([1]))
    assert index.counters.unknown == 1
    assert index.overlap(chain([1])) == {A: 1}


def test_c4_stored_twice_and_removed_once_is_gone() -> None:
    index = BlockIndex()
    for event, distinct in ((stored([1]), 1), (stored([1]), 1), (removed([1]), 0)):
        index.apply(event, 0.0)
        assert index.stats().blocks == index.stats().resident == distinct
    assert index.overlap(chain([1])) == {}


def test_c4_a_block_that_is_its_own_parent_is_rejected() -> None:
    index = index_with(stored([1]), stored([5, 6], 5), stored([7, 7, 8], 1), stored([9, 1], 1))
    assert index.counters.self_parented == 3
    assert index.overlap(chain([1, 7, 8])) == {A: 1}
    assert index.stats().orphans == 0


def test_c5_an_orphan_run_counts_once_its_beginning_is_known() -> None:
    index = index_with(stored(range(42, 51), 41))
    names = range(1, 51)
    assert index.overlap(chain(names)) == {}
    assert index.stats().orphans == 9
    index.apply(stored(range(1, 42)), 1.0)
    assert index.overlap(chain(names)) == {A: 50}
    assert index.stats().orphans == 0
    assert index.counters.joined == 9


def test_c5_orphans_are_bounded_and_the_oldest_go() -> None:
    index = BlockIndex(max_orphans=10)
    for run in range(5):
        index.apply(stored([100 * run + 1, 100 * run + 2, 100 * run + 3], 100 * run), 0.0)
    assert index.stats().orphans == 9
    assert index.counters.orphans_dropped == 6
    index.apply(stored([0]), 0.0)
    assert index.overlap(chain([0, 1])) == {A: 1}
    index.apply(stored([400]), 0.0)
    assert index.overlap(chain([400, 401, 402, 403])) == {A: 4}
    index.apply(stored(range(2000, 2020), 1999), 0.0)
    assert index.stats().orphans <= 10


def test_c5_the_bound_holds_over_all_nodes() -> None:
    index = BlockIndex(max_orphans=10)
    for rank in range(20):
        index.apply(stored([1, 2, 3, 4], 77, node=NodeId(1, rank)), 0.0)
    assert index.stats().orphans <= 10


def test_what_is_removed_while_it_waits_does_not_come_back() -> None:
    index = index_with(stored([2, 3, 4], 1), stored([5], 3), removed([3]), stored([1]))
    assert index.overlap(chain([1, 2, 3, 4])) == {A: 2}
    assert index.counters.unknown_removed == 0
    index.apply(stored([3], 2), 0.0)
    assert index.overlap(chain([1, 2, 3, 4])) == {A: 4}
    assert index.overlap(chain([1, 2, 3, 5])) == {A: 4}


def test_removed_and_announced_again_while_it_waits() -> None:
    index = index_with(stored([2], 1), removed([2]), stored([2], 1), stored([1]))
    assert index.overlap(chain([1, 2])) == {A: 2}


def test_orphans_of_orphans() -> None:
    index = index_with(stored([3], 2), stored([4], 3), stored([2], 1), stored([1]))
    assert index.overlap(chain([1, 2, 3, 4])) == {A: 4}


def test_c6_an_unknown_hash_in_a_removal() -> None:
    index = index_with(stored([1]), stored([2]), stored([3]), removed([1, 99, 3]))
    assert [index.overlap(chain([name])) for name in (1, 2, 3)] == [{}, {A: 1}, {}]
    assert index.counters.unknown_removed == 1
    assert index.counters.removed == 2


@pytest.mark.parametrize(
    ("gone", "left"),
    [
        ([5, 4, 3], 2),
        ([5, 4, 3, 2, 1], 0),
        ([5, 4, 99, 3], 2),
        ([5, 3, 4], 2),
        ([5, 5, 4], 3),
        ([3, 4, 5], 2),
        ([5, 4, 3, 2, 1, 5], 0),
    ],
)
@pytest.mark.parametrize("others", ["nobody", "another node", "a branch", "another name"])
def test_the_end_of_a_run_goes_at_once_and_to_the_same_effect(gone: list[int], left: int, others: str) -> None:
    index = index_with(stored([1, 2, 3, 4, 5]))
    if others == "another node":
        index.apply(stored([1, 2, 3, 4, 5], node=B), 0.0)
    elif others == "a branch":
        index.apply(stored([6, 7], 3), 0.0)
    elif others == "another name":
        index.apply(KvEvent(A, 1, Stored([50], [tokens_hash(5)], 4)), 0.0)
    index.apply(removed(gone), 0.0)
    assert index.overlap(chain([1, 2, 3, 4, 5])).get(A, 0) == left
    index.apply(removed([7, 6, 50] if others != "another node" else []), 0.0)
    index.apply(removed([5, 4, 3, 2, 1]), 0.0)
    stats = index.node_stats(A)
    assert stats is not None
    assert stats.blocks == 0
    assert index.stats().blocks == (5 if others == "another node" else 0)


def test_a_hole_in_the_middle_hides_what_is_behind_it_until_it_closes() -> None:
    index = index_with(stored([1, 2, 3, 4, 5]), stored([6], 3), stored([1, 2, 3, 4, 5], node=B), removed([3]))
    assert index.overlap(chain([1, 2, 3, 4, 5])) == {A: 2, B: 5}
    assert index.overlap(chain([1, 2, 3, 6])) == {A: 2, B: 3}
    index.apply(removed([5]), 0.0)
    index.apply(stored([3], 2), 0.0)
    assert index.overlap(chain([1, 2, 3, 4, 5])) == {A: 4, B: 5}
    assert index.overlap(chain([1, 2, 3, 6])) == {A: 4, B: 3}


def test_two_names_of_one_block() -> None:
    index = BlockIndex()
    for name in (10, 11):
        index.apply(KvEvent(A, 1, Stored([name], [tokens_hash(1)])), 0.0)
    index.apply(removed([10]), 0.0)
    assert index.overlap(chain([1])) == {A: 1}
    index.apply(removed([10]), 0.0)
    assert index.counters.unknown_removed == 1
    index.apply(removed([11]), 0.0)
    assert index.overlap(chain([1])) == {}


def test_a_name_given_to_another_block_gives_up_the_first() -> None:
    index = index_with(stored([1]), KvEvent(A, 2, Stored([1], [tokens_hash(2)])))
    assert index.overlap(chain([1])) == {}
    assert index.overlap(chain([2])) == {A: 1}
    index.apply(removed([1]), 0.0)
    assert index.stats().blocks == 0


def test_names_that_are_sequence_hashes_as_the_mock_worker_sends_them() -> None:
    hashes = chain([1, 2, 3])
    tokens = [tokens_hash(name) for name in (1, 2, 3)]
    index = index_with(
        KvEvent(A, 1, Stored(hashes[:2], tokens[:2])), KvEvent(A, 2, Stored(hashes[2:], tokens[2:], hashes[1]))
    )
    assert index.overlap(hashes) == {A: 3}
    index.apply(removed([hashes[2]]), 0.0)
    assert index.overlap(hashes) == {A: 2}


def test_behind_a_block_that_is_in_another_tier_only_nothing_is_a_prefix() -> None:
    index = index_with(stored([1, 2], tier="host_pinned"), stored([3], 2), stored([4], 3, tier="host_pinned"))
    assert index.overlap(chain([1, 2, 3])) == {}
    assert index.beyond(A, chain([1, 2, 3, 4]), 0, ["host_pinned"]) == {"host_pinned": 2}
    index.apply(stored([1, 2]), 0.0)
    assert index.overlap(chain([1, 2, 3])) == {A: 3}


def test_a_run_from_the_middle_without_a_parent_is_not_taken_for_a_beginning() -> None:
    index = index_with(KvEvent(A, 1, Stored([1], [tokens_hash(1)], None, 64)))
    assert index.counters.misplaced == 1
    assert index.overlap(chain([1])) == {}
    index.apply(KvEvent(A, 1, Stored([1], [tokens_hash(1)], None, 0)), 0.0)
    assert index.overlap(chain([1])) == {A: 1}


def test_c7_each_node_has_its_own_block_size() -> None:
    index = index_with(stored([1, 2]), stored([1, 2], node=B))
    index.set_block_size(A, 16)
    index.set_block_size(B, 64)
    assert index.overlap(chain([1, 2]), 16) == {A: 2}
    assert index.overlap(chain([1, 2]), 64) == {B: 2}
    assert index.overlap(chain([1, 2])) == {A: 2, B: 2}
    assert (index.block_size(A), index.block_size(B), index.block_size(C)) == (16, 64, None)
    index.set_block_size(A, 64)
    assert index.overlap(chain([1, 2]), 64) == {B: 2}


def test_c12_a_worker_that_leaves_takes_all_its_ranks() -> None:
    index = index_with(stored([1, 2]), stored([1, 2], node=B), stored([1, 2], node=C))
    assert sorted(index.drop_worker(7)) == [A, B]
    assert index.overlap(chain([1, 2])) == {C: 2}
    assert index.nodes == (C,)
    assert index.node_stats(A) is None


def test_blocks_of_a_node_that_left_are_freed_by_and_by() -> None:
    index = BlockIndex()
    for node in (A, C):
        for first in range(0, 3000, 100):
            index.apply(stored(range(first, first + 100), node=node), 0.0)
    index.drop_node(A)
    index.apply(stored([0, 1], node=B), 0.0)
    assert index.overlap(chain(range(10))) == {C: 10, B: 2}
    for at in range(10):
        index.apply(removed([at], node=B), 0.0)
    index.drop_node(C)
    for _ in range(20):
        index.apply(removed([1], node=B), 0.0)
    assert index.stats().blocks == index.stats().resident == 0


def test_staleness_is_per_node() -> None:
    index = index_with(stored([1]), stored([1], node=B))
    index.set_stale(A, True)
    assert (index.is_stale(A), index.is_stale(B), index.is_stale(C)) == (True, False, False)
    index.set_stale(A, False)
    assert not index.is_stale(A)


@pytest.mark.parametrize("bound", [{"max_blocks": 10}, {"max_nodes": 2}])
def test_memory_is_bounded(bound: dict[str, int]) -> None:
    index = BlockIndex(**bound)
    for worker in range(50):
        index.apply(stored(range(100 * worker, 100 * worker + 4), node=NodeId(worker, 0)), 0.0)
    assert index.stats().resident <= 10
    assert index.counters.refused > 0
    index.apply(removed(range(4), node=NodeId(0, 0)), 0.0)
    index.apply(stored([7], node=NodeId(0, 0)), 0.0)
    assert index.overlap(chain([7])) == {NodeId(0, 0): 1}


def test_tiers_are_bounded() -> None:
    index = index_with(*(stored([1], tier=f"t{at}") for at in range(20)))
    stats = index.node_stats(A)
    assert stats is not None
    assert len(stats.lower) == 8
    assert index.counters.refused == 12


def test_a_big_removal_is_fast_enough_for_the_event_loop() -> None:
    index = index_with(stored(range(50_000)))
    begun = time.perf_counter()
    index.apply(removed(range(49_999, -1, -1)), 0.0)
    assert time.perf_counter() - begun < 1.0
    assert index.stats().blocks == 0
