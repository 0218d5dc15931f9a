# SPDX-License-Identifier: Apache-2.0
"""Frozen answers for those who ask who waits, since when and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from kv_events.types import NodeId
from tao_dynamo.core import admission
from tao_dynamo.core.room import Room
from tao_dynamo.core.session import Session, SessionState
from tao_dynamo.core.solving import PlanRecord, Solving
from tao_dynamo.core.state import State

REFUSAL_WORDS = {
    "capacity": "the last plan chose it, but its node had filled up meanwhile",
    "epoch": "a new turn came while the last plan was made",
    "tool_state": "its tool was about to return, and now is not",
    "node_gone": "the node of the last plan is gone",
    "node_stale": "the events of the last plan's node had a gap",
    "not_waiting": "it was placed while the last plan was made",
}


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node's room in tokens; ``running_tokens`` of it are held by sessions whose turn runs."""

    node: NodeId
    capacity: int
    reserved: int
    foreign: int
    claimed: int
    residual: int
    sessions: int
    running: int
    stale: bool
    running_tokens: int


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session. ``waited_s`` counts from when its turn arrived; ``reason`` says in words why it has no room.

    ``key`` is the core's own name for it: a branch of a session has the same ``session_id`` and another key.
    ``held`` are the tokens of its own that it holds on ``node``, ``output`` those that its live turns have produced.
    ``marked``: it will be paused when its turn ends.
    """

    session_id: str
    state: SessionState
    since: float
    for_s: float
    node: NodeId | None
    footprint: int
    cost: int
    ready: bool
    credits: dict[NodeId, int]
    remaining_s: float | None
    tool_elapsed_s: float | None
    waited_s: float | None
    overdue: bool
    reason: str
    key: str
    parent: str | None
    held: int
    output: int
    marked: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """A node as a place for a session: what it would add there, and what may be given there now, in tokens."""

    node: NodeId
    credit: int
    adds: int
    free: int
    stale: bool


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks in force, as shares of a node's capacity (DESIGN §4.5, §4.9)."""

    admission: float
    pause: float
    target: float


@dataclass(frozen=True, slots=True)
class Statistics:
    """The whole core at one moment. ``waiting`` is the head of the pool in its order; ``paused`` is without a turn.

    ``waiting_count`` and ``overdue_count`` are of the whole pool.
    ``host_tier``: the marks are those of a host tier that holds whoever waits.
    """

    at: float
    policy: str
    shared_prefixes: bool
    host_tier: bool
    marks: Marks
    nodes: tuple[NodeView, ...]
    sessions_by_state: dict[str, int]
    waiting: tuple[SessionView, ...]
    waiting_count: int
    overdue_count: int
    paused: int
    requests: int
    guests: int
    counters: dict[str, int]
    plans: tuple[PlanRecord, ...]
    solve_in_flight: bool


def statistics(state: State, solving: Solving, t: float, *, limit: int = 200) -> Statistics:
    """Everything but the single sessions; of the waiting pool the first ``limit``."""
    by_state = dict.fromkeys((s.value for s in SessionState), 0)
    for session in state.sessions.values():
        by_state[session.state.value] += 1
    best = _BestRooms(state)
    began = (session.waiting_since for session in state.waiting.values())
    return Statistics(
        at=t,
        policy=state.policy.name,
        shared_prefixes=state.policy.shared_prefixes,
        host_tier=state.host_tier,
        marks=Marks(state.rooms.mark, state.pause_mark, state.target_mark),
        nodes=tuple(_node_view(state, node) for node in state.rooms),
        sessions_by_state=by_state,
        waiting=tuple(_view(state, session, t, best) for session in state.pool()[:limit]),
        waiting_count=len(state.waiting),
        overdue_count=sum(since is not None and _overdue(state, t - since) for since in began),
        paused=len(state.paused),
        requests=len(state.requests),
        guests=len(state.guests),
        counters=dict(state.counters),
        plans=tuple(solving.records),
        solve_in_flight=solving.in_flight_since is not None,
    )


def session_ids(state: State, limit: int) -> list[str]:
    """The waiting pool in its order, the paused, then the others, last heard first; at most ``limit``."""
    pool = [*(session.id for session in state.pool()), *state.paused][:limit]
    seen = set(pool)
    others = (session_id for session_id in reversed(state.sessions) if session_id not in seen)
    return [*pool, *islice(others, limit - len(pool))]


def session_views(state: State, session_ids: Iterable[str], t: float) -> list[SessionView]:
    """Those of the sessions that are still known."""
    best = _BestRooms(state)
    found = (state.sessions.get(session_id) for session_id in session_ids)
    return [_view(state, session, t, best) for session in found if session is not None]


def session_view(state: State, session: Session, t: float) -> SessionView:
    """One session as it is now."""
    return _view(state, session, t, _BestRooms(state))


