# SPDX-License-Identifier: Apache-2.0
"""Virtual time: what happens when, in order."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from tao_dynamo.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Callable


class Calendar:
    """A heap of actions. Actions of the same time run in the order in which they were entered."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, t: float, action: Callable[[], None]) -> None:
        """Run ``action`` at time ``t`` (seconds), or now if that has passed."""
        self._count += 1
        heapq.heappush(self._heap, (max(t, self.now), self._count, action))

    def run(self, *, done: Callable[[], bool], most_events: int = 50_000_000) -> int:
        """Run until ``done`` or nothing is left. Returns the number of actions run.

        Raises:
            StackError: after ``most_events`` actions; something goes in circles.
        """
        for count in range(most_events):
            if done() or not self._heap:
                return count
            self.now, _, action = heapq.heappop(self._heap)
            action()
        raise StackError(f"the simulation did not end within {most_events} events")
