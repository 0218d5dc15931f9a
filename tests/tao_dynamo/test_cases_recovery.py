# SPDX-License-Identifier: Apache-2.0
"""What the core does when its surroundings restart or tell odd things (cases C1, C7, C16, C17, C20), and of whom it
must know that they are not the same: models and adapters.
"""

from __future__ import annotations

from solver.problem import Placement, Plan, Value
from tests.tao_dynamo.fakes import PLAIN, A, B, Driver, admitted, paused, restarted

PROMPT = tuple(range(1, 501))  # 8,000 tokens in blocks of 16


def test_c1_a_plan_made_before_an_engine_restarted_is_refused_for_its_node_only() -> None:
    d = Driver(PLAIN, {A: 10_000, B: 10_000})
    for name in ("fill-a", "fill-b", "s1", "s2"):
        d.arrive(name, 7000)
    d.hold_back = True
    for name in ("fill-a", "fill-b"):
        d.end(name)
        d.t += 0.1
        d.run(d.core.session_ended(name, d.t))
    d.t += 0.1
    d.run(d.core.time_passes(d.t))
    snapshot = d.core.snapshot(d.t)
    assert snapshot is not None
    d.run(d.core.node_stale(A, True, d.t))  # the index dropped the node's blocks
    d.run(d.core.node_stale(A, False, d.t))
    placed = (Placement("s1", str(A)), Placement("s2", str(B)))
    plan = Plan(placed, Value(), Value(), optimal=True, method="test", seconds=0.1)
    d.hold_back = False
    out = d.run(d.core.plan_returned(snapshot.id, plan, d.t))
    assert admitted(out) == [("r-s2", B), ("r-s1", A)], "the other's in the next plan"
    assert d.core.statistics(d.t).counters["placement_refused.node_stale"] == 1


def test_c7_nodes_of_different_block_sizes_are_counted_in_tokens() -> None:
    d = Driver(PLAIN, nodes={})
    d.run(d.core.node_joined(A, capacity_tokens=10_000, block_size=16, t=0.0))
    d.run(d.core.node_joined(B, capacity_tokens=10_000, block_size=64, t=0.0))
    d.credit.table = {"a": {A: 512}, "b": {B: 512}}
    d.arrive("a", 1001, output=0)
    d.arrive("b", 1001, output=0)
    assert d.used(A) == 1008, "63 blocks of 16"
    assert d.used(B) == 1024, "16 blocks of 64"


class TestC16ToolEvents:
    def test_of_an_unknown_session_make_none(self) -> None:
        d = Driver(PLAIN, {A: 10_000})
        for i in range(1000):
            assert d.start_tool(f"x{i}", 5.0) == []
            assert d.end_tool(f"x{i}") == []
        assert sum(d.core.statistics(d.t).sessions_by_state.values()) == 0

    def test_an_end_before_its_start_leaves_the_session_returned(self) -> None:
        d = Driver(PLAIN, {A: 10_000})
        d.arrive("s1", 1000)
        d.end("s1")
        d.end_tool("s1")
        assert d.view("s1").state.value == "idle"
        assert d.view("s1").ready is True

    def test_an_end_twice_changes_nothing(self) -> None:
        d = Driver(PLAIN, {A: 10_000})
        d.arrive("s1", 1000)
        d.end("s1")
        d.start_tool("s1", 5.0)
        d.end_tool("s1")
        before = d.core.statistics(d.t)
        assert d.end_tool("s1") == []
        assert d.core.statistics(d.t) == before

    def test_a_tool_that_never_ends_keeps_no_room_that_others_wait_for(self) -> None:
        d = Driver(PLAIN, {A: 10_000})
        d.arrive("s1", 5000)
        d.end("s1")
        d.start_tool("s1", 1.0)  # and no end ever comes
        d.arrive("s2", 6000)
        out = d.advance(61.0)
        assert paused(out) == ["s1"]
        assert admitted(out) == [("r-s2", A)]

    def test_nor_does_room_that_was_given_back_early(self) -> None:
        d = Driver(PLAIN, {A: 10_000})
        d.arrive("s1", 4000)
        d.end("s1")
        d.start_tool("s1", 3.0)
        d.arrive("s2", 4200)
        d.run(d.core.tokens("r-s2", 2000, d.t))
        d.end("s2", output=2100)
        d.run(d.core.session_ended("s2", d.t))
        assert restarted(d.advance(2.5)) == ["s1"]
        d.arrive("s3", 7000)
        out = d.advance(10.0)
        assert (paused(out), admitted(out)) == (["s1"], [("r-s3", A)])


