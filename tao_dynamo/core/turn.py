# SPDX-License-Identifier: Apache-2.0
"""A turn as it arrives, and as it lives inside the core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kv_events.types import NodeId


@dataclass(frozen=True, slots=True)
class Turn:
    """One model request.

    Args:
        request_id: unique among live turns.
        session_id: None for a request without a session, which never waits.
        prompt_tokens: length of the whole prompt.
        expected_output: tokens it will probably produce; None lets the core estimate.
        priority: higher is more urgent, a class above the value.
        strict_priority: a class above ``priority``.
        parent_session_id: the session that waits for this one.
        hashes: sequence hashes of the prompt's full blocks, for shared prefixes.
        block_size: tokens per block of ``hashes``.
        final: the session ends with this turn.
        overlap: tokens of the prompt on each node, used for requests without a session.
    """

    request_id: str
    session_id: str | None
    prompt_tokens: int
    expected_output: int | None = None
    priority: int = 0
    strict_priority: int = 0
    parent_session_id: str | None = None
    hashes: Sequence[int] = ()
    block_size: int = 16
    final: bool = False
    overlap: Mapping[NodeId, int] = field(default_factory=dict)

    @property
    def tier(self) -> int:
        """The class of both priorities: higher goes first."""
        return self.strict_priority * 1_000_001 + max(-500_000, min(500_000, self.priority))


@dataclass(slots=True)
class LiveTurn:
    """A turn between arrival and end."""

    turn: Turn
    arrived_at: float
    expected_output: int
    generated: int = 0
    admitted_at: float | None = None
    first_token_at: float | None = None

    @property
    def reserved(self) -> int:
        """Tokens of room it needs: its prompt and what it is expected to produce."""
        return self.turn.prompt_tokens + self.expected_output

    @property
    def context(self) -> int:
        """Tokens its context holds by now."""
        return self.turn.prompt_tokens + self.generated
