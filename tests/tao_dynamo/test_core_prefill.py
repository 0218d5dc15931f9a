# SPDX-License-Identifier: Apache-2.0
"""What a long tool call weighs, by how fast the node computes prompts (DESIGN §4.5)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tao_dynamo.core.policy import DEFAULT
from tao_dynamo.core.prefill import KEPT, KNOWN_FROM, LEAST_TOKENS, PrefillRate
from tests.tao_dynamo.fakes import A, Driver


def run_turns(d: Driver, count: int, *, tokens: int, seconds: float, cached: int = 0) -> None:
    for i in range(count):
        d.arrive("warm", tokens, request=f"w{i}", output=1)
        d.t += seconds
        d.run(d.core.first_token(f"w{i}", d.t))
        d.run(d.core.turn_ended(f"w{i}", t=d.t, output_tokens=1, cached_tokens=cached))
    d.run(d.core.session_ended("warm", d.t))


def weight_in_a_long_tool(d: Driver) -> int:
    d.arrive("s1", 10_000, output=0)
    d.end("s1", output=0)
    d.start_tool("s1", 600.0)
    return d.used(A)


def test_unknown_until_enough_turns_have_shown_it_then_seven_tenths() -> None:
    d = Driver(nodes={A: 100_000})
    run_turns(d, KNOWN_FROM - 1, tokens=1000, seconds=0.1)
    assert weight_in_a_long_tool(d) == 7000


@pytest.mark.parametrize(
    ("rate", "weight"),
    [(100_000 / 14.0, 5000), (100_000 / 33.0, 7021), (100_000 / 3.5, 2000)],
    ids=["T* 14 s", "T* 33 s", "T* 3.5 s"],
)
def test_the_faster_a_node_rebuilds_its_cache_the_less_a_long_tool_weighs(rate: float, weight: int) -> None:
    d = Driver(nodes={A: 100_000})
    run_turns(d, 20, tokens=2000, seconds=2000 / rate)
    assert weight_in_a_long_tool(d) == pytest.approx(weight, abs=2)


def test_cached_tokens_are_not_computed_ones() -> None:
    d = Driver(nodes={A: 100_000})
    run_turns(d, 20, tokens=20_000, seconds=0.28, cached=18_000)
    assert weight_in_a_long_tool(d) == pytest.approx(5000, abs=2), "2,000 tokens in 0.28 s: T* is 14 s"


def test_an_engine_that_does_not_tell_its_cached_tokens_teaches_nothing() -> None:
    d = Driver(nodes={A: 100_000})
    for i in range(20):
        d.arrive("warm", 2000, request=f"w{i}", output=1)
        d.t += 0.001
        d.run(d.core.first_token(f"w{i}", d.t))
        d.run(d.core.turn_ended(f"w{i}", t=d.t, output_tokens=1))
    d.run(d.core.session_ended("warm", d.t))
    assert weight_in_a_long_tool(d) == 7000


def test_flags_go_before_what_was_learnt() -> None:
    slow = Driver(replace(DEFAULT, prefill_rate=100_000 / 14.0), nodes={A: 100_000})
    run_turns(slow, 20, tokens=2000, seconds=0.001)
    assert weight_in_a_long_tool(slow) == pytest.approx(5000, abs=1)
    fixed = Driver(replace(DEFAULT, long_tool_factor=0.9), nodes={A: 100_000})
    run_turns(fixed, 20, tokens=2000, seconds=0.28)
    assert weight_in_a_long_tool(fixed) == 9000


def test_what_counts_as_long_scales_with_it() -> None:
    d = Driver(replace(DEFAULT, prefill_rate=10_000.0), nodes={A: 26_000})  # T* 2.6 s: long from 0.3 s on
    d.arrive("s1", 10_000, output=0)
    d.end("s1", output=0)
    d.readiness.horizon_s = 0.1
    d.start_tool("s1", 0.25)
    assert d.used(A) == 10_000
    d.start_tool("s1", 0.35)
    assert d.used(A) == int(10_000 * 2.6 / 16.6)


class TestTheRateItself:
    def test_one_turn_told_wrong_does_not_move_it(self) -> None:
        rate = PrefillRate()
        for _ in range(20):
            rate.observe(4000, 0.5)
        rate.observe(4_000_000, 0.5)
        assert rate.tokens_per_s == 8000

    def test_turns_that_queued_do_not_hide_it(self) -> None:
        rate = PrefillRate()
        for i in range(40):
            rate.observe(4000, 0.5 if i % 3 == 0 else 9.0)
        assert rate.tokens_per_s == 8000

    def test_short_computations_and_odd_times_are_left_out(self) -> None:
        rate = PrefillRate()
        for _ in range(20):
            rate.observe(LEAST_TOKENS - 1, 0.001)
            rate.observe(4000, 0.0)
            rate.observe(-5, 1.0)
        assert rate.tokens_per_s is None

    def test_it_follows_a_node_that_changes(self) -> None:
        rate = PrefillRate()
        for _ in range(KEPT):
            rate.observe(1000, 1.0)
        for _ in range(KEPT):
            rate.observe(1000, 0.5)
        assert rate.tokens_per_s == 2000
