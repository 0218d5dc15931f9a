# SPDX-License-Identifier: Apache-2.0
"""Events lost, late, doubled, out of order: case C16's tool side, as far as the predictor goes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tool_hooks.predictor import MODES, Mode, Predictor
from tool_hooks.probes import next_probe_change, probe_open


def mean_of(predictor: Predictor, key: str, t: float) -> float:
    """What the paper's predictor has learned of a key, shown by a call of a fresh session."""
    predictor.started("asker", "c", key, t)
    remaining = predictor.remaining("asker", t)
    predictor.forget("asker")
    assert remaining is not None
    return remaining.seconds if remaining.source == "history" else math.nan


def test_an_end_before_its_start_means_returned_and_teaches_its_own_duration() -> None:
    predictor = Predictor("paper")
    for i in range(2):
        predictor.ended(f"s{i}", "c", 10.0, duration_s=3.0)
        assert not predictor.running(f"s{i}")
        predictor.started(f"s{i}", "c", "k", 10.2)
        assert not predictor.running(f"s{i}")
        assert predictor.ready(f"s{i}", 10.2)
    assert mean_of(predictor, "k", 11.0) == pytest.approx(3.0)
    assert predictor.counters["end_before_start"] == predictor.counters["late_start"] == 2


def test_an_id_is_free_again_after_a_while() -> None:
    predictor = Predictor(reorder_s=30.0)
    predictor.started("s", "call_0", "k", 0.0)
    predictor.ended("s", "call_0", 1.0)
    predictor.started("s", "call_0", "k", 20.0)
    assert not predictor.running("s")
    predictor.started("s", "call_0", "k", 40.0)
    assert predictor.running("s")
    predictor.ended("s", "call_0", 41.0)
    assert not predictor.running("s")


def test_a_doubled_end_teaches_once() -> None:
    predictor = Predictor("paper")
    predictor.started("s", "c", "k", 0.0)
    for _ in range(3):
        predictor.ended("s", "c", 2.0, duration_s=2.0)
    assert predictor.counters["doubled_end"] == 2
    assert math.isnan(mean_of(predictor, "k", 3.0))  # one sample is no history


def test_a_doubled_start_changes_nothing() -> None:
    predictor = Predictor()
    predictor.started("s", "c", "k", 0.0, declared_s=10.0)
    predictor.started("s", "c", "k", 5.0, declared_s=99.0)
    view = predictor.calls("s", 5.0)[0]
    assert view.elapsed_s == 5.0
    assert view.remaining.seconds == pytest.approx(5.0, abs=0.2)


def test_progress_is_monotone_in_effect() -> None:
    predictor = Predictor()
    predictor.started("s", "c", "k", 0.0)
    seconds = []
    for t, fraction in ((4.0, 0.4), (5.0, 0.3), (9.0, 0.9)):
        predictor.progressed("s", "c", t, fraction=fraction)
        remaining = predictor.remaining("s", t)
        assert remaining is not None
        assert remaining.source == "progress"
        seconds.append(remaining.seconds)
    assert seconds == pytest.approx([6.0, 5.0, 1.0])
    assert predictor.ready("s", 9.0)


def test_percent_for_a_fraction_is_only_a_heartbeat() -> None:
    predictor = Predictor()
    predictor.started("s", "c", "k", 0.0)
    predictor.progressed("s", "c", 4.0, fraction=40.0)
    assert not predictor.ready("s", 4.0)
    predictor.progressed("s", "c", 4.0, fraction=1.0000001)
    assert predictor.ready("s", 4.0)


def test_progress_follows_the_speed_it_has_now() -> None:
    predictor = Predictor()
    predictor.started("s", "c", "k", 0.0)
    for i in range(10):  # 10 s of imports, then 5 % a second
        predictor.progressed("s", "c", 10.0 + i, fraction=0.05 + 0.05 * i)
    remaining = predictor.remaining("s", 19.0)
    assert remaining is not None
    assert remaining.seconds == pytest.approx(10.0, rel=0.1)


def test_a_stalled_call_is_not_ready_for_ever() -> None:
    predictor = Predictor()
    predictor.started("s", "c", "k", 0.0)
    predictor.progressed("s", "c", 9.5, fraction=0.95)
    assert predictor.ready("s", 9.6)
    warm = 0
    for second in range(10, 200):
        predictor.progressed("s", "c", float(second), fraction=0.95)  # it lives, but does not get on
        warm += predictor.ready("s", second + 0.5)
    assert warm <= 8
    remaining = predictor.remaining("s", 110.0)
    assert remaining is not None
    assert remaining.seconds == pytest.approx(100.0, rel=0.01)


def test_silence_ends_the_word_of_progress() -> None:
    predictor = Predictor(refresh_s=30.0)
    predictor.started("s", "c", "k", 0.0)
    predictor.progressed("s", "c", 1.0, remaining_s=100.0)
    sources = [r.source for t in (30.0, 32.0) if (r := predictor.remaining("s", t)) is not None]
    assert sources == ["progress", "default"]
    # A tool that speaks every 40 s is believed for 80.
    predictor.progressed("s", "c", 41.0, remaining_s=61.0)
    assert predictor.ready("s", 101.5)


