# SPDX-License-Identifier: Apache-2.0
"""The router's own figures, out of TAO's status page and the metrics on the same port."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from benchmarks.http_stream import Target, get
from tao_dynamo.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.metrics import Figures

KEYS = (
    *("pauses", "restarts", "pause_wait_mean_s", "wait_mean_s", "wait_max_s"),
    *("solves", "solve_mean_ms", "optimal_share", "plans_applied", "tool_events_received"),
)
_SAMPLE = re.compile(r"dynamo_component_tao_router_(\w+_seconds_(?:sum|count)) (\S+)", re.MULTILINE)
_LOOK_EVERY_S = 1.0


@dataclass(slots=True)
class Reading:
    """Counts since the router's start, by name."""

    counts: dict[str, float] = field(default_factory=dict)

    def since(self, before: Reading, name: str) -> float | None:
        """How much a count has grown; None if the router does not tell it."""
        return self.counts[name] - before.counts.get(name, 0.0) if name in self.counts else None


class RouterStatus:
    """Reads the page, and while a run goes on looks at who waits longest.

    Args:
        target: address of the status page.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        parts = urlsplit(str(target))
        self._metrics = Target(f"http://{parts.netloc}", "/metrics")
        self._longest_s = 0.0

    async def read(self) -> Reading:
        """All counts now.

        Raises:
            StackError: the page cannot be had, or is no JSON object.
        """
        page = await self._page()
        text = (await get(self._metrics)).decode(errors="replace")
        counts = {name: float(value) for name, value in _SAMPLE.findall(text)}
        return Reading(counts | _counts(page))

    async def watch(self) -> None:
        """Until cancelled, look every second for how long the pool's sessions have waited."""
        while True:
            with contextlib.suppress(StackError):
                waiting = (await self._page()).get("waiting") or ()
                waits = [view.get("waited_s") or 0.0 for view in waiting if isinstance(view, dict)]
                self._longest_s = max([self._longest_s, *waits])
            await asyncio.sleep(_LOOK_EVERY_S)

    def figures(self, before: Reading, after: Reading) -> Figures:
        """What the router did between two readings.

        ``wait_max_s`` is the longest wait that was seen, once a second, so up to a second short.
        """
        applied = after.since(before, "plans_applied")
        optimal = after.since(before, "plans_optimal")
        out: Figures = dict.fromkeys(KEYS)
        for name in ("pauses", "restarts", "solves", "plans_applied", "tool_events_received"):
            count = after.since(before, name)
            out[name] = None if count is None else int(count)
        out["pause_wait_mean_s"] = _mean(after, before, "pause_seconds")
        out["wait_mean_s"] = _mean(after, before, "turn_wait_seconds")
        out["wait_max_s"] = self._longest_s
        solve_s = _mean(after, before, "solve_seconds")
        out["solve_mean_ms"] = None if solve_s is None else 1000.0 * solve_s
        out["optimal_share"] = optimal / applied if applied and optimal is not None else None
        return out

    async def _page(self) -> Mapping[str, Any]:
        raw = await get(self._target)
        try:
            page = json.loads(raw)
        except ValueError as error:
            raise StackError(f"{self._target}: not JSON ({error})") from error
        if not isinstance(page, dict):
            raise StackError(f"{self._target}: not a JSON object")
        return page


def _counts(page: Mapping[str, Any]) -> dict[str, float]:
    """The status page's counts that we report. A missing one counts as not told."""
    core = _table(page, "core")
    counts: dict[str, float] = {"plans_optimal": core.get("plans_optimal", 0.0)} if core else {}
    for name in ("pauses", "restarts", "plans_applied"):
        if isinstance(page.get(name), int):
            counts[name] = page[name]
    if "total" in (solves := _table(page, "solves")):
        counts["solves"] = solves["total"]
    if isinstance(page.get("tool_events"), dict):
        counts["tool_events_received"] = sum(_table(page, "tool_events").values())
    return counts


def _table(page: Mapping[str, Any], name: str) -> dict[str, float]:
    table = page.get(name)
    if not isinstance(table, dict):
        return {}
    return {key: value for key, value in table.items() if isinstance(value, int | float)}


def _mean(after: Reading, before: Reading, name: str) -> float | None:
    count = after.since(before, f"{name}_count")
    total = after.since(before, f"{name}_sum")
    return total / count if count and total is not None else None
