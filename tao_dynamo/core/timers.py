# SPDX-License-Identifier: Apache-2.0
"""Timers of the core: a heap whose stale entries fall out when their time comes."""

from __future__ import annotations

import heapq
import itertools
from enum import Enum
from typing import NamedTuple


class Timer(Enum):
    """What a timer is for."""

    READINESS = "readiness"
    LONG_TOOL = "long_tool"
    EARLY = "early"
    OVERDUE = "overdue"
    SOLVE = "solve"
    SWEEP = "sweep"


class Due(NamedTuple):
    """A timer that has come due. ``epoch`` is the session's epoch when it was set."""

    at: float
    order: int
    timer: Timer
    session_id: str
    epoch: int


class Timers:
    """Pending timers, earliest first."""

    def __init__(self) -> None:
        self._heap: list[Due] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_at(self) -> float | None:
        """When the earliest comes due."""
        return self._heap[0].at if self._heap else None

    def set(self, at: float, timer: Timer, session_id: str = "", epoch: int = 0) -> None:
        """Ask to be called at ``at``."""
        heapq.heappush(self._heap, Due(at, next(self._order), timer, session_id, epoch))

    def pop_due(self, t: float) -> list[Due]:
        """Take out what is due at ``t``."""
        due = []
        while self._heap and self._heap[0].at <= t:
            due.append(heapq.heappop(self._heap))
        return due