def test_the_timer_minds_the_silence() -> None:
    predictor = Predictor(refresh_s=30.0)
    predictor.started("s", "c", "k", 0.0)
    predictor.progressed("s", "c", 1.0, remaining_s=100.0)
    assert predictor.next_change("s", 1.0) == 31.0


def test_done_but_not_returned_is_ready_then_probed() -> None:
    predictor = Predictor()
    predictor.started("s", "c", "k", 0.0)
    predictor.progressed("s", "c", 5.0, fraction=1.0)
    ready = [predictor.ready("s", t) for t in (5.0, 5.5, 6.5, 7.5, 8.5, 9.5)]
    assert ready == [True, True, True, False, True, False]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0, 1.7e308, 1e9])
def test_values_that_make_no_sense_are_ignored(bad: float) -> None:
    predictor = Predictor()
    predictor.started("s", "c", "k", 0.0, declared_s=bad, timeout_s=bad)
    predictor.progressed("s", "c", 1.0, fraction=bad, remaining_s=bad)
    remaining = predictor.remaining("s", 1.0)
    assert remaining is not None
    assert remaining.source == "default"
    predictor.ended("s", "c", 2.0, duration_s=bad)
    predictor.started("s", "d", "k", 5.0)
    remaining = predictor.remaining("s", 5.0)
    assert remaining is not None
    assert remaining.seconds < 6.0


@pytest.mark.parametrize("mode", MODES)
def test_no_number_keeps_the_predictor_busy(mode: Mode) -> None:
    predictor = Predictor(mode)
    numbers = (0.0, 1e-300, 2_592_000.0, 1e15, 1.7e308)
    for i, number in enumerate(numbers):
        predictor.started("s", str(i), "k", 0.0, declared_s=number, command=f"sleep {number}d")
        predictor.progressed("s", str(i), number, remaining_s=number)
        predictor.ended("s", str(i), number, duration_s=number)
    predictor.started("s", "c", "k", 0.0, command="sleep 99999999d; sleep 1e200")
    for t in numbers:
        remaining = predictor.remaining("s", t)
        assert remaining is not None
        assert 0.0 <= remaining.seconds < math.inf


def test_only_the_receivers_clock_and_the_hosts_durations_count() -> None:
    # A host 90 s ahead has no way in: events carry no time of their own to the predictor.
    predictor = Predictor("paper")
    for i in range(2):
        predictor.started(f"s{i}", "c", "k", 1000.0)
        predictor.ended(f"s{i}", "c", 1009.0, duration_s=2.0)  # the end was held up on the bus for 7 s
    assert mean_of(predictor, "k", 2000.0) == pytest.approx(2.0)


def test_progress_of_a_stranger_creates_nothing() -> None:
    predictor = Predictor()
    predictor.progressed("nobody", "c", 0.0, fraction=0.5)
    assert len(predictor) == 0
    assert predictor.counters["orphaned_progress"] == 1


def test_an_end_that_the_next_turn_overtook_still_teaches() -> None:
    predictor = Predictor("paper")
    for i in range(2):
        predictor.started(f"s{i}", "c", "k", 0.0)
        predictor.resumed(f"s{i}", 4.1)
        assert not predictor.running(f"s{i}")
        predictor.ended(f"s{i}", "c", 4.2, duration_s=4.0)
        predictor.ended(f"s{i}", "c", 4.3, duration_s=9.0)
    assert mean_of(predictor, "k", 5.0) == pytest.approx(4.0)
    predictor.resumed("nobody", 5.0)
    assert len(predictor) == 2


def test_tables_are_bounded() -> None:
    predictor = Predictor(max_sessions=10, max_calls=3)
    for i in range(100):
        predictor.started(f"s{i}", "c", f"k{i}", float(i))
        predictor.ended(f"e{i}", "c", float(i), duration_s=1.0)
        predictor.started("busy", str(i), "k", float(i))
    assert len(predictor) == 10
    assert [view.call_id for view in predictor.calls("busy", 100.0)] == ["97", "98", "99"]
    for i in range(1000):
        predictor.ended("busy", f"x{i}", 101.0)
    predictor.started("busy", "x0", "k", 102.0)  # its end is long forgotten
    assert "x0" in [view.call_id for view in predictor.calls("busy", 102.0)]


@given(st.floats(0.0, 1e9), st.floats(0.01, 100.0))
def test_a_probe_changes_exactly_at_its_timer(overdue: float, horizon: float) -> None:
    wait = next_probe_change(overdue, horizon)
    if wait is None:
        assert not probe_open(overdue, horizon)
        return
    assert wait > 0.0
    slack = 1e-9 * (1.0 + overdue + wait)
    if wait > 4.0 * slack:
        assert probe_open(overdue + 0.5 * wait, horizon) == probe_open(overdue + wait - slack, horizon)
        assert probe_open(overdue + 0.5 * wait, horizon) != probe_open(overdue + wait + slack, horizon)


