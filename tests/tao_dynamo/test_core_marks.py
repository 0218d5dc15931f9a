# SPDX-License-Identifier: Apache-2.0
"""Marks that follow from the KV tiers which the workers report (DESIGN §4.9)."""

from __future__ import annotations

from dataclasses import replace

from tao_dynamo.core.policy import PAPER
from tests.tao_dynamo.fakes import PLAIN, A, B, Driver, admitted, paused

TIERED = replace(PLAIN, host_tier="auto")


def driver(host_tokens: int, policy=TIERED, capacity: int = 10_000) -> Driver:
    d = Driver(policy, nodes={})
    d.run(d.core.node_joined(A, capacity_tokens=capacity, block_size=1, t=0.0, host_tokens=host_tokens))
    return d


def in_a_tool(d: Driver, name: str, tokens: int) -> None:
    d.arrive(name, tokens)
    d.end(name)
    d.start_tool(name, 500.0)


def test_with_a_large_host_tier_a_session_in_a_tool_weighs_nothing_and_the_whole_node_is_given() -> None:
    d = driver(100_000)
    in_a_tool(d, "s1", 6000)
    assert d.view("s1").node == A
    assert d.used(A) == 0
    assert admitted(d.arrive("s2", 9900)) == [("r-s2", A)], "past the admission mark of 0.85"
    assert d.core.statistics(d.t).host_tier is True


def test_without_one_the_marks_stay() -> None:
    d = driver(0)
    in_a_tool(d, "s1", 6000)
    assert d.used(A) == 6100
    assert admitted(d.arrive("s2", 2500)) == []
    assert d.core.statistics(d.t).host_tier is False


def test_while_all_contexts_fit_room_is_given_up_to_the_pause_mark() -> None:
    d = driver(0, replace(PLAIN, crowded_at=1.0))
    in_a_tool(d, "s1", 6000)
    assert admitted(d.arrive("s2", 3300)) == [("r-s2", A)], "0.95 of 10,000: 3,400 are left"
    crowded = driver(0, replace(PLAIN, crowded_at=0.6))
    in_a_tool(crowded, "s1", 6000)
    crowded.advance(2.0)
    assert admitted(crowded.arrive("s2", 3300)) == [], "6,100 in contexts are more than 0.6 of the room"
    crowded.run(crowded.core.session_ended("s2", crowded.t))
    crowded.run(crowded.core.session_ended("s1", crowded.t))
    in_a_tool(crowded, "s3", 5300)
    crowded.advance(2.0)
    assert admitted(crowded.arrive("s4", 3600)) == [], "5,400 are less than that, and not by enough to turn back"


def test_it_weighs_again_when_its_tool_returns() -> None:
    d = driver(100_000)
    in_a_tool(d, "s1", 6000)
    d.end_tool("s1")
    assert d.used(A) == 6100
    assert admitted(d.arrive("s1", 6200, request="next")) == [("next", A)]
    assert d.used(A) == 6300


def test_one_that_returns_to_a_full_node_gets_the_room_of_another_that_is_between_turns() -> None:
    d = driver(100_000)
    in_a_tool(d, "s1", 6000)
    d.arrive("s2", 7000)
    d.end("s2")
    assert d.used(A) == 7100
    assert paused(d.end_tool("s1")) == ["s2"]
    assert admitted(d.arrive("s1", 6200, request="next")) == [("next", A)]


def test_or_its_own_is_taken_where_everybody_else_runs() -> None:
    d = driver(100_000)
    in_a_tool(d, "s1", 6000)
    d.arrive("s2", 7000)
    assert paused(d.end_tool("s1")) == ["s1"]
    assert d.used(A) == 7100, "never more than there is"
    assert admitted(d.arrive("s1", 6200, request="next")) == []
    d.t += 1.0
    d.end("s2")
    assert admitted(d.run(d.core.session_ended("s2", d.t))) == [("next", A)]


def test_a_session_that_weighs_nothing_is_not_paused_for_nothing() -> None:
    d = driver(100_000)
    in_a_tool(d, "s1", 6000)
    d.arrive("s2", 5000)
    d.end("s2")
    assert paused(d.arrive("s3", 5000)) == [], "it waits, and takes no room of the idle"
    out = d.run(d.core.node_load(A, used_tokens=6000, t=d.t))
    assert paused(out) == ["s2"]
    assert d.view("s1").node == A


def test_what_is_in_the_tier_does_not_grow_old() -> None:
    d = driver(100_000)
    in_a_tool(d, "s1", 6000)
    d.credit.aged = {"s1": {A: 3}}
    assert d.view("s1").credits == {A: 6100}
    other = driver(0)
    in_a_tool(other, "s1", 6000)
    other.credit.aged = {"s1": {A: 3}}
    assert other.view("s1").credits == {A: 3}


def test_too_small_a_tier_leaves_the_marks_and_becoming_too_small_brings_them_back() -> None:
    d = driver(3000)
    in_a_tool(d, "s1", 6000)
    in_a_tool(d, "s2", 6000)
    d.advance(2.0)
    assert d.core.statistics(d.t).host_tier is True, "2,200 of 12,200 tokens do not fit the device"
    in_a_tool(d, "s3", 6000)
    d.advance(2.0)
    assert d.core.statistics(d.t).host_tier is False, "8,300 do not, and the tier holds less than 0.4 of that"
    d.run(d.core.session_ended("s1", d.t))
    d.run(d.core.session_ended("s2", d.t))
    d.advance(2.0)
    assert d.core.statistics(d.t).host_tier is True


def test_a_node_that_leaves_takes_its_tier_along() -> None:
    d = driver(100_000)
    d.run(d.core.node_joined(B, capacity_tokens=10_000, block_size=1, t=0.0))
    assert d.core.statistics(d.t).host_tier is True
    d.run(d.core.node_left(A, 1.0))
    assert d.core.statistics(d.t).host_tier is False


def test_a_flag_forces_either() -> None:
    forced = driver(0, replace(TIERED, host_tier="on"))
    in_a_tool(forced, "s1", 6000)
    assert forced.used(A) == 0
    never = driver(100_000, replace(TIERED, host_tier="off"))
    in_a_tool(never, "s1", 6000)
    assert never.used(A) == 6100
    assert PAPER.host_tier == "off"
