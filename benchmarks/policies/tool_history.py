# SPDX-License-Identifier: Apache-2.0
"""Recorded durations per kind of tool, for the policies that predict from them."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT = 200


class ToolHistory:
    """The last calls of each kind, and of all kinds."""

    def __init__(self) -> None:
        self._by_key: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._all: deque[float] = deque(maxlen=KEPT)
        self._running: dict[str, str] = {}

    def started(self, call_id: str, key: str | None) -> None:
        """A call begins."""
        self._running[call_id] = key or ""

    def ended(self, call_id: str, duration_s: float) -> None:
        """A call has returned."""
        self._by_key[self._running.pop(call_id, "")].append(duration_s)
        self._all.append(duration_s)

    def of(self, key: str | None) -> Sequence[float]:
        """Durations of calls of this kind; of all where there are too few of it."""
        mine = self._by_key.get(key or "", ())
        return mine if len(mine) >= 3 else self._all

    def mean(self, key: str | None, default: float = 5.0) -> float:
        """Mean duration of this kind."""
        durations = self.of(key)
        return sum(durations) / len(durations) if durations else default
