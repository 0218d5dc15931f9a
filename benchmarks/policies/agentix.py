# SPDX-License-Identifier: Apache-2.0
"""Agentix (Autellix): least attained service of the whole program.

Rule: a session's turns are served in order of the service that the session has had so far (tokens computed),
in levels that double; within a level first come first served. Long requests stay on their session's node, short
ones go to the least used node.
Source: Luo et al., "Autellix: An Efficient Serving Engine for LLM Agents as General Programs", PLAS and its router.
Parameters: first level 8,192 tokens of service, factor 2; short up to 2,048 tokens. Not modelled: preemption of
running requests in favour of a higher level.
Good when: short sessions share the nodes with long ones and their latency counts most; long ones pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.policies.base import Action, Plain, Request, Send, Site

if TYPE_CHECKING:
    from benchmarks.simulator.node import QueueOrder

FIRST_LEVEL = 8192
SHORT = 2048


class LeastAttainedService(Plain):
    """See the module."""

    queue_order: QueueOrder = "priority"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._served: dict[str, int] = {}
        self._home: dict[str, int] = {}
        self._live: dict[str, Request] = {}

    def turn_arrived(self, request: Request, t: float) -> list[Action]:
        """See the module."""
        key = request.session or request.request_id
        home = self._home.get(key)
        if home is None or request.prompt <= SHORT:
            home = min(self.nodes, key=self.site.load)
        self._home[key] = home
        self._live[request.request_id] = request
        level = max(0, (self._served.get(key, 0) // FIRST_LEVEL).bit_length())
        return [Send(request.request_id, home, priority=float(level))]

    def turn_ended(self, request_id: str, *, cached: int, output: int, t: float) -> list[Action]:
        """Count what was computed for it."""
        request = self._live.pop(request_id)
        key = request.session or request_id
        if request.final:
            self._served.pop(key, None)
            self._home.pop(key, None)
        else:
            self._served[key] = self._served.get(key, 0) + request.prompt - cached + output
        return []
