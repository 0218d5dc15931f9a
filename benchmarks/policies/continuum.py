# SPDX-License-Identifier: Apache-2.0
"""Continuum: keep a session's cache for a time to live while its tool runs.

Rule: sessions stay on the node that had the fewest when they began. When a turn ends in a tool call its blocks are
pinned for a time tau, the one that maximises P(tool returns within tau) x benefit - E[min(duration, tau)], over the
recorded durations of that kind of tool; the benefit is what a lost cache costs: the prefill of the context and the
mean time in the queue. Turns are served in the order in which their sessions began.
Source: Li et al., "Continuum: Efficient and Robust Multi-Turn LLM Agent Scheduling with KV Cache Time-to-Live".
Parameters: 200 remembered calls a kind; the mean queueing time forgets with factor 0.9. Pins are dropped when the
engine can run nothing otherwise. Needs a call that stock engines have not.
Good when: tools are short and alike, so that holding on to a cache for a moment costs less than building it anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.policies.base import Action, Pin, Plain, Request, Send, Site
from benchmarks.policies.tool_history import ToolHistory

if TYPE_CHECKING:
    from benchmarks.simulator.node import QueueOrder


class Continuum(Plain):
    """See the module."""

    queue_order: QueueOrder = "priority"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._home: dict[str, int] = {}
        self._began: dict[str, float] = {}
        self._context: dict[str, int] = {}
        self._live: dict[str, tuple[Request, float]] = {}
        self._tools = ToolHistory()
        self._queued_s = 0.0
        self._rate = site.setup.timing.prefill_rate()

    def turn_arrived(self, request: Request, t: float) -> list[Action]:
        """To its session's node, in the order of the sessions' beginnings."""
        key = request.session or request.request_id
        if key not in self._home:
            homes = list(self._home.values())
            self._home[key] = min(self.nodes, key=lambda n: (homes.count(n), n))
            self._began[key] = t
        self._live[request.request_id] = (request, t)
        return [Send(request.request_id, self._home[key], priority=self._began[key])]

    def first_token(self, request_id: str, t: float) -> list[Action]:
        """Learn how long turns queue."""
        self._queued_s += 0.1 * (t - self._live[request_id][1] - self._queued_s)
        return []

    def turn_ended(self, request_id: str, *, cached: int, output: int, t: float) -> list[Action]:
        """Remember how much there is to keep."""
        request, _ = self._live.pop(request_id)
        if request.session is None:
            self.session_ended(request_id, t)
        else:
            self._context[request.session] = request.prompt + output
        return []

    def tool_started(self, session: str, call_id: str, key: str | None, t: float) -> list[Action]:
        """Pin for the best time to live."""
        self._tools.started(call_id, key)
        durations = sorted(self._tools.of(key))
        benefit = self._context[session] / self._rate + self._queued_s
        best, live = 0.0, 0.0
        kept = 0.0
        for i, tau in enumerate(durations, 1):
            kept += tau
            gain = (i * benefit - kept - (len(durations) - i) * tau) / len(durations)
            if gain > best:
                best, live = gain, tau
        return [Pin(session, self._home[session], t + live)] if live else []

    def tool_ended(self, session: str, call_id: str, duration_s: float, t: float) -> list[Action]:
        """Learn."""
        self._tools.ended(call_id, duration_s)
        return []

    def session_ended(self, session: str, t: float) -> list[Action]:
        """Forget."""
        self._home.pop(session, None)
        self._began.pop(session, None)
        self._context.pop(session, None)
        return []
