# SPDX-License-Identifier: Apache-2.0
"""Nobody starves: sessions that have waited too long go first, within their share (DESIGN §4.6).

An overdue session for which no node has room claims one: what it needs is kept free there as it comes free, and
sessions between turns make way. Other nodes, and what is left of that one, go on serving everybody else.
"""

from __future__ import annotations

from tao_dynamo.core import admission, pausing
from tao_dynamo.core.decisions import Decision
from tao_dynamo.core.room import Room
from tao_dynamo.core.session import Session
from tao_dynamo.core.state import State


def serve(state: State, t: float) -> list[Decision]:
    """Place overdue sessions, by class and age, while those so placed hold no more than their share of the room.

    One overdue session may be served however big; what it holds above the share is paid back before the next, in a
    waiting bound at most, unless nothing runs anywhere: then nobody pays for it.
    """
    share = state.policy.overdue_share * state.rooms.total
    account(state, t)
    if not state.pressing:
        return []
    out: list[Decision] = []
    claimants = [state.sessions[session_id] for session_id in state.rooms.claimants()]
    for session in sorted(claimants, key=lambda s: s.pressing or (-s.tier, t, s.index)):
        out += _serve_one(state, session, state.cost(session), t)
    tried = bool(claimants)
    held = _held(state) if tried else state.overdraft.held
    for session in state.pressing:
        if session.claimed is not None:
            continue
        cost = state.cost(session)
        if held and held + cost > share:
            break
        if state.overdraft.token_s > 0 and not state.rooms.nothing_runs():
            break
        held += cost
        tried = True
        out += _serve_one(state, session, cost, t)
    if tried:
        account(state, t)
    return out


def account(state: State, t: float) -> None:
    """Keep the account of what the overdue hold up to date: to be called whenever they may hold less or more."""
    share = state.policy.overdue_share * state.rooms.total
    state.overdraft.update(_held(state), t, share=share, limit_s=state.policy.waiting_bound_s)


def look(state: State, session: Session, t: float) -> bool:
    """A waiting session has waited for half the bound, or for all of it. Returns whether it goes first from now on.

    After half of it that is so where no node could take it even now: it needs the other half to clear one.
    """
    if session.id not in state.waiting or session.waiting_since is None:
        return False
    waited = t - session.waiting_since
    if waited < state.policy.waiting_bound_s and (
        waited < state.policy.waiting_bound_s / 2 or admission.fitting(state, session)
    ):
        return False
    state.pressing.add(session)
    return True


def _serve_one(state: State, session: Session, cost: int, t: float) -> list[Decision]:
    if session.claimed is not None and state.rooms[session.claimed].whole(cost) > state.rooms[session.claimed].capacity:
        state.unclaim(session)  # it has grown since
    if session.claimed is None and (node := admission.best_node(state, session, t)) is not None:
        return _settle(state, session, state.rooms[node], t)
    if session.claimed is None:
        # Its prefix may have left a node before the rest is free there, so the node must hold it whole.
        fitting = [r for r in state.rooms.values() if r.capacity >= r.whole(cost) and not r.claims]
        if not fitting:
            return []
        credit = state.credits(session, t)
        room = max(fitting, key=lambda r: (r.capacity - _immovable(state, r), credit.get(r.node, 0)))
        room.claim(session.id, room.whole(cost))
        session.claimed = room.node
        state.counters["claims"] += 1
    room = state.rooms[session.claimed]
    needed = room.added(cost, state.prefix(session))
    limit = max(needed, int(room.capacity * state.pause_mark))
    out = pausing.make_room(state, room, limit - needed, t, spare=session.id)
    if room.used + room.added(cost, state.prefix(session)) <= limit:
        out += _settle(state, session, room, t)
    return out


def _held(state: State) -> int:
    """Tokens that overdue sessions hold, and those kept free for them."""
    return state.rooms.claimed + sum(
        state.rooms[s.node].held_by(s.id) for s in state.overdue_holders.values() if s.node
    )


def _settle(state: State, session: Session, room: Room, t: float) -> list[Decision]:
    out = admission.settle(state, session, room.node, t)
    state.overdue_holders[session.id] = session
    state.counters["overdue_placed"] += 1
    return out


def _immovable(state: State, room: Room) -> int:
    """Tokens on a node that only the end of a turn can free."""
    held = [state.sessions[h] for h in room.holders if h in state.sessions]
    return room.foreign + sum(room.held_by(s.id) for s in held if s.turns)
