# SPDX-License-Identifier: Apache-2.0
"""What the core needs from the two signals. The live tables and hand-written fakes both fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kv_events.types import NodeId


class CreditSource(Protocol):
    """Decayed KV-cache credit, as :class:`kv_events.credit.CreditTable` keeps it."""

    def credits(self, session_id: str, t: float) -> Mapping[NodeId, int]:
        """Credit in tokens per node; nodes without any are absent."""

    def resident(self, session_id: str) -> Mapping[NodeId, int]:
        """Undecayed tokens of the session's context on each node; nodes without any are absent."""

    def ran_on(self, session_id: str, node: NodeId, tokens: int, t: float) -> None:
        """A turn of the session ran on this node and left this many tokens of context."""

    def forget(self, session_id: str) -> None:
        """The session is gone."""

    def forget_node(self, node: NodeId) -> None:
        """The node is gone."""


class Remaining(Protocol):
    """An estimate of the time until a session's tool returns."""

    @property
    def seconds(self) -> float:
        """Expected remaining time, finite and at least 0."""

    @property
    def elapsed_s(self) -> float:
        """How long the call has run."""


class ReadinessSource(Protocol):
    """Tool calls and their remaining time, as :class:`tool_hooks.predictor.Predictor` keeps them."""

    def running(self, session_id: str) -> bool:
        """Whether a tool call of the session is known to run."""

    def ready(self, session_id: str, t: float) -> bool:
        """Whether the session counts as ready (DESIGN §4.2)."""

    def remaining(self, session_id: str, t: float) -> Remaining | None:
        """Expected remaining time, None when no tool runs."""

    def next_change(self, session_id: str, t: float) -> float | None:
        """When ``ready`` may change without a further event; None if it cannot."""

    def forget(self, session_id: str) -> None:
        """The session is gone."""
