# SPDX-License-Identifier: Apache-2.0
"""Turns that come in: run at once where the session holds room, else find room or wait."""

from __future__ import annotations

from kv_events.types import NodeId
from tao_dynamo.core import pausing
from tao_dynamo.core.decisions import Admit, Decision, Refuse, RefuseReason, Restart
from tao_dynamo.core.room import Room
from tao_dynamo.core.session import Session, SessionState
from tao_dynamo.core.state import State
from tao_dynamo.core.turn import LiveTurn, Turn


def arrive(state: State, turn: Turn, t: float) -> list[Decision]:
    """A turn of a session arrives (DESIGN §4.4, case C10)."""
    assert turn.session_id is not None  # noqa: S101 - guests go through arrive_guest
    refusal = _refuse_on_arrival(state, turn)
    if refusal is not None:
        state.counters[f"refused.{refusal.reason.value}"] += 1
        return [refusal]
    session = state.session(turn.session_id, t, parent=turn.parent_session_id)
    live = LiveTurn(turn, t, session.expect_output(turn.expected_output, state.policy.default_output_tokens))
    if refusal := _never_fits(state, turn, live.reserved):
        if not session.turns and session.footprint == 0:
            state.close(session, t)
        state.counters[f"refused.{refusal.reason.value}"] += 1
        return [refusal]

    if session.turns and not _fits_beside(state, session, live):
        if len(state.waiting) >= state.policy.max_waiting:
            state.counters[f"refused.{RefuseReason.OVERLOAD.value}"] += 1
            return [_overload(state, turn)]
        session = _branch(state, session, turn, t)
    state.touch(session, t)
    if not session.turns and state.rooms and session.footprint > state.largest_capacity():
        state.set_footprint(session, live.reserved)  # the nodes are smaller than they were, and so is its context
    session.widest = session.widest if session.turns else 0
    session.turns[turn.request_id] = live
    state.requests[turn.request_id] = session.id
    state.classify(session)
    session.final = session.final or turn.final
    session.long_tool = False
    session.tool_seen = False
    session.early_until = None
    state.counters["turns"] += 1
    if not session.registered and turn.hashes:
        state.register_prefix(session, turn.hashes, turn.block_size)

    if session.node is None:
        return _place_or_wait(state, session, t)
    return grow(state, session, t)


def arrive_guest(state: State, turn: Turn, t: float) -> list[Decision]:
    """A request without a session: straight through, to the node with the most overlap, then the most room."""
    if turn.request_id in state.requests or turn.request_id in state.guests:
        state.counters["refused.duplicate_request"] += 1
        return [_duplicate(turn)]
    if not state.rooms:
        state.counters["refused.no_nodes"] += 1
        return [Refuse(turn.request_id, None, RefuseReason.NO_NODES, "no worker is registered")]
    expected = turn.expected_output or state.policy.default_output_tokens

    def fitness(room: Room) -> tuple[bool, int, int]:
        free = room.residual(1.0)
        return free >= turn.prompt_tokens + expected, turn.overlap.get(room.node, 0), free

    room = max(state.rooms.values(), key=fitness)
    room.hold(_guest_id(turn.request_id), turn.prompt_tokens + expected, None, live=True)
    state.guests[turn.request_id] = room.node
    state.counters["guests"] += 1
    overlap = turn.overlap.get(room.node, 0)
    return [Admit(turn.request_id, None, room.node, 0.0, overlap), *pausing.relieve(state, room.node, t)]


def guest_ended(state: State, request_id: str) -> bool:
    """Release what a request without a session held. False if it is not one."""
    node = state.guests.pop(request_id, None)
    if node is None:
        return False
    if (room := state.rooms.get(node)) is not None:
        room.release(_guest_id(request_id))
        state.opportunity = True
    return True


def settle(state: State, session: Session, node: NodeId, t: float) -> list[Decision]:
    """Give a session of the pool room on a node, and release its turns to it."""
    out: list[Decision] = []
    credit = state.credits(session, t).get(node, 0)
    waited_since = session.waiting_since
    early = not session.pending
    state.leave_pool(session)
    state.hold(session, node)
    session.epoch += 1
    if session.paused_at is not None:
        out.append(Restart(session.public_id, node, t - session.paused_at, early))
        state.counters["restarts"] += 1
        state.counters["restarts_early"] += early
        session.paused_at = None
    if early:
        session.enter(state.between_turns(session), t)
        state.expect_return(session, t)
    for live in session.pending:
        live.admitted_at = t
        waited = t - waited_since if waited_since is not None else 0.0
        out.append(Admit(live.turn.request_id, session.public_id, node, waited, credit))
        state.counters["admitted"] += 1
    if session.running:
        session.enter(SessionState.RUNNING, t)
    return out


