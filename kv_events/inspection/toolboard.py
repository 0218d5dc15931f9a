# SPDX-License-Identifier: Apache-2.0
"""Which tools run for which session, since when, and when each is expected back. Pure: time is an argument.

What is expected is what the events themselves say: the remaining time or the fraction of a progress event, a declared
duration, else the mean of the tool's calls seen so far. The router's own prediction knows more.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

from kv_events.inspection.describe import describe
from kv_events.recording import Message
from kv_events.repeats import Repeats
from kv_events.wire import decode_envelope
from tao_dynamo.errors import WireError

_MAX_SESSIONS: Final = 10_000
_MAX_CALLS: Final = 256
_MAX_TOOLS: Final = 1000
_NUMBER: Final = (int, float)


@dataclass
class Call:
    """One tool call that runs; times in seconds of the listener's clock."""

    call_id: str
    tool: str
    started: float
    back: float | None = None
    why: str = ""
    """Where ``back`` comes from."""


@dataclass
class SessionBoard:
    """One session: its running calls by id, and how many have ended."""

    session: str
    calls: dict[str, Call] = field(default_factory=dict)
    ended: int = 0
    failed: int = 0
    heard: float = 0.0


class ToolBoard:
    """Takes messages of ``agent-tool-events``."""

    def __init__(self) -> None:
        self.sessions: OrderedDict[str, SessionBoard] = OrderedDict()
        self.kinds: Counter[str] = Counter()
        self.unreadable = 0
        self.repeats = 0
        self.unmatched = 0
        """Ends of calls whose start was not heard."""
        self._times: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._repeats = Repeats()

    @property
    def running(self) -> int:
        """Calls that run now."""
        return sum(len(board.calls) for board in self.sessions.values())

    def take(self, message: Message) -> None:
        """Take a message in."""
        try:
            again = self._repeats.again(decode_envelope(message.data))
        except WireError:
            self.unreadable += 1
            return
        if again:
            self.repeats += 1
            return
        for record in describe(message):
            session, call = record.get("session"), record.get("tool_call_id")
            if not isinstance(session, str) or not isinstance(call, str):
                self.unreadable += 1
                continue
            kind = str(record.get("kind"))
            self.kinds[kind] += 1
            board = self.sessions.setdefault(session, SessionBoard(session))
            board.heard = message.t
            self.sessions.move_to_end(session)
            if len(self.sessions) > _MAX_SESSIONS:
                self.sessions.popitem(last=False)
            if kind in ("tool_end", "tool_error"):
                self._end(board, call, record, message.t)
            elif kind in ("tool_start", "tool_progress"):
                self._run(board, call, record, message.t)

    def _run(self, board: SessionBoard, call_id: str, record: dict[str, Any], t: float) -> None:
        call = board.calls.get(call_id)
        if call is None:
            if len(board.calls) >= _MAX_CALLS:
                return
            tool = str(record.get("tool_key") or record.get("tool_class") or "?")
            call = board.calls[call_id] = Call(call_id, tool, t - _elapsed(record))
            calls, total = self._times.get(tool, (0, 0.0))
            if calls:
                call.back, call.why = call.started + total / calls, f"mean of {calls}"
        declared, fraction, remaining = (record.get(key) for key in ("declared_s", "fraction", "remaining_s"))
        if isinstance(remaining, _NUMBER):
            call.back, call.why = t + remaining, "remaining"
        elif isinstance(fraction, _NUMBER) and 0 < fraction <= 1:
            call.back, call.why = call.started + (t - call.started) / fraction, "fraction"
        elif isinstance(declared, _NUMBER):
            call.back, call.why = call.started + declared, "declared"

    def _end(self, board: SessionBoard, call_id: str, record: dict[str, Any], t: float) -> None:
        call = board.calls.pop(call_id, None)
        board.ended += 1
        board.failed += record.get("kind") == "tool_error"
        if call is None:
            self.unmatched += 1
            return
        duration = record.get("duration_ms")
        took = duration / 1e3 if isinstance(duration, _NUMBER) else t - call.started
        calls, total = self._times.pop(call.tool, (0, 0.0))
        self._times[call.tool] = (calls + 1, total + took)
        if len(self._times) > _MAX_TOOLS:
            self._times.popitem(last=False)


def _elapsed(record: dict[str, Any]) -> float:
    """How long the call had run when its event was made, by its own host's clock alone."""
    now, begun = record.get("event_time_unix_ms"), record.get("started_at_unix_ms")
    if isinstance(now, int) and isinstance(begun, int):
        return max(0.0, (now - begun) / 1e3)
    return 0.0
