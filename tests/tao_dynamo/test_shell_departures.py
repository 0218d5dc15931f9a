# SPDX-License-Identifier: Apache-2.0
"""Workers that leave while they answer, by a clock of our own."""

from __future__ import annotations

from collections.abc import Callable

from tao_dynamo.shell.departures import SILENCE_S, Departures, Streams


class FakeTimer:
    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at = at
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[FakeTimer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> FakeTimer:
        self.timers.append(FakeTimer(self.now + delay, callback))
        return self.timers[-1]

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [timer for timer in self.timers if timer.at <= self.now]
        self.timers = [timer for timer in self.timers if timer.at > self.now]
        for timer in due:
            if not timer.cancelled:
                timer.callback()


class FakeStream:
    def __init__(self, streams: Streams | None = None) -> None:
        self.heard = float("-inf")
        self.given_up = False
        self._streams = streams
        if streams is not None:
            streams.add(self)

    def lost(self) -> None:
        self.given_up = True
        if self._streams is not None:
            self._streams.discard(self)


def test_a_worker_that_left_and_is_silent_is_given_up() -> None:
    clock = FakeClock()
    streams = Streams(clock)
    waiting, talking = FakeStream(streams), FakeStream(streams)
    talking.heard = clock.now
    clock.advance(60)
    streams.leave()
    clock.advance(SILENCE_S - 0.1)
    assert not waiting.given_up
    clock.advance(0.1)
    assert waiting.given_up
    assert talking.given_up
    assert len(streams) == 0


def test_a_worker_that_drains_may_finish_all_that_it_has() -> None:
    clock = FakeClock()
    streams = Streams(clock)
    waiting, talking = FakeStream(streams), FakeStream(streams)
    streams.leave()
    for _ in range(20):
        clock.advance(SILENCE_S - 1)
        talking.heard = clock.now
        streams.leave()
    streams.discard(talking)
    clock.advance(SILENCE_S - 1)
    assert not waiting.given_up
    clock.advance(1)
    assert waiting.given_up


def test_a_worker_that_comes_back_is_waited_for_again() -> None:
    clock = FakeClock()
    streams = Streams(clock)
    waiting = FakeStream(streams)
    streams.leave()
    streams.stay()
    clock.advance(10 * SILENCE_S)
    assert not waiting.given_up
    streams.leave()
    clock.advance(SILENCE_S)
    assert waiting.given_up


def test_one_that_owes_nothing_is_not_watched() -> None:
    clock = FakeClock()
    streams = Streams(clock)
    streams.leave()
    assert not clock.timers
    stream = FakeStream(streams)
    streams.leave()
    streams.discard(stream)
    assert all(timer.cancelled for timer in clock.timers)


def test_only_those_of_workers_that_left_are_given_up_also_where_it_left_while_it_was_asked() -> None:
    clock = FakeClock()
    departures = Departures(clock)
    stays, leaves, late = FakeStream(), FakeStream(), FakeStream()
    departures.begin(7, leaves)
    departures.begin(8, stays)
    departures.instances([8])
    departures.end(7, leaves)
    departures.begin(7, late)
    clock.advance(SILENCE_S)
    assert (stays.given_up, leaves.given_up, late.given_up) == (False, False, True)
    departures.end(7, late)
    departures.end(7, late)
