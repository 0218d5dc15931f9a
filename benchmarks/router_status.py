# SPDX-License-Identifier: Apache-2.0
"""The router's own figures, out of TAO's status page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from benchmarks.http_stream import Target, get
from tao_dynamo.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.metrics import Figures

COUNTERS = ("pauses", "restarts", "solves", "plans_applied", "tool_events_received")
"""Counts since the router's start: a run's share is the difference of two readings."""

LEVELS = ("pause_wait_mean_s", "wait_mean_s", "wait_max_s", "solve_mean_ms", "optimal_share")
"""Means and extremes since the router's start, taken as they stand after the run."""


class RouterStatus:
    """Reads the page.

    Args:
        target: its address.
    """

    def __init__(self, target: Target) -> None:
        self._target = target

    async def read(self) -> Mapping[str, Any]:
        """The page.

        Raises:
            StackError: it cannot be had, or is no JSON object.
        """
        raw = await get(self._target)
        try:
            page = json.loads(raw)
        except ValueError as error:
            raise StackError(f"{self._target}: not JSON ({error})") from error
        if not isinstance(page, dict):
            raise StackError(f"{self._target}: not a JSON object")
        return page


def router_figures(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Figures:
    """What the router did between two readings; all None without them.

    The page may nest its figures; each is found by its own name.
    """
    if before is None or after is None:
        return dict.fromkeys((*COUNTERS, *LEVELS))
    old, new = _flat(before), _flat(after)
    out: Figures = {}
    for key in COUNTERS:
        out[key] = int(new[key] - old.get(key, 0)) if key in new else None
    for key in LEVELS:
        out[key] = new.get(key)
    return out


def _flat(page: Mapping[str, Any]) -> dict[str, float]:
    flat: dict[str, float] = {}
    for key, value in page.items():
        if isinstance(value, dict):
            for inner, found in _flat(value).items():
                flat.setdefault(inner, found)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            flat[key] = value
    return flat