def best_node(state: State, session: Session, t: float) -> NodeId | None:
    """The optimum for a single candidate: the node with the most credit, then the most residual room."""
    cost = state.cost(session)
    prefix = state.prefix(session)
    best: tuple[int, int] | None = None
    chosen: NodeId | None = None
    for node, credit in state.credits(session, t).items():
        added = state.rooms[node].added(cost, prefix)
        residual = room_for(state, state.rooms[node], added)
        key = (credit, residual if state.policy.balance else 0)
        if (best is None or key > best) and added <= residual:
            best, chosen = key, node
    return chosen if chosen is not None else _any_node(state, session, cost)


def fitting(state: State, session: Session) -> bool:
    """Whether a node has room for the session now."""
    return _any_node(state, session, state.cost(session)) is not None


def _any_node(state: State, session: Session, cost: int) -> NodeId | None:
    """The node with the most residual room that can take the session; without balance the first that can."""
    prefix = state.prefix(session)
    if state.policy.balance:
        least = cost - (prefix.tokens if prefix is not None else 0)
        for residual, room in state.rooms.by_residual():
            if residual < least:
                break
            if room.added(cost, prefix) <= residual:
                return room.node
    for room in state.rooms.values() if not state.policy.balance else state.rooms.idle():
        added = room.added(cost, prefix)
        if added <= room_for(state, room, added):
            return room.node
    return None


def room_for(state: State, room: Room, added: int) -> int:
    """Residual tokens of a node for a session that adds so many: one too big for the admission mark may have an idle
    node."""
    residual = room.residual(state.rooms.mark)
    return room.capacity if added > residual and room.idle else residual


def _refuse_on_arrival(state: State, turn: Turn) -> Refuse | None:
    if turn.request_id in state.requests or turn.request_id in state.guests:
        return _duplicate(turn)
    session = state.sessions.get(turn.session_id or "")
    waits = session is None or (session.node is None and session.id not in state.waiting)
    return _overload(state, turn) if waits and len(state.waiting) >= state.policy.max_waiting else None


def _overload(state: State, turn: Turn) -> Refuse:
    text = f"{len(state.waiting)} sessions wait already; the limit is {state.policy.max_waiting}"
    return Refuse(turn.request_id, turn.session_id, RefuseReason.OVERLOAD, text)


def _duplicate(turn: Turn) -> Refuse:
    text = f"request id {turn.request_id} is in use by a live turn"
    return Refuse(turn.request_id, turn.session_id, RefuseReason.DUPLICATE_REQUEST, text)


def _never_fits(state: State, turn: Turn, needed: int) -> Refuse | None:
    largest = state.largest_capacity()
    if not state.rooms or needed <= largest or state.policy.never_fits == "alone":
        return None
    text = f"session {turn.session_id} needs {needed} tokens of KV room; the largest node holds {largest}"
    return Refuse(turn.request_id, turn.session_id, RefuseReason.NEVER_FITS, text)


def _fits_beside(state: State, session: Session, live: LiveTurn) -> bool:
    """Whether a parallel turn fits beside the session's other live turns: now, or, while they wait, at all."""
    if session.node is None:
        return session.reserved + live.reserved <= state.largest_capacity()
    room = state.rooms[session.node]
    return room.used + room.whole(live.reserved) <= room.capacity


def _branch(state: State, session: Session, turn: Turn, t: float) -> Session:
    """A parallel turn that does not fit beside the running one waits under a name of its own."""
    branch = state.session(f"{session.id}#{turn.request_id}", t)
    branch.branch_of = session.id
    session.branches.add(branch.id)
    branch.final = True
    state.counters["branches"] += 1
    return branch


def grow(state: State, session: Session, t: float) -> list[Decision]:
    """The session holds room: run at once, making room for its growth at the cost of sessions between turns."""
    assert session.node is not None  # noqa: S101 - the caller checked
    room = state.rooms[session.node]
    growth = state.growth(session)
    out: list[Decision] = []
    if room.used + growth > room.capacity:
        out += pausing.make_room(state, room, max(0, room.capacity - growth), t, spare=session.id)
        growth = state.growth(session)  # what it shared with those may be its own now
    if room.used + growth <= room.capacity or session.running:
        state.hold(session, room.node)
        session.enter(SessionState.RUNNING, t)
        credit = state.credits(session, t).get(room.node, 0)
        for live in session.pending:
            live.admitted_at = t
            state.counters["admitted_at_once"] += 1
            out.append(Admit(live.turn.request_id, session.public_id, room.node, 0.0, credit))
        return [*out, *pausing.relieve(state, room.node, t)]
    state.counters["outgrown"] += 1
    out.append(pausing.pause(state, session, t))
    return out


def _place_or_wait(state: State, session: Session, t: float) -> list[Decision]:
    """Without room: placed at once if nobody waits before it and a node has room, else into the pool."""
    if not state.waiting and (node := best_node(state, session, t)) is not None:
        state.counters["placed_at_once"] += 1
        return settle(state, session, node, t)
    state.to_pool(session, t)
    state.opportunity = state.opportunity or fitting(state, session)
    return []


def _guest_id(request_id: str) -> str:
    return f"\x00guest\x00{request_id}"
