# SPDX-License-Identifier: Apache-2.0
"""TokenCake's mean-based prediction.

Rule: sessions stay on the node that had the least in use when they began. When a tool starts and the mean of its
kind says that it runs longer than moving the cache out and back takes, its blocks are offered for eviction first (to
the host tier, where there is one), but only while the node is under pressure.
Source: Bian et al., "TokenCake: A KV-Cache-centric Serving Framework for LLM-based Multi-Agent Applications".
Parameters: pressure from 0.8 of the room; host link 200,000 tokens/s each way; 5 s for an unknown tool. Not
modelled: its reservation for critical agents, which recorded sessions do not have.
Good when: there is a host tier that is quick to load from, and tools of one kind last about as long each time.
"""

from __future__ import annotations

from benchmarks.policies.base import Action, Demote, Plain, Request, Site
from benchmarks.policies.tool_history import ToolHistory

PRESSURE = 0.8


class TokenCake(Plain):
    """See the module."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._home: dict[str, int] = {}
        self._context: dict[str, int] = {}
        self._live: dict[str, Request] = {}
        self._tools = ToolHistory()

    def choose(self, request: Request, t: float) -> int:
        """The session's node."""
        self._live[request.request_id] = request
        if request.session is None:
            return min(self.nodes, key=self._used)
        if request.session not in self._home:
            self._home[request.session] = min(self.nodes, key=self._used)
        self._context[request.session] = request.prompt
        return self._home[request.session]

    def turn_ended(self, request_id: str, *, cached: int, output: int, t: float) -> list[Action]:
        """Remember how much there is."""
        request = self._live.pop(request_id)
        if request.session is not None:
            self._context[request.session] = request.prompt + output
        return []

    def tool_started(self, session: str, call_id: str, key: str | None, t: float) -> list[Action]:
        """Offer the blocks of a long call under pressure."""
        self._tools.started(call_id, key)
        node = self._home[session]
        moving_s = 2 * self._context[session] / self.site.setup.host_tokens_per_s
        if self._used(node) < PRESSURE * self.site.setup.capacity_tokens or self._tools.mean(key) <= moving_s:
            return []
        return [Demote(session, node)]

    def tool_ended(self, session: str, call_id: str, duration_s: float, t: float) -> list[Action]:
        """Learn."""
        self._tools.ended(call_id, duration_s)
        return []

    def session_ended(self, session: str, t: float) -> list[Action]:
        """Forget."""
        self._home.pop(session, None)
        self._context.pop(session, None)
        return []

    def _used(self, node: int) -> int:
        return sum(tokens for session, tokens in self._context.items() if self._home.get(session) == node)
