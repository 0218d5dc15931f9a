# SPDX-License-Identifier: Apache-2.0
"""Nobody waits for whom a node has room: shared prefixes, rounding and workers that went do not keep anybody out."""

from __future__ import annotations

from dataclasses import replace

from tao_dynamo.core.prefixes import SharedPrefix
from tao_dynamo.core.session import Session
from tao_dynamo.core.state import State
from tests.tao_dynamo.fakes import PLAIN, A, B, Driver, FakeCredit, FakeReadiness, admitted

BLOCK = 16


def chain(first: int, tokens: int) -> tuple[int, ...]:
    """Hashes of so many tokens."""
    return tuple(range(first, first + tokens // BLOCK))


def crowd(d: Driver, shared: int, own: int) -> None:
    """Two sessions wait that share a prompt of ``shared`` tokens and have ``own`` more each."""
    for number, name in enumerate(("X1", "X2")):
        hashes = chain(1, shared) + chain(100_000 * (number + 1), own)
        assert not admitted(d.arrive(name, shared + own, hashes=hashes))


def test_a_prefix_too_big_to_be_set_aside_does_not_close_an_idle_node() -> None:
    d = Driver(PLAIN, {A: 100_000}, BLOCK)
    d.arrive("first", 70_000)
    crowd(d, 84_000, 3_500)
    assert not admitted(d.arrive("small", 20_000, hashes=chain(900_000, 20_000)))
    d.t = 5.0
    out = d.end("first")
    out += d.run(d.core.session_ended("first", d.t))
    assert [request for request, _ in admitted(out)] == ["r-small"]


def test_a_prefix_that_nobody_fits_beside_is_not_charged_to_a_node() -> None:
    d = Driver(PLAIN, {A: 100_000}, BLOCK)
    d.arrive("first", 71_000)
    crowd(d, 10_000, 20_000)
    assert admitted(d.arrive("small", 6_000, hashes=chain(900_000, 6_000))) == [("r-small", A)]


def test_a_session_that_needs_less_than_it_once_shared_is_charged_its_own_length() -> None:
    state = State(PLAIN, FakeCredit(), FakeReadiness())
    session = Session("s", 1, created_at=0.0, common=SharedPrefix(1, 4_800))
    session.footprint = 300
    assert state.prefix(session) is None
    session.footprint = 6_000
    assert state.prefix(session) == SharedPrefix(1, 4_800)


def test_what_a_plan_passes_over_and_yet_fits_is_placed_by_the_next_sweep() -> None:
    d = Driver(replace(PLAIN, quantum=4096), {A: 100_000}, BLOCK)
    d.arrive("first", 60_000)
    d.arrive("second", 40_000)
    assert not admitted(d.arrive("third", 24_500)), "24,600 tokens are 7 quanta; of 24,900 that are left 6 are seen"
    d.t = 1.5
    assert admitted(d.run(d.core.time_passes(d.t))) == [("r-third", A)]
    assert d.core.statistics(d.t).counters["placed_passed_over"] == 1


def test_a_turn_whose_worker_went_before_it_was_displaced_is_placed_at_once() -> None:
    d = Driver(PLAIN, {A: 10_000, B: 10_000})
    d.arrive("on-a", 5_000)
    d.arrive("on-b", 2_000)
    d.t = 1.0
    d.arrive("big", 9_000)
    d.t = 2.0
    d.run(d.core.node_left(B, d.t))
    assert admitted(d.run(d.core.turn_displaced("r-on-b", d.t))) == [("r-on-b", A)]


def test_a_displaced_turn_waits_in_its_old_place() -> None:
    d = Driver(PLAIN, {A: 10_000, B: 10_000})
    d.arrive("on-a", 5_000)
    d.arrive("on-b", 6_000)
    d.t = 1.0
    d.arrive("big", 9_000)
    d.t = 2.0
    d.run(d.core.node_left(B, d.t))
    assert not admitted(d.run(d.core.turn_displaced("r-on-b", d.t)))
    assert [view.session_id for view in d.core.statistics(d.t).waiting] == ["on-b", "big"]


def test_a_session_that_shares_again_is_charged_what_it_shares_before_it_runs() -> None:
    d = Driver(PLAIN, {A: 10_000, B: 10_000}, BLOCK)
    for number, name in enumerate(("s1", "s2")):
        assert admitted(d.arrive(name, 6_600, hashes=chain(1, 6_400) + chain(10_000 * (number + 1), 200)))
    d.t = 1.0
    d.end("s1")
    assert admitted(d.arrive("s1", 500, request="compacted"))
    d.end("s1", request="compacted")
    assert d.used(A) == 608
    d.arrive("s3", 7_000)
    d.t = 2.0
    d.arrive("s1", 6_700, request="long again")
    assert all(d.used(node) <= 10_000 for node in (A, B))


def test_a_displaced_crowd_is_put_in_order_once() -> None:
    d = Driver(PLAIN, {A: 100_000, B: 90_000})
    d.arrive("fills-a", 84_000)
    for number in range(50):
        assert admitted(d.arrive(f"s{number}", 1_000))
    d.t = 1.0
    d.arrive("big", 30_000)
    d.t = 2.0
    d.run(d.core.node_left(B, d.t))
    for number in range(50):
        d.run(d.core.turn_displaced(f"r-s{number}", d.t))
    waiting = d.core.statistics(d.t).waiting
    assert len(waiting) == 51
    assert waiting[-1].session_id == "big"
