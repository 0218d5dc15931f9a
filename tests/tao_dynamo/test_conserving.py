# SPDX-License-Identifier: Apache-2.0
"""A node on which nothing runs does not stand idle while somebody waits."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from kv_events.types import NodeId
from tao_dynamo.core import conserving
from tao_dynamo.core.policy import PAPER
from tao_dynamo.core.session import Session
from tao_dynamo.core.state import State
from tao_dynamo.core.turn import Turn
from tests.tao_dynamo.fakes import PLAIN, A, B, Driver, admitted, paused

RATE = 1000.0
"""Prefill tokens a second: a session of 6,100 tokens takes 6.1 s to compute anew."""
CONSERVING = replace(PLAIN, work_conserving=True, prefill_rate=RATE)


def in_a_tool(d: Driver, name: str, tokens: int, seconds: float) -> None:
    d.arrive(name, tokens)
    d.end(name)
    d.start_tool(name, seconds)


def test_a_session_in_a_long_tool_makes_way_for_a_turn_that_waits() -> None:
    d = Driver(CONSERVING, {A: 10_000})
    in_a_tool(d, "s1", 6000, 500.0)
    out = d.arrive("s2", 5000)
    assert paused(out) == ["s1"]
    assert admitted(out) == [("r-s2", A)], "at once: nobody else needs the node"
    assert d.core.statistics(d.t).counters["made_way"] == 1


def test_one_whose_tool_returns_before_its_cache_could_be_computed_anew_stays() -> None:
    d = Driver(CONSERVING, {A: 10_000})
    in_a_tool(d, "s1", 6000, 6.0)
    assert paused(d.arrive("s2", 5000)) == []
    assert paused(d.advance(5.5)) == [], "the longer it has run the less is left"
    d = Driver(CONSERVING, {A: 10_000})
    in_a_tool(d, "s1", 6000, 6.2)
    assert paused(d.arrive("s2", 5000)) == ["s1"]


def test_nobody_makes_way_where_something_runs() -> None:
    d = Driver(CONSERVING, {A: 10_000})
    in_a_tool(d, "s1", 6000, 500.0)
    d.arrive("s0", 1000)
    assert paused(d.arrive("s2", 5000)) == []
    out = d.end("s0")
    assert paused(out) == ["s1"], "s0's tool is not known yet: it may be back at once"
    assert admitted(out) == [("r-s2", A)]


def test_nobody_makes_way_while_room_is_elsewhere_or_where_it_would_not_be_enough() -> None:
    d = Driver(CONSERVING, {A: 10_000, B: 10_000})
    in_a_tool(d, "s1", 6000, 500.0)
    out = d.arrive("s2", 5000)
    assert (admitted(out), paused(out)) == ([("r-s2", B)], [])
    d = Driver(CONSERVING, {A: 10_000})
    in_a_tool(d, "short", 3000, 1.5)
    in_a_tool(d, "long", 3000, 500.0)
    assert paused(d.arrive("s2", 6000)) == [], "what the long one holds is not enough"


def test_only_as_many_as_it_takes_make_way_least_credit_first() -> None:
    d = Driver(CONSERVING, {A: 10_000})
    for name, credit in (("s1", 1500), ("s2", 0), ("s3", 1000)):
        in_a_tool(d, name, 2500, 500.0)
        d.credit.table[name] = {A: credit}
    assert paused(d.arrive("s4", 3000)) == ["s2"]


def test_a_session_above_the_admission_mark_gets_a_node_that_rests() -> None:
    d = Driver(CONSERVING, {A: 10_000})
    in_a_tool(d, "s1", 2000, 500.0)
    out = d.arrive("big", 9500)
    assert paused(out) == ["s1"]
    assert admitted(out) == [("r-big", A)], "0.85 of the node is less than it needs, the whole is not"


def test_a_user_who_thinks_makes_way_after_the_default_tool_time() -> None:
    d = Driver(CONSERVING, {A: 10_000})
    d.arrive("s1", 6000)
    d.end("s1")
    assert paused(d.arrive("s2", 5000)) == []
    assert paused(d.advance(4.5)) == []
    out = d.advance(2.0)
    assert (paused(out), admitted(out)) == (["s1"], [("r-s2", A)])


def test_the_overdue_and_the_urgent_go_first() -> None:
    d = Driver(CONSERVING, {A: 10_000})
    in_a_tool(d, "s1", 6000, 500.0)
    d.arrive("s0", 1000)
    d.arrive("plain", 5000)
    d.credit.table["known"] = {A: 4000}
    d.arrive("known", 5000)
    d.arrive("urgent", 5000, priority=5)
    assert admitted(d.end("s0")) == [("r-urgent", A)]
    d.end("urgent")
    d.run(d.core.session_ended("s0", d.t))
    assert admitted(d.run(d.core.session_ended("urgent", d.t))) == [("r-known", A)], "then credit"


PROMPT = tuple(range(100, 164))


def sharing_a_prefix(d: Driver) -> None:
    for name in ("s1", "s2"):
        d.arrive(name, 4200, hashes=PROMPT, block_size=64)
        d.end(name)
        d.start_tool(name, 500.0)
    assert d.used(A) == 4096 + 2 * 204


def test_a_shared_prefix_goes_with_the_last_of_its_holders() -> None:
    d = Driver(CONSERVING, {A: 10_000})
    sharing_a_prefix(d)
    out = d.arrive("s3", 6000)
    assert sorted(paused(out)) == ["s1", "s2"]
    assert admitted(out) == [("r-s3", A)]
    assert d.used(A) == 6100


def test_a_turn_with_that_prefix_needs_it_again() -> None:
    d = Driver(CONSERVING, {A: 10_000})
    sharing_a_prefix(d)
    out = d.arrive("s3", 8300, hashes=PROMPT, block_size=64)
    assert admitted(out) == [("r-s3", A)], "4,096 of the prefix, 4,304 of its own: within 8,500 only alone"
    assert sorted(paused(out)) == ["s1", "s2"]
    assert d.used(A) == 8400


def test_the_papers_mode_does_not() -> None:
    assert (PAPER.work_conserving, PAPER.crowded_at) == (False, 0.0)
    d = Driver(replace(PAPER, prefill_rate=RATE), {A: 10_000})
    in_a_tool(d, "s1", 6000, 500.0)
    assert paused(d.arrive("s2", 5000)) == []


def many_arrive(d: Driver, names: list[str], tokens: int) -> list[tuple[str, NodeId]]:
    """Those admitted as they come."""
    turns = [Turn(f"r-{name}", name, tokens, 100) for name in names]
    return [one for turn in turns for one in admitted(d.run(d.core.turn_arrived(turn, d.t)))]


def resting_nodes(n: int) -> Driver:
    """Nodes on which one session is in a long tool and another's tool is about to return, for ever."""
    d = Driver(CONSERVING, {NodeId(k, 0): 10_000 for k in range(n)})
    for k in range(n):
        in_a_tool(d, f"short{k}", 3900, 0.5)
    for k in range(n):
        in_a_tool(d, f"long{k}", 3900, 500.0)
    return d


