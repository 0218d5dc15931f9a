# SPDX-License-Identifier: Apache-2.0
"""How long a recorded tool call took, or by a stated rule might have taken.

In this order: the measured time; the ``sleep`` in its command; for a call of known programs, a draw from the
measured quantiles of the slowest of them (``data/tool_quantiles.json``); for a nameless call, the median of
the session's measured ones; for a shell call of unknown programs, a draw from the quantiles of all; for an
API call (a named tool that is no shell), log-uniform between 0.05 s and 1 s, an assumption. A drawn time
never exceeds the recorded period of its turn (model and tool together). Draws follow from the session's id.
"""

from __future__ import annotations

import json
import random
import statistics
from bisect import bisect_right
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SHELLS = {"bash", "terminal", "shell", "sh", "execute_bash", "tool"}
_API_S = (0.05, 1.0)


class ToolTimes:
    """The durations of one session's calls.

    Args:
        session_id: seeds the draws.
        calls: all recorded ``tool`` objects of the session (or ``None``), for the median.
    """

    def __init__(self, session_id: str, calls: Sequence[object]) -> None:
        self._random = random.Random(session_id)
        measured = [float(c["duration_s"]) for c in calls if isinstance(c, dict) and _measured(c)]
        self._median = statistics.median(measured) if measured else None

    def duration(self, call: Mapping[str, Any], period_s: float | None) -> tuple[float, bool]:
        """Seconds, and whether they were measured."""
        if _measured(call):
            return float(call["duration_s"]), True
        draw = self._draw(call)
        return (draw if period_s is None else min(draw, period_s)), False

    def _draw(self, call: Mapping[str, Any]) -> float:
        sleep = call.get("shell_sleep_s")
        if sleep:
            return float(sum(sleep)) if isinstance(sleep, list) else float(sleep)
        chance = self._random.random()
        at, every, programs = _quantiles()
        known = [programs[p] for p in call.get("programs") or () if p in programs]
        if known:
            return _at(chance, at, max(known, key=lambda row: row[len(row) // 2]))
        name = call.get("name")
        if name is None and self._median is not None:
            return float(self._median)
        if name is None or name in _SHELLS:
            return _at(chance, at, every)
        low, high = _API_S
        return float(low * (high / low) ** chance)


def _measured(call: Mapping[str, Any]) -> bool:
    # A source's clock stepped back during one call: a negative time was not measured.
    value = call.get("duration_s")
    return isinstance(value, int | float) and value >= 0


def _at(chance: float, at: Sequence[float], row: Sequence[float]) -> float:
    i = min(bisect_right(at, chance), len(at) - 1)
    part = (chance - at[i - 1]) / (at[i] - at[i - 1])
    return row[i - 1] + part * (row[i] - row[i - 1])


@cache
def _quantiles() -> tuple[list[float], list[float], dict[str, list[float]]]:
    table = json.loads((Path(__file__).parent / "data" / "tool_quantiles.json").read_text(encoding="utf-8"))
    return table["at"], table["all"], table["programs"]