def choices(state: State, session: Session, t: float) -> list[Choice]:
    """What each node would mean for the session: its own first, then the most credit, then the most room."""
    cost, credit = state.cost(session), state.credits(session, t)
    found = []
    for room in state.rooms.values():
        added = room.added(cost, state.prefix(session))
        free = admission.room_for(state, room, added)
        found.append(Choice(room.node, credit.get(room.node, 0), added, free, room.stale))
    return sorted(found, key=lambda choice: (choice.node != session.node, -choice.credit, choice.adds - choice.free))


def _view(state: State, session: Session, t: float, best: _BestRooms) -> SessionView:
    remaining = state.readiness.remaining(session.id, t)
    waited = t - session.waiting_since if session.waiting_since is not None else None
    room = state.rooms.get(session.node) if session.node is not None else None
    return SessionView(
        session_id=session.public_id,
        state=session.state,
        since=session.since,
        for_s=t - session.since,
        node=session.node,
        footprint=session.footprint,
        cost=state.cost(session),
        ready=state.ready(session, t),
        credits=state.credits(session, t),
        remaining_s=remaining.seconds if remaining else None,
        tool_elapsed_s=remaining.elapsed_s if remaining else None,
        waited_s=waited,
        overdue=waited is not None and _overdue(state, waited),
        reason=_reason(state, session, best),
        key=session.id,
        parent=session.parent,
        held=room.held_by(session.id) if room is not None else 0,
        output=sum(live.generated for live in session.turns.values()),
        marked=session.marked,
    )


def _overdue(state: State, waited_s: float) -> bool:
    return waited_s >= state.policy.waiting_bound_s


class _BestRooms:
    """Finds the node that comes nearest to having room for a session, without looking at every node each time.

    What a node may give depends on the session in two ways only: whether it holds the session's shared prefix, and
    whether it is idle and the session too big for the admission mark. So the best of each kind is enough.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        mark = state.rooms.mark
        self._residual = {room.node: room.residual(mark) for room in state.rooms.values()}
        self._rooms = sorted(state.rooms.values(), key=lambda room: -self._residual[room.node])
        self._any = [*self._rooms[:1], *sorted(state.rooms.idle(), key=lambda room: -room.capacity)[:1]]
        self._with_prefix: dict[int, list[Room]] = {}

    def find(self, session: Session, cost: int) -> Room:
        """The node with the most room left, or the least missing, if the session were put on it."""
        near = self._any
        prefix = self._state.prefix(session)
        if prefix is not None:
            key = prefix.key
            if key not in self._with_prefix:
                self._with_prefix[key] = [room for room in self._rooms if room.has_prefix(key)][:1]
            near = near + self._with_prefix[key]

        def spare(room: Room) -> int:
            added = room.added(cost, prefix)
            return admission.room_for(self._state, room, added) - added

        return max(near, key=spare)


def _node_view(state: State, node: NodeId) -> NodeView:
    room = state.rooms[node]
    held = [state.sessions[h] for h in room.holders if h in state.sessions]
    running = [session for session in held if session.running]
    return NodeView(
        node=node,
        capacity=room.capacity,
        reserved=room.reserved,
        foreign=room.foreign,
        claimed=room.claimed,
        residual=room.residual(state.rooms.mark),
        sessions=len(held),
        running=len(running),
        stale=room.stale,
        running_tokens=sum(room.held_by(session.id) for session in running),
    )


def _reason(state: State, session: Session, best: _BestRooms) -> str:
    if session.state is SessionState.PAUSED:
        if state.readiness.running(session.id):
            return "gets room when its tool is about to return and a node has room for it"
        return "gets room with its next turn"
    if session.state is not SessionState.WAITING:
        return ""
    if not state.rooms:
        return "no worker is registered"
    cost = state.cost(session)
    if session.claimed is not None:
        room = state.rooms.get(session.claimed)
        free = room.capacity - room.used if room else 0
        return f"overdue: node {session.claimed} is being cleared for it, {free:,} of {cost:,} tokens are free"
    room = best.find(session, cost)
    added = room.added(cost, state.prefix(session))
    free = admission.room_for(state, room, added)
    if added > free:
        return f"needs {added:,} tokens; at most {free:,} can be had, on {room.node}{_overdrawn(state, session)}"
    if session.last_refusal is not None:
        return REFUSAL_WORDS[session.last_refusal]
    return "a node has room: it is about to be placed"


def _overdrawn(state: State, session: Session) -> str:
    """Why an overdue session is not the next one."""
    owed, share = state.overdraft.token_s, state.policy.overdue_share * state.rooms.total
    if session.pressing is None or not owed or not share:
        return ""
    return f"; overdue, and the overdue have had more than their share: paid back in {owed / share:.0f} s"
