# SPDX-License-Identifier: Apache-2.0
"""Durations that calls had: bounded, and forgetting the oldest first."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import OrderedDict, deque

MIN_SAMPLES = 2
"""The margin's formula divides by n - 1."""


class Window:
    """The last ``limit`` durations of one kind, in seconds.

    Args:
        limit: how many to keep; older ones are forgotten.
    """

    __slots__ = ("_limit", "_mean_margin", "_order", "_sorted")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._order: deque[float] = deque()
        self._sorted: list[float] = []
        self._mean_margin: tuple[float, float, float] | None = None

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, seconds: float) -> None:
        """Learns one duration, finite and >= 0."""
        self._order.append(seconds)
        insort(self._sorted, seconds)
        if len(self._order) > self._limit:
            del self._sorted[bisect_left(self._sorted, self._order.popleft())]
        self._mean_margin = None

    @property
    def last(self) -> float:
        """The newest duration. Raises IndexError when there is none."""
        return self._order[-1]

    @property
    def ordered(self) -> list[float]:
        """The durations, shortest first. The window's own list: read it, do not change it."""
        return self._sorted

    def mean_and_margin(self, delta: float) -> tuple[float, float]:
        """Mean, and the Maurer-Pontil empirical-Bernstein margin at confidence ``1 - delta``, in seconds.

        ``sqrt(2 V ln(2/delta) / n) + 7 R ln(2/delta) / (3 (n - 1))`` with V the sample variance and R the observed
        range: Maurer and Pontil, "Empirical Bernstein bounds and sample-variance penalization", COLT 2009, theorem 4.
        The margin is infinite for fewer than two samples.
        """
        if self._mean_margin is None or self._mean_margin[2] != delta:
            n = len(self._sorted)
            if n == 0:
                return 0.0, math.inf
            mean = math.fsum(self._sorted) / n
            margin = math.inf
            if n >= MIN_SAMPLES:
                variance = math.fsum((x - mean) ** 2 for x in self._sorted) / (n - 1)
                log = math.log(2.0 / delta)
                spread = self._sorted[-1] - self._sorted[0]
                margin = math.sqrt(2.0 * variance * log / n) + 7.0 * spread * log / (3.0 * (n - 1))
            self._mean_margin = (mean, margin, delta)
        return self._mean_margin[0], self._mean_margin[1]


class History:
    """Windows by name, the least recently used forgotten when there are too many.

    Args:
        window: durations kept per name.
        max_names: names kept.
        seeds: durations that a new window begins with; they are forgotten first.
    """

    def __init__(self, *, window: int, max_names: int, seeds: tuple[float, ...] = ()) -> None:
        self._seeds = seeds
        self._window = window
        self._max_names = max_names
        self._windows: OrderedDict[str, Window] = OrderedDict()

    def __len__(self) -> int:
        return len(self._windows)

    def get(self, name: str) -> Window | None:
        """The window of ``name``, or None when nothing is known of it."""
        return self._windows.get(name)

    def add(self, name: str, seconds: float) -> None:
        """Learns one duration of ``name``."""
        found = self._windows.get(name)
        if found is None:
            found = self._windows[name] = Window(self._window)
            for seed in self._seeds:
                found.add(seed)
            if len(self._windows) > self._max_names:
                self._windows.popitem(last=False)
        else:
            self._windows.move_to_end(name)
        found.add(seconds)
