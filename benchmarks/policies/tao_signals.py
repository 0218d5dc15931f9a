# SPDX-License-Identifier: Apache-2.0
"""The core's two signals out of simulated events, and what takes their place in ablations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.policies.base import Site
    from kv_events.types import NodeId


class Credit:
    """KV-cache credit from the simulated events: the formula of ``kv_events.credit`` on session prefixes.

    Args:
        half_life_s: of the decay, in seconds.
        on: False is the ablation without credit.
        host_worth: what a token in the host tier counts.
    """

    def __init__(self, half_life_s: float, *, on: bool, host_worth: float = 0.0) -> None:
        self._half_life = half_life_s
        self._on = on
        self._here: dict[str, dict[NodeId, int]] = {}
        self._seen: dict[str, dict[NodeId, float]] = {}
        self._shared: dict[str, tuple[str, int]] = {}
        self._host_worth = host_worth
        self._host: dict[str, dict[NodeId, int]] = {}

    def shared_by(self, session_id: str, key: str, tokens: int) -> None:
        """The session's prompts begin with this shared one."""
        self._shared[session_id] = (key, tokens)

    def changed(self, node: NodeId, changes: Mapping[str, int], t: float) -> None:
        """KV events: what is resident of sessions and shared prompts on a node."""
        for key, tokens in changes.items():
            before = self._here.setdefault(key, {})
            if tokens >= before.get(node, 0) and tokens:
                self._seen.setdefault(key, {})[node] = t
            if tokens:
                before[node] = tokens
            else:
                before.pop(node, None)

    def host_changed(self, node: NodeId, changes: Mapping[str, int]) -> None:
        """KV events of the host tier: how far it goes on where the device ends."""
        if not self._host_worth:
            return
        for key, tokens in changes.items():
            if tokens:
                self._host.setdefault(key, {})[node] = tokens
            elif key in self._host:
                self._host[key].pop(node, None)

    def resident(self, session_id: str) -> dict[NodeId, int]:
        """Tokens of the session's context on each node, its shared prompt included."""
        if not self._on:
            return {}
        key, length = self._shared.get(session_id, ("", 0))
        own = self._here.get(session_id, {})
        found: dict[NodeId, int] = {}
        for node, tokens in self._here.get(key, {}).items():
            found[node] = length + own.get(node, 0) if tokens >= length else tokens
        if not length:
            found.update(own)
        for node, tokens in self._host.get(session_id, {}).items():
            before = found.get(node, 0)
            found[node] = before + max(0, int(self._host_worth * (length + tokens - before)))
        return found

    def credits(self, session_id: str, t: float) -> dict[NodeId, int]:
        """Decayed credit in tokens."""
        seen = self._seen.get(session_id, {})
        out: dict[NodeId, int] = {}
        for node, tokens in self.resident(session_id).items():
            since = seen.get(node)
            if since is not None:
                out[node] = int(tokens * 2.0 ** (-(t - since) / self._half_life))
        return out

    def ran_on(self, session_id: str, node: NodeId, tokens: int, t: float) -> None:
        """A turn that ran confirms what the events say."""
        self._seen.setdefault(session_id, {})[node] = t

    def forget(self, session_id: str) -> None:
        """The session is gone."""
        for table in (self._here, self._seen, self._shared, self._host):
            table.pop(session_id, None)

    def forget_node(self, node: NodeId) -> None:
        """The node is gone."""
        for per_node in (*self._here.values(), *self._host.values()):
            per_node.pop(node, None)


class Blind:
    """Readiness for the ablation without it: no tool is ever known to run, every session counts as ready."""

    def running(self, session_id: str) -> bool:
        """No."""
        return False

    def ready(self, session_id: str, t: float) -> bool:
        """Yes."""
        return True

    def remaining(self, session_id: str, t: float) -> None:
        """Unknown."""

    def next_change(self, session_id: str, t: float) -> None:
        """Never."""

    def forget(self, session_id: str) -> None:
        """Nothing was known."""


@dataclass(frozen=True, slots=True)
class Exactly:
    """A remaining time that is known. Times in seconds."""

    seconds: float
    elapsed_s: float


class Oracle:
    """Readiness that knows when every tool returns, out of the recorded sessions.

    Args:
        site: knows what is going to happen.
        horizon_s: as the policy has it.
    """

    def __init__(self, site: Site, horizon_s: float) -> None:
        self._site = site
        self._horizon = horizon_s

    def running(self, session_id: str) -> bool:
        """Whether a tool runs."""
        return self._site.tool(session_id) is not None

    def ready(self, session_id: str, t: float) -> bool:
        """Whether it returns within the horizon, or none runs."""
        call = self._site.tool(session_id)
        return call is None or call[1] - t <= self._horizon

    def remaining(self, session_id: str, t: float) -> Exactly | None:
        """The time until it returns."""
        call = self._site.tool(session_id)
        return None if call is None else Exactly(max(0.0, call[1] - t), t - call[0])

    def next_change(self, session_id: str, t: float) -> float | None:
        """When it begins to be about to return."""
        call = self._site.tool(session_id)
        return None if call is None or call[1] - t <= self._horizon else call[1] - self._horizon

    def forget(self, session_id: str) -> None:
        """Nothing is kept."""
