# SPDX-License-Identifier: Apache-2.0
"""A session between turns: its tool boundary, long tools, and room given before its tool returned."""

from __future__ import annotations

from tao_dynamo.core import admission, pausing
from tao_dynamo.core.decisions import Decision
from tao_dynamo.core.session import Session, SessionState
from tao_dynamo.core.state import State


def settle_down(state: State, session: Session, t: float) -> list[Decision]:
    """A turn of the session is over: decide what state it is in now."""
    if session.turns:
        if session.node is None and session.pending:
            state.to_pool(session, t)
        elif session.node is None:  # what is left of it runs on a node that is gone
            state.leave_pool(session)
            session.enter(SessionState.RUNNING, t)
        elif session.pending:
            return admission.grow(state, session, t)
        else:
            state.hold(session, session.node)
        return []
    if session.final or (session.node is None and session.footprint == 0):
        state.close(session, t)
        return []
    state.leave_pool(session)
    state.overdue_holders.pop(session.id, None)  # it has been served: the share is for the next
    if session.node is None:
        if session.paused_at is None:
            session.paused_at = t
            state.counters["pauses"] += 1
        state.to_pool(session, t)
        return []
    session.enter(state.between_turns(session), t)
    state.hold(session, session.node)
    room = state.rooms[session.node]
    if session.marked:
        session.marked = False
        # Marked for the node's own sake, or for an overdue session that room is kept free for.
        level = min(room.capacity * state.target_mark, room.capacity * state.pause_mark - room.claimed)
        if room.used > level:
            return [pausing.pause(state, session, t)]
    state.watch_readiness(session, t)
    state.watch_long_tool(session, t)
    return pausing.relieve(state, room.node, t)


def weigh(state: State, session: Session, t: float) -> list[Decision]:
    """A tool of a session that holds room started, went on or ended: it weighs more or less than before.

    What it weighs more is made room for, rather at the others' cost than at its own: its turn is about to come.
    """
    assert session.node is not None  # noqa: S101 - the caller checked
    discount(state, session, t)
    room = state.rooms[session.node]
    out = pausing.relieve(state, room.node, t, spare=session.id)
    if room.used > room.capacity and room.freed_by(session.id):
        out.append(pausing.pause(state, session, t))
    return out


def discount(state: State, session: Session, t: float) -> None:
    """A tool that is expected to run long, or has run long already, leaves its session counting in part only.

    Tool times are heavy-tailed: what has run for long is expected to go on for long (DESIGN §4.5).
    """
    if session.node is None or session.turns:
        return
    threshold = state.policy.long_tool_threshold_s(state.refill_s(state.rooms[session.node]))
    remaining = state.readiness.remaining(session.id, t)
    if remaining is None:
        session.long_tool = t - session.last_active >= threshold
    else:
        longest = max(remaining.seconds, remaining.elapsed_s)
        session.long_tool = longest >= threshold and not state.ready(session, t)
    state.hold(session, session.node)


def give_up_early(state: State, session: Session, t: float) -> list[Decision]:
    """Room was given before the tool returned: if others wait and no turn has come in time, it is taken back."""
    if session.early_until is None or t < session.early_until or session.node is None:
        return []
    session.early_until = None
    if not state.waiting:
        return []
    state.counters["early_given_up"] += 1
    session.tool_seen = False
    return [pausing.pause(state, session, t)]