def test_a_look_is_bounded_however_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    d = resting_nodes(16)
    assert many_arrive(d, [f"big{k}" for k in range(1200)], 8500) == []
    asked = Counter[str]()

    def counted(state: State, session: Session) -> int:
        asked[session.id] += 1
        return cost(state, session)

    cost = State.cost
    monkeypatch.setattr(State, "cost", counted)
    assert conserving.make_way(d.core._state, d.t) == []
    assert asked.total() <= conserving.ENOUGH + conserving.WAITING_A_NODE
    for _ in range(5):
        conserving.make_way(d.core._state, d.t)
    assert len(asked) == 1200, "each has its turn"


def test_one_that_fits_is_found_among_many_that_do_not() -> None:
    d = resting_nodes(2)
    assert many_arrive(d, [f"big{k}" for k in range(600)], 8500) == []
    out = many_arrive(d, ["fits"], 4000)
    out += many_arrive(d, [f"more{k}" for k in range(30)], 8500)
    for _ in range(5):
        out += admitted(d.advance(1.0))
    assert [request for request, _ in out] == ["r-fits"]


def test_those_who_share_a_prompt_with_the_one_that_waits_make_way_together() -> None:
    d = Driver(replace(CONSERVING, crowded_at=1.0), {A: 4096}, 16)

    def prompt(first: int) -> tuple[int, ...]:
        return (*range(1, 221), *range(first, first + 5))

    for name, first in (("s1", 1000), ("s2", 2000)):
        assert admitted(d.arrive(name, 3600, output=16, hashes=prompt(first)))
    for name in ("s1", "s2"):
        d.end(name, output=16)
        d.start_tool(name, 500.0)
    d.advance(2.0)
    assert d.used(A) == 3520 + 2 * 96
    out = d.arrive("s3", 3600, output=16, hashes=prompt(3000)) + d.advance(2.0)
    assert sorted(paused(out)) == ["s1", "s2"], (
        "beside one of them it would be above the mark; alone it may have the node"
    )
    assert admitted(out) == [("r-s3", A)]
