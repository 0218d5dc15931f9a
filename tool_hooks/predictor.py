# SPDX-License-Identifier: Apache-2.0
"""Knows of every session whether its tool has returned, or is about to (DESIGN §4.2).

Pure: time is an argument, seconds of the receiver's monotonic clock; no other host's clock is used. Every event is
accepted in any order, any number of times; what makes no sense is counted and dropped. All tables are bounded.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tool_hooks.estimators import CallFacts, ConditionalEstimator, Estimator, PaperEstimator, Source
from tool_hooks.probes import next_probe_change, probe_open
from tool_hooks.progress import Progress
from tool_hooks.shell_sleep import SleepPlan, sleep_plan
from tool_hooks.tool_key import key_for

Mode = Literal["default", "paper"]
MODES: tuple[Mode, ...] = ("default", "paper")

HORIZON_S = 1.0
REFRESH_S = 30.0
EXPIRE_S = 900.0
MAX_S = 30 * 86_400.0
"""No tool runs for longer than 30 days: what claims to is nonsense, and is ignored."""
MIN_TIMER_S = 0.05
"""No timer is set closer than this, so that rounding cannot make a caller spin."""
_KEPT_ENDS = 32


@dataclass(frozen=True, slots=True)
class Remaining:
    """The remaining time of a session's tool.

    Attributes:
        seconds: predicted, finite, >= 0.
        source: where the prediction comes from.
        refreshed_at: when what it rests on was last confirmed: the last progress event, else the time asked for.
        elapsed_s: how long the call has run.
    """

    seconds: float
    source: Source
    refreshed_at: float
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class CallView:
    """One running call, for status pages."""

    call_id: str
    key: str
    elapsed_s: float
    remaining: Remaining
    overdue_s: float
    expired: bool


@dataclass(slots=True)
class _Call:
    facts: CallFacts
    started_at: float
    progress: Progress
    expires_at: float


@dataclass(slots=True)
class _End:
    """A call that is over. What is missing to learn from it, its facts or its duration, may still come."""

    t: float
    facts: CallFacts | None = None
    duration_s: float | None = None


@dataclass(slots=True)
class _Session:
    calls: OrderedDict[str, _Call] = field(default_factory=OrderedDict)
    ends: OrderedDict[str, _End] = field(default_factory=OrderedDict)


@dataclass(frozen=True, slots=True)
class _Outlook:
    """A call at one moment, with the two times of `tool_hooks.estimators.Estimate`."""

    remaining: Remaining
    left_s: float
    overdue_s: float
    ready: bool


class Predictor:
    """Takes tool events, answers whether a session is ready.

    Args:
        mode: ``"default"`` or ``"paper"``, see `tool_hooks.estimators`.
        horizon_s: a call that returns within this is about to return.
        refresh_s: a prediction from progress events counts only while the tool is heard at least this often.
        expire_s: a call not heard of for so long (twice its own claim, if that is more) is taken for lost.
        max_sessions: sessions kept; the one longest without an event goes first.
        max_calls: running calls kept per session; the oldest goes first.
        reorder_s: a start that comes within this after its own end belongs to it.
        estimator: replaces the one that ``mode`` names.

    Raises:
        ValueError: ``mode`` is neither.
    """

    def __init__(
        self,
        mode: Mode = "default",
        *,
        horizon_s: float = HORIZON_S,
        refresh_s: float = REFRESH_S,
        expire_s: float = EXPIRE_S,
        max_sessions: int = 100_000,
        max_calls: int = 64,
        reorder_s: float = 30.0,
        estimator: Estimator | None = None,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"mode: got {mode!r}, want one of {', '.join(MODES)}")
        self.mode = mode
        self._estimator = estimator or (PaperEstimator() if mode == "paper" else ConditionalEstimator())
        self._horizon_s = horizon_s
        self._refresh_s = refresh_s
        self._expire_s = expire_s
        self._max_sessions = max_sessions
        self._max_calls = max_calls
        self._reorder_s = reorder_s
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._counters: Counter[str] = Counter()

    @property
    def counters(self) -> Mapping[str, int]:
        """How often what happened: started, progressed, ended, and what was dropped, by reason."""
        return self._counters

    def __len__(self) -> int:
        return len(self._sessions)

    # -- events ------------------------------------------------------------------------------------------------

    def started(
        self,
        session_id: str,
        call_id: str,
        key: str | None,
        t: float,
        *,
        declared_s: float | None = None,
        timeout_s: float | None = None,
        command: str | None = None,
        tenant: str | None = None,
    ) -> None:
        """A tool call began.

        Args:
            key: the tool key; None takes it from ``command``.
            declared_s: how long the caller says it will last; a value below 0 or above 30 days is ignored.
            timeout_s: when the harness will cut it off; likewise.
            command: the shell command line, for its key and its sleeps.
            tenant: whose history to use and to teach.
        """
        session = self._touch(session_id)
        facts = CallFacts(
            session_id,
            key_for(key, command),
            tenant or "",
            _usable(declared_s),
            _usable(timeout_s),
            _usable_sleep(command),
        )
        end = session.ends.get(call_id)
        if end is not None and t - end.t <= self._reorder_s:
            self._counters["late_start"] += 1
            if end.duration_s is not None:
                self._estimator.learn(facts, end.duration_s)
                end.duration_s = None
            return
        if call_id in session.calls:
            self._counters["doubled_start"] += 1
            return
        self._counters["started"] += 1
        if len(session.calls) >= self._max_calls:
            session.calls.popitem(last=False)
            self._counters["dropped_calls"] += 1
        call = _Call(facts, t, Progress(t), 0.0)
        session.calls[call_id] = call
        self._keep_alive(call, t)

    def progressed(
        self,
        session_id: str,
        call_id: str,
        t: float,
        *,
        fraction: float | None = None,
        remaining_s: float | None = None,
    ) -> None:
        """A running call said how far it is: the part done (0 to 1), seconds left, or neither (a heartbeat)."""
        session = self._sessions.get(session_id)
        call = session.calls.get(call_id) if session is not None else None
        if call is None:
            self._counters["orphaned_progress"] += 1
            return
        self._sessions.move_to_end(session_id)
        self._counters["progressed"] += 1
        call.progress.report(t, _usable(fraction), _usable(remaining_s))
        self._keep_alive(call, t)

    def ended(self, session_id: str, call_id: str, t: float, *, duration_s: float | None = None) -> None:
        """A call returned or failed, after ``duration_s`` by the tool host's measure, else by the receiver's clock."""
        session = self._touch(session_id)
        duration_s = _usable(duration_s)
        call = session.calls.pop(call_id, None)
        if call is not None:
            self._counters["ended"] += 1
            own_s = min(max(0.0, t - call.started_at), MAX_S)
            self._estimator.learn(call.facts, own_s if duration_s is None else duration_s)
            self._close(session, call_id, _End(t))
            return
        end = session.ends.get(call_id)
        if end is None:
            self._counters["end_before_start"] += 1
            self._close(session, call_id, _End(t, duration_s=duration_s))
        elif end.facts is None:
            self._counters["doubled_end"] += 1
        else:
            self._counters["late_end"] += 1
            if duration_s is not None:
                self._estimator.learn(end.facts, duration_s)
            end.facts = None

    def resumed(self, session_id: str, t: float) -> None:
        """The session's next turn arrived, so its tools have returned, whatever became of their end events.

        An end event that the turn overtook still teaches its duration; one that is lost teaches nothing.
        """
        session = self._sessions.get(session_id)
        if session is None:
            return
        self._sessions.move_to_end(session_id)
        for call_id, call in session.calls.items():
            self._counters["overtaken_end"] += 1
            self._close(session, call_id, _End(t, facts=call.facts))
        session.calls.clear()

    def forget(self, session_id: str) -> None:
        """Drops all that is known of a session (not what its calls taught)."""
        self._sessions.pop(session_id, None)

    # -- questions ---------------------------------------------------------------------------------------------

    def running(self, session_id: str) -> bool:
        """Whether a tool of the session runs, as far as is known; a lost call runs until the session goes on."""
        session = self._sessions.get(session_id)
        return session is not None and bool(session.calls)

    def remaining(self, session_id: str, t: float) -> Remaining | None:
        """The remaining time of the call that returns last; None when no tool runs."""
        session = self._sessions.get(session_id)
        if session is None or not session.calls:
            return None
        return max((self._outlook(call, t).remaining for call in self._needed(session, t)), key=lambda r: r.seconds)

    def ready(self, session_id: str, t: float) -> bool:
        """Whether no tool of the session runs, or every one is about to return or has a probe."""
        session = self._sessions.get(session_id)
        return session is None or all(self._outlook(call, t).ready for call in self._needed(session, t))

    def next_change(self, session_id: str, t: float) -> float | None:
        """The next time (> t) at which `ready` may change without an event; None when it will not."""
        session = self._sessions.get(session_id)
        if session is None or not session.calls:
            return None
        times = [self._next_change(call, t) for call in self._needed(session, t)]
        return min((x for x in times if x is not None), default=None)

    def calls(self, session_id: str, t: float) -> list[CallView]:
        """The running calls of a session at ``t``, oldest first."""
        session = self._sessions.get(session_id)
        if session is None:
            return []
        views = []
        for call_id, call in session.calls.items():
            seen = self._outlook(call, t)
            views.append(
                CallView(
                    call_id,
                    call.facts.key,
                    seen.remaining.elapsed_s,
                    seen.remaining,
                    max(0.0, seen.overdue_s),
                    t >= call.expires_at,
                )
            )
        return views

    # -- inside ------------------------------------------------------------------------------------------------

    def _touch(self, session_id: str) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = _Session()
            if len(self._sessions) > self._max_sessions:
                self._sessions.popitem(last=False)
                self._counters["dropped_sessions"] += 1
        else:
            self._sessions.move_to_end(session_id)
        return session

    def _close(self, session: _Session, call_id: str, end: _End) -> None:
        session.ends[call_id] = end
        session.ends.move_to_end(call_id)
        if len(session.ends) > _KEPT_ENDS:
            session.ends.popitem(last=False)

    def _keep_alive(self, call: _Call, t: float) -> None:
        claim_s = max(call.facts.claim_s or 0.0, call.facts.timeout_s or 0.0)
        told_s = 2.0 * ((call.progress.returns_at or t) - t)
        call.expires_at = max(t + self._expire_s, call.started_at + 2.0 * claim_s, t + told_s)

    def _needed(self, session: _Session, t: float) -> list[_Call]:
        """The calls that the session waits for: lost ones do not count beside others that live."""
        every = list(session.calls.values())
        if len(every) == 1:
            return every
        return [call for call in every if t < call.expires_at] or every

    def _outlook(self, call: _Call, t: float) -> _Outlook:
        elapsed = max(0.0, t - call.started_at)
        progress, horizon = call.progress, self._horizon_s
        ready_from = 0.0
        if progress.returns_at is not None and t <= progress.silent_from(self._refresh_s):
            left = progress.returns_at - t
            overdue, refreshed_at = -left, progress.told_at or t
            source: Source = "progress"
            shown = abs(left)  # a call that stalls is taken to last as long again as it is late
            ready_from = -horizon
        else:
            estimate = self._estimator.estimate(call.facts, elapsed)
            left, overdue, source, refreshed_at = estimate.remaining_s, estimate.overdue_s, estimate.source, t
            shown = max(0.0, left)
        timeout_s = call.facts.timeout_s
        if timeout_s is not None and timeout_s - elapsed < shown:
            left, overdue, source, refreshed_at = timeout_s - elapsed, elapsed - timeout_s, "timeout", t
            shown, ready_from = max(0.0, left), 0.0
        ready = t < call.expires_at and (ready_from <= left <= horizon or probe_open(overdue, horizon))
        return _Outlook(Remaining(shown, source, refreshed_at, elapsed), left, overdue, ready)

    def _next_change(self, call: _Call, t: float) -> float | None:
        if t >= call.expires_at:
            return None
        seen, horizon = self._outlook(call, t), self._horizon_s
        times = [call.expires_at]
        if seen.left_s >= 0.0:
            times.append(t + (seen.left_s if seen.left_s <= horizon else seen.left_s - horizon))
        probe = next_probe_change(seen.overdue_s, horizon)
        if probe is not None:
            times.append(t + probe)
        silent_from = call.progress.silent_from(self._refresh_s)
        if silent_from >= t:
            times.append(silent_from)
        return max(min(times), t + MIN_TIMER_S)


def _usable(value: float | None) -> float | None:
    return value if value is not None and 0.0 <= value <= MAX_S else None


def _usable_sleep(command: str | None) -> SleepPlan | None:
    plan = sleep_plan(command) if command else None
    return plan if plan is not None and plan.seconds <= MAX_S else None
