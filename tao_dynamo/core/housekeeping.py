# SPDX-License-Identifier: Apache-2.0
"""Keeping the tables bounded, and answering what has become hopeless."""

from __future__ import annotations

from tao_dynamo.core import conserving, marks, overdue, pausing
from tao_dynamo.core.decisions import Decision, Refuse, RefuseReason
from tao_dynamo.core.session import Session, SessionState
from tao_dynamo.core.state import State

SWEEP_LIMIT = 2000
"""Sessions that one sweep looks at, so that it never holds up the loop."""


def sweep(state: State, t: float) -> list[Decision]:
    """Close sessions that have been silent for too long; release room that only silence holds."""
    out = marks.choose(state, t)
    for session in _silent(state, state.policy.session_expiry_s, t):
        state.close(session, t)
        state.counters["sessions_expired"] += 1
    if state.waiting:
        for session in list(state.waiting.values()):
            if session.pressing is None and overdue.look(state, session, t):
                state.opportunity = True
        state.opportunity = state.opportunity or bool(state.pressing)  # an overdraft is paid back by time alone
        for session in _silent(state, state.policy.idle_release_s, t):
            if session.state is SessionState.IDLE:
                out.append(pausing.pause(state, session, t))
                state.counters["idle_released"] += 1
        out += conserving.make_way(state, t)
    return out


def forget_oldest(state: State, t: float) -> None:
    """The table is full: the session that has been silent longest goes."""
    for session in state.sessions.values():
        if not session.turns:
            state.close(session, t)
            state.counters["sessions_evicted"] += 1
            return


def refuse_hopeless(state: State, t: float) -> list[Decision]:
    """Turns that wait for room which no node has any more, even when empty."""
    largest = state.largest_capacity()
    if not state.rooms or state.policy.never_fits == "alone":
        return []
    out: list[Decision] = []
    for session in [s for s in state.waiting.values() if state.cost(s) > largest]:
        text = f"session {session.public_id} needs {state.cost(session)} tokens of KV room; "
        text += f"the largest node holds {largest}"
        for live in session.pending:
            out.append(Refuse(live.turn.request_id, session.public_id, RefuseReason.NEVER_FITS, text))
            state.counters["refused.never_fits"] += 1
            del session.turns[live.turn.request_id]
            state.requests.pop(live.turn.request_id, None)
        state.leave_pool(session)
        if session.turns:  # others of it still run
            session.enter(SessionState.RUNNING, t)
        elif session.footprint > largest or session.footprint == 0:
            state.close(session, t)
        else:
            state.to_pool(session, t)
    return out


def _silent(state: State, longer_than_s: float, t: float) -> list[Session]:
    """Sessions without a live turn that have been silent for longer, the most silent first."""
    silent = []
    for scanned, session in enumerate(state.sessions.values()):
        if t - session.last_active <= longer_than_s or scanned >= SWEEP_LIMIT:
            break
        if not session.turns:
            silent.append(session)
    return silent
