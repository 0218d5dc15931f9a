# SPDX-License-Identifier: Apache-2.0
"""A session: one agent run, between its first turn and its end or expiry."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from kv_events.types import NodeId
from tao_dynamo.core.prefixes import SharedPrefix
from tao_dynamo.core.turn import LiveTurn


class SessionState(Enum):
    """Where a session is. Those that hold room: RUNNING, TOOL, IDLE."""

    RUNNING = "running"
    """A turn of it runs on its node."""
    TOOL = "tool"
    """Between turns, holding room, a tool call known to run."""
    IDLE = "idle"
    """Between turns, holding room, no tool call known."""
    WAITING = "waiting"
    """A turn has arrived and there is no room for it yet."""
    PAUSED = "paused"
    """Between turns, without room."""


@dataclass(slots=True)
class Session:
    """What the core knows of a session. ``epoch`` changes with every event that a plan may have relied on.

    ``footprint`` is the context that its last turn left, the largest one where several ran side by side; ``widest`` is
    the largest that ended while others of them still ran.
    """

    id: str
    index: int
    created_at: float
    parent: str | None = None
    branch_of: str | None = None
    state: SessionState = SessionState.IDLE
    since: float = 0.0
    last_active: float = 0.0
    node: NodeId | None = None
    epoch: int = 0
    tool_epoch: int = 0
    footprint: int = 0
    turns: dict[str, LiveTurn] = field(default_factory=dict)
    widest: int = 0
    registered: bool = False
    common: SharedPrefix | None = None
    mean_output: float | None = None
    tool_seen: bool = False
    long_tool: bool = False
    marked: bool = False
    final: bool = False
    paused_at: float | None = None
    waiting_since: float | None = None
    early_until: float | None = None
    claimed: NodeId | None = None
    children: set[str] = field(default_factory=set)
    branches: set[str] = field(default_factory=set)
    children_on: dict[NodeId, int] = field(default_factory=dict)
    child_heard_at: float = float("-inf")
    turn_ended_at: float = float("-inf")
    pressing: tuple[int, float, int] | None = None
    tier: int = 0
    last_refusal: str | None = None

    @property
    def public_id(self) -> str:
        """The id that the client knows: a branch answers to the session it branched from."""
        return self.branch_of or self.id

    @property
    def pending(self) -> list[LiveTurn]:
        """Turns that have arrived and are not admitted."""
        return [turn for turn in self.turns.values() if turn.admitted_at is None]

    @property
    def running(self) -> bool:
        """Whether a turn of it is admitted and not ended."""
        return any(turn.admitted_at is not None for turn in self.turns.values())

    @property
    def reserved(self) -> int:
        """Tokens of room it needs: the sum over its live turns, or its context between turns."""
        tokens = 0
        for turn in self.turns.values():
            tokens += turn.turn.prompt_tokens + turn.expected_output
        return max(tokens, self.footprint)

    def enter(self, state: SessionState, t: float) -> None:
        """Change state and remember since when."""
        if state is not self.state:
            self.state = state
            self.since = t

    def expect_output(self, hint: int | None, default: int) -> int:
        """Tokens the next turn will probably produce: the hint, else the session's own mean, else the default."""
        if hint is not None:
            return max(1, hint)
        return max(1, round(self.mean_output)) if self.mean_output is not None else default

    def learn_output(self, tokens: int) -> None:
        """Remember what a turn produced, recent turns weighing more."""
        self.mean_output = tokens if self.mean_output is None else 0.7 * self.mean_output + 0.3 * tokens