class TestSeveralModels:
    """C17. One router serves one model; its adapters share the nodes' memory and no block."""

    def test_the_same_tokens_under_two_adapters_are_two_prefixes(self) -> None:
        d = Driver(PLAIN, {A: 100_000})
        salted = tuple(h + 10_000_000 for h in PROMPT)  # an adapter's name is part of every block's hash
        d.arrive("one", 8100, hashes=(*PROMPT, 901, 902, 903, 904))
        d.arrive("two", 8100, hashes=(*salted, 911, 912, 913, 914))
        assert d.used(A) == 2 * 8200
        d.arrive("three", 8100, hashes=(*PROMPT, 921, 922, 923, 924))
        assert d.used(A) == 3 * 8200 - 8000, "the first adapter's is counted once"

    def test_a_child_under_another_adapter_has_nothing_of_its_parent(self) -> None:
        d = Driver(PLAIN, {A: 100_000})
        d.arrive("parent", 8000, hashes=PROMPT)
        d.end("parent")
        d.run(d.core.node_joined(B, capacity_tokens=200_000, block_size=1, t=d.t))
        salted = tuple(h + 10_000_000 for h in PROMPT)
        assert admitted(d.arrive("child", 8100, hashes=salted, parent_session_id="parent")) == [("r-child", B)]

    def test_routers_of_two_models_know_nothing_of_each_other(self) -> None:
        one, two = Driver(PLAIN, {A: 10_000}), Driver(PLAIN, {B: 10_000})
        one.arrive("s1", 8000, hashes=PROMPT)
        assert admitted(two.arrive("s1", 8000, hashes=PROMPT)) == [("r-s1", B)], "the same session, another model"
        one.run(one.core.session_ended("s1", one.t))
        assert two.view("s1").state.value == "running"
        assert (one.used(A), two.used(B)) == (8100, 8100)


class TestC20TheRouterRestarts:
    def test_a_session_is_recognised_at_its_next_turn_and_goes_where_its_blocks_are(self) -> None:
        d = Driver(PLAIN, {A: 100_000, B: 200_000})
        d.credit.table["s1"] = {A: 40_000}  # from the workers' dumps
        assert admitted(d.arrive("s1", 41_000)) == [("r-s1", A)]
        assert d.used(A) == 41_100

    def test_what_ends_of_the_old_process_changes_nothing(self) -> None:
        d = Driver(PLAIN, {A: 10_000})
        before = d.core.statistics(d.t)
        assert d.run(d.core.turn_ended("r-of-before", t=d.t, output_tokens=10)) == []
        assert d.run(d.core.turn_cancelled("r-of-before", d.t)) == []
        assert d.run(d.core.turn_displaced("r-of-before", d.t)) == []
        assert d.run(d.core.tokens("r-of-before", 5, d.t)) == []
        assert d.run(d.core.session_ended("s1", d.t)) == []
        assert d.core.statistics(d.t) == before

    def test_what_still_runs_for_the_old_process_is_load_that_is_not_ours(self) -> None:
        d = Driver(PLAIN, {A: 10_000})
        d.run(d.core.node_load(A, used_tokens=6000, t=d.t))
        assert admitted(d.arrive("s1", 3000)) == [], "0.85 of 10,000 less 6,000 leaves 2,500"
        d.t += 1.0
        assert admitted(d.run(d.core.node_load(A, used_tokens=0, t=d.t))) == [("r-s1", A)]
