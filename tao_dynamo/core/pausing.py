# SPDX-License-Identifier: Apache-2.0
"""Bringing a node down to its target by pausing sessions at a tool boundary (DESIGN §4.5)."""

from __future__ import annotations

from kv_events.types import NodeId
from tao_dynamo.core.decisions import Decision, Pause
from tao_dynamo.core.room import Room
from tao_dynamo.core.session import Session, SessionState
from tao_dynamo.core.state import State

PauseKey = tuple[float, float, float, int]


def pause_key(state: State, session: Session, node: NodeId, t: float) -> PauseKey:
    """Sort key of a session: those with the smallest are paused first.

    By value: not ready before ready, little credit before much, small before large. ``oldest-first`` pauses the
    youngest session first; ``smallest-first`` is ThunderAgent's order.
    """
    order = state.policy.pause_order
    if order == "oldest-first":
        return (-session.created_at, 0.0, 0.0, -session.index)
    if order == "smallest-first":
        return (session.footprint, 0.0, 0.0, session.index)
    credit = state.credits(session, t).get(node, 0)
    return (float(state.ready(session, t)), credit, session.footprint, session.index)


def pause(state: State, session: Session, t: float) -> Pause:
    """Take the room of a session that is between turns."""
    assert session.node is not None  # noqa: S101 - callers pick holders
    node = session.node
    freed = state.release(session)
    session.paused_at = t
    session.long_tool = False
    state.to_pool(session, t)
    state.counters["pauses"] += 1
    return Pause(session.public_id, node, freed)


def relieve(state: State, node: NodeId, t: float, *, spare: str = "") -> list[Decision]:
    """Pause sessions of a node that is above its pause mark until it is at its target; all but ``spare``."""
    room = state.rooms[node]
    if room.used <= room.capacity * state.pause_mark:
        return []
    return make_room(state, room, int(room.capacity * state.target_mark), t, spare=spare)


def make_room(state: State, room: Room, level: int, t: float, *, spare: str = "") -> list[Decision]:
    """Pause sessions between turns, least valuable first, until at most ``level`` tokens are used.

    Where that is not enough, running sessions are marked: they pause at their next tool boundary. ``spare`` is
    a session to leave alone.
    """
    out: list[Decision] = []
    if room.used <= level:
        return out
    holders = [state.sessions[h] for h in room.holders if h in state.sessions and h != spare]
    idle = [s for s in holders if s.state in (SessionState.TOOL, SessionState.IDLE)]
    idle.sort(key=lambda s: pause_key(state, s, room.node, t))
    for session in idle:
        if room.used <= level:
            return out
        if room.freed_by(session.id):
            out.append(pause(state, session, t))
    for sharers in _free_together(room, [s for s in idle if s.node == room.node]):
        if room.used <= level:
            return out
        out += [pause(state, session, t) for session in sharers]
    excess = room.used - level - sum(room.freed_by(s.id) for s in holders if s.marked)
    running = [s for s in holders if s.state is SessionState.RUNNING and not s.marked]
    running.sort(key=lambda s: pause_key(state, s, room.node, t))
    for session in running:
        if excess <= 0:
            break
        session.marked = True
        state.counters["marked"] += 1
        excess -= room.freed_by(session.id)
    return out


def _free_together(room: Room, idle: list[Session]) -> list[list[Session]]:
    """Sessions that free nothing one by one, but together a prefix that nobody else holds."""
    sharers: dict[int, list[Session]] = {}
    for session in idle:
        if (prefix := room.prefix_of(session.id)) is not None:
            sharers.setdefault(prefix.key, []).append(session)
    return [group for key, group in sharers.items() if len(group) == room.sharers(key)]
