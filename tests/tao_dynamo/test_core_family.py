# SPDX-License-Identifier: Apache-2.0
"""Sub-agents: a child goes where its parent's prompt is, a burst spreads, a parent waits as in a tool call."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from kv_events.types import NodeId
from tests.tao_dynamo.fakes import PLAIN, A, B, Driver, admitted, paused, restarted

NODES = [NodeId(i, 0) for i in range(1, 5)]
PARENT = tuple(range(1, 1 + 500))  # 8,000 tokens


def child_of(i: int) -> tuple[int, ...]:
    return PARENT + tuple(1_000_000 * (i + 1) + k for k in range(20))


def with_parent(nodes: dict[NodeId, int], home: NodeId) -> Driver:
    """A parent that holds room on ``home`` and waits for a tool; other nodes have more room."""
    d = Driver(PLAIN, {home: nodes[home]})
    d.arrive("parent", 8000, hashes=PARENT)
    d.end("parent")
    for node, capacity in nodes.items():
        if node != home:
            d.run(d.core.node_joined(node, capacity_tokens=capacity, block_size=1, t=d.t))
    d.start_tool("parent", 100.0)
    return d


def test_a_child_goes_where_its_parents_prompt_is_before_it_has_run() -> None:
    d = with_parent({A: 100_000, B: 200_000}, A)
    assert admitted(d.arrive("stranger", 8320)) == [("r-stranger", B)], "else the node with more room"
    assert admitted(d.arrive("child", 8320, hashes=child_of(0), parent_session_id="parent")) == [("r-child", A)]
    assert d.used(A) < 8100 + 8420, "and its parent's prompt is counted once"


def test_a_child_without_its_parents_prompt_goes_where_room_is() -> None:
    d = with_parent({A: 100_000, B: 200_000}, A)
    other = tuple(range(9_000_000, 9_000_500))
    assert admitted(d.arrive("child", 8000, hashes=other, parent_session_id="parent")) == [("r-child", B)]


def test_once_it_has_run_its_own_credit_counts() -> None:
    d = with_parent({A: 100_000, B: 200_000}, A)
    d.arrive("child", 8320, hashes=child_of(0), parent_session_id="parent")
    d.end("child")
    d.credit.table["child"] = {B: 9000}
    assert d.view("child").credits.keys() == {B}


@pytest.mark.parametrize("at_once", [True, False])
def test_a_burst_of_siblings_does_not_pile_up(at_once: bool) -> None:
    d = with_parent(dict.fromkeys(NODES, 200_000), NODES[0])
    if at_once:  # all in one plan
        d.run(d.core.node_load(NODES[0], used_tokens=199_000, t=d.t))
        for node in NODES[1:]:
            d.run(d.core.node_load(node, used_tokens=199_000, t=d.t))
    for i in range(12):
        d.arrive(f"c{i}", 8320, hashes=child_of(i), parent_session_id="parent")
    if at_once:
        d.hold_back = True
        for node in NODES:
            d.run(d.core.node_load(node, used_tokens=0, t=d.t))
        d.hold_back = False
        d.t += 1.0
        d.run(d.core.time_passes(d.t))
        d.advance(6.0)
    where = Counter(d.view(f"c{i}").node for i in range(12))
    assert sum(where.values()) == 12
    assert max(where.values()) <= 4, where
    assert where[NODES[0]] >= 2, "some of them at their parent's"


def test_an_ended_child_frees_its_room_and_only_its_own() -> None:
    d = with_parent({A: 100_000}, A)
    before = d.used(A)
    d.arrive("child", 8320, hashes=child_of(0), parent_session_id="parent")
    d.end("child")
    d.run(d.core.session_ended("child", d.t))
    assert d.used(A) == before
    assert d.view("child") is None
    assert d.view("parent").node == A


def test_a_parent_that_waits_for_children_is_in_a_tool_call() -> None:
    d = Driver(PLAIN, {A: 100_000})
    d.arrive("parent", 8000, hashes=PARENT)
    d.end("parent")
    assert d.view("parent").state.value == "idle"
    d.t += 1.0
    d.arrive("child", 8320, hashes=child_of(0), parent_session_id="parent")
    assert d.view("parent").state.value == "tool"
    assert d.view("parent").ready is False
    d.end("child")
    d.run(d.core.session_ended("child", d.t))
    assert d.view("parent").state.value == "idle"
    assert d.view("parent").ready is True


def test_it_keeps_its_room_when_silence_would_cost_it() -> None:
    d = Driver(replace(PLAIN, idle_release_s=5.0), {A: 20_000})
    for name in ("parent", "silent"):
        d.arrive(name, 4000)
        d.end(name)
    d.arrive("child", 4000, parent_session_id="parent")
    d.arrive("late", 6500)
    assert paused(d.advance(8.0)) == ["silent"]
    assert d.view("parent").state.value == "tool"


def test_a_child_that_is_never_ended_does_not_keep_its_parent_waiting() -> None:
    d = Driver(PLAIN, {A: 100_000})
    d.arrive("parent", 4000)
    d.end("parent")
    d.arrive("child", 4000, parent_session_id="parent")
    d.end("child")
    d.t += 1.0
    d.arrive("parent", 4200, request="next")
    d.t += 1.0
    d.end("parent", request="next")
    assert d.view("parent").state.value == "idle", "the child has not been heard of since"


def test_a_paused_parent_comes_back_when_its_last_child_ends() -> None:
    d = Driver(PLAIN, {A: 10_000, B: 30_000})
    d.arrive("parent", 20_000)
    d.end("parent")
    d.start_tool("parent", 1000.0)
    d.end_tool("parent")
    d.arrive("child", 5000, parent_session_id="parent")
    d.arrive("other", 5000)
    d.run(d.core.tokens("r-other", 6000, d.t))
    assert d.view("parent").state.value == "paused"
    d.end("other", output=6000)
    d.run(d.core.session_ended("other", d.t))
    assert d.view("parent").state.value == "paused", "its child still works"
    d.t += 1.0
    d.end("child")
    assert restarted(d.run(d.core.session_ended("child", d.t))) == ["parent"]


def test_a_session_is_not_its_own_child() -> None:
    d = Driver(PLAIN, {A: 10_000})
    d.arrive("s1", 1000, parent_session_id="s1")
    d.end("s1")
    assert d.view("s1").ready is True


class TestParallelTurns:
    @pytest.mark.parametrize("first", ["big", "small"])
    def test_the_footprint_is_the_largest_whichever_ends_last(self, first: str) -> None:
        d = Driver(PLAIN, {A: 100_000})
        d.arrive("s1", 12_000, request="big")
        d.arrive("s1", 3000, request="small")
        d.end("s1", request=first)
        d.end("s1", request="small" if first == "big" else "big")
        assert d.view("s1").footprint == 12_100
        assert d.used(A) == 12_100

    def test_a_later_turn_alone_may_be_smaller(self) -> None:
        d = Driver(PLAIN, {A: 100_000})
        d.arrive("s1", 12_000, request="big")
        d.arrive("s1", 3000, request="small")
        d.end("s1", request="big")
        d.end("s1", request="small")
        d.arrive("s1", 2000, request="compacted")
        d.end("s1", request="compacted")
        assert d.view("s1").footprint == 2100
