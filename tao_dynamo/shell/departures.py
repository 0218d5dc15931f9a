# SPDX-License-Identifier: Apache-2.0
"""Workers that have left discovery while they answer: those that drain may finish, those that hang are given up.

A worker that is told to stop leaves discovery first and then finishes what runs. One that hangs, or whose machine does,
leaves it too, when its lease runs out, but its connections stay, and nothing more ever comes over them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Protocol

SILENCE_S = 5.0
"""Longest silence of a worker that has left, over all its streams, before they are given up.

An engine that decodes is never silent for so long. One that only prefills may be; then the prompt is computed once more
on another node, which is cheaper than turns that wait for a worker that is never heard again.
"""


class Stream(Protocol):
    """An answer under way."""

    @property
    def heard(self) -> float:
        """When its last tokens came, by the loop's clock; minus infinity: none have."""

    def lost(self) -> None:
        """Nothing more comes."""


class Timer(Protocol):
    """A call to come."""

    def cancel(self) -> None:
        """It shall not come."""


class Clock(Protocol):
    """Of the event loop, what is needed here."""

    def time(self) -> float:
        """Seconds."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Call once, after so many seconds."""


class Streams:
    """The answers under way of one worker, over whatever connections.

    Args:
        clock: the event loop; None: the running one.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or asyncio.get_running_loop()
        self._running: set[Stream] = set()
        self._heard = float("-inf")
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._running)

    def add(self, stream: Stream) -> None:
        """An answer is asked for."""
        self._running.add(stream)

    def discard(self, stream: Stream) -> None:
        """It has ended."""
        self._running.discard(stream)
        self._heard = max(self._heard, stream.heard)
        if not self._running:
            self.stay()

    def leave(self) -> None:
        """The worker has left: from now on it must be heard of."""
        if self._running and self._timer is None:
            self._heard = self._clock.time()
            self._timer = self._clock.call_later(SILENCE_S, self._look)

    def stay(self) -> None:
        """It is back, or owes nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        heard = max([self._heard, *(stream.heard for stream in self._running)])
        left = heard + SILENCE_S - self._clock.time()
        if left > 0:
            self._timer = self._clock.call_later(left, self._look)
            return
        self._timer = None
        for stream in list(self._running):
            stream.lost()


class Departures:
    """The answers under way of all workers.

    Args:
        clock: the event loop; None: the running one.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self._streams: dict[int, Streams] = {}
        self._live: frozenset[int] | None = None

    def begin(self, worker_id: int, stream: Stream) -> None:
        """An answer is asked for."""
        streams = self._streams.setdefault(worker_id, Streams(self._clock))
        streams.add(stream)
        if self._live is not None and worker_id not in self._live:  # it left while it was being asked
            streams.leave()

    def end(self, worker_id: int, stream: Stream) -> None:
        """It has ended."""
        streams = self._streams.get(worker_id)
        if streams is not None:
            streams.discard(stream)
            if not streams:
                del self._streams[worker_id]

    def instances(self, live: Collection[int]) -> None:
        """Hear which workers live."""
        self._live = frozenset(live)
        for worker_id, streams in self._streams.items():
            if worker_id in self._live:
                streams.stay()
            else:
                streams.leave()
