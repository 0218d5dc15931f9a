# SPDX-License-Identifier: Apache-2.0
"""What the core tells its shell to do. Plain values: the shell acts, the core never does.

Every method of :class:`~tao_dynamo.core.scheduler.Scheduler` that takes an event returns a list of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from kv_events.types import NodeId


@dataclass(frozen=True, slots=True)
class Admit:
    """Forward this turn, pinned to this node, now."""

    request_id: str
    session_id: str | None
    node: NodeId
    waited_s: float
    credit_tokens: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer this turn with an error, now."""

    request_id: str
    session_id: str | None
    reason: RefuseReason
    text: str


class RefuseReason(Enum):
    """Why a turn is refused."""

    NEVER_FITS = "never_fits"
    OVERLOAD = "overload"
    SESSION_ENDED = "session_ended"
    NO_NODES = "no_nodes"
    DUPLICATE_REQUEST = "duplicate_request"


@dataclass(frozen=True, slots=True)
class Pause:
    """The session has given up its room on this node. Nothing to send; counted and logged."""

    session_id: str
    node: NodeId
    freed_tokens: int


@dataclass(frozen=True, slots=True)
class Restart:
    """The session has been given room again. ``early``: before its tool returned, so no turn is released yet."""

    session_id: str
    node: NodeId
    paused_s: float
    early: bool


@dataclass(frozen=True, slots=True)
class AskSolve:
    """Take :meth:`Scheduler.snapshot`, have it solved, bring the plan back by :meth:`Scheduler.plan_returned`."""


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Call :meth:`Scheduler.time_passes` at this time, at the latest. Replaces an earlier request."""

    at: float


Decision: TypeAlias = Admit | Refuse | Pause | Restart | AskSolve | WakeAt