SESSIONS = st.sampled_from(["a", "b", "c", "d", "e"])
CALLS = st.sampled_from(["1", "2", "3", "4"])
KEYS = st.sampled_from([None, "", "pytest", "pip install", "pip install+pytest"])
MAYBE = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.floats(0.0, 50.0))
COMMANDS = st.one_of(st.none(), st.sampled_from(["sleep 3", "a && sleep 2", "timeout 5 sleep 9", "ls |", "'"]))


class AnyOrder(RuleBasedStateMachine):
    """Whatever comes, in whatever order, at times that mostly go on."""

    mode: Mode = "default"

    def __init__(self) -> None:
        super().__init__()
        self.predictor = Predictor(self.mode, max_sessions=3, max_calls=2, expire_s=60.0)
        self.t = 0.0

    @rule(dt=st.one_of(st.floats(0.0, 3.0), st.floats(0.0, 1e4), st.floats(-5.0, 0.0)))
    def time_passes(self, dt: float) -> None:
        self.t += dt

    @rule(session=SESSIONS, call=CALLS, key=KEYS, declared=MAYBE, timeout=MAYBE, command=COMMANDS, tenant=KEYS)
    def started(
        self,
        session: str,
        call: str,
        key: str | None,
        declared: float | None,
        timeout: float | None,
        command: str | None,
        tenant: str | None,
    ) -> None:
        self.predictor.started(
            session, call, key, self.t, declared_s=declared, timeout_s=timeout, command=command, tenant=tenant
        )

    @rule(session=SESSIONS, call=CALLS, fraction=MAYBE, remaining=MAYBE)
    def progressed(self, session: str, call: str, fraction: float | None, remaining: float | None) -> None:
        self.predictor.progressed(session, call, self.t, fraction=fraction, remaining_s=remaining)

    @rule(session=SESSIONS, call=CALLS, duration=MAYBE)
    def ended(self, session: str, call: str, duration: float | None) -> None:
        self.predictor.ended(session, call, self.t, duration_s=duration)
        assert call not in [view.call_id for view in self.predictor.calls(session, self.t)]

    @rule(session=SESSIONS)
    def resumed(self, session: str) -> None:
        self.predictor.resumed(session, self.t)
        assert not self.predictor.running(session)

    @rule(session=SESSIONS)
    def forget(self, session: str) -> None:
        self.predictor.forget(session)
        assert self.predictor.ready(session, self.t)

    @invariant()
    def answers_make_sense(self) -> None:
        predictor, t = self.predictor, self.t
        assert len(predictor) <= 3
        for session in "abcde":
            views = predictor.calls(session, t)
            remaining = predictor.remaining(session, t)
            timer = predictor.next_change(session, t)
            assert len(views) <= 2
            assert predictor.running(session) == bool(views) == (remaining is not None)
            assert timer is None or t < timer < math.inf
            if remaining is None:
                assert predictor.ready(session, t)
                assert timer is None
                continue
            assert 0.0 <= remaining.seconds < math.inf
            assert remaining.elapsed_s >= 0.0
            if all(view.expired for view in views):
                assert not predictor.ready(session, t)


class AnyOrderPaper(AnyOrder):
    mode = "paper"


AnyOrder.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
AnyOrderPaper.TestCase.settings = AnyOrder.TestCase.settings
TestAnyOrder = AnyOrder.TestCase
TestAnyOrderPaper = AnyOrderPaper.TestCase


STEPS = st.lists(
    st.tuples(
        st.floats(0.0, 40.0), SESSIONS, CALLS, st.sampled_from(["start", "progress", "end", "resume"]), MAYBE, MAYBE
    ),
    max_size=40,
)


@pytest.mark.parametrize("mode", MODES)
@given(steps=STEPS)
@settings(max_examples=30, deadline=None)
def test_a_stream_in_which_every_event_comes_twice_says_the_same(mode: Mode, steps: list[Any]) -> None:
    """A publisher whose connection broke sends again what was not confirmed; no reader need be perfect."""
    once, twice = Predictor(mode), Predictor(mode)
    t = 0.0
    for wait, session, call, kind, a, b in steps:
        t += wait
        for predictor in (once, twice, twice):
            if kind == "start":
                predictor.started(session, call, "pytest", t, declared_s=a, timeout_s=b)
            elif kind == "progress":
                predictor.progressed(session, call, t, fraction=a, remaining_s=b)
            elif kind == "end":
                predictor.ended(session, call, t, duration_s=a)
            else:
                predictor.resumed(session, t)
        for name in "abcde":
            assert once.calls(name, t) == twice.calls(name, t)
            assert once.ready(name, t) == twice.ready(name, t)
    for predictor in (once, twice):
        predictor.started("new", "call", "pytest", t)
    assert once.remaining("new", t) == twice.remaining("new", t)
