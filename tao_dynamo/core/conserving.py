# SPDX-License-Identifier: Apache-2.0
"""Work conservation: a node on which nothing runs does not stand idle while somebody waits.

Holding a cache through a tool call pays while the node has other work. Where it has none, and a waiting session fits on
no node, sessions whose tool will outlast the recomputation of their cache make way: even if all they lose has to be
computed anew, that takes less of the node than it would have stood idle. It is the rule of a rented ski, with the
price of buying known: pausing costs the prefill of what is given up, keeping costs the node until the tool returns.
"""

from __future__ import annotations

from itertools import islice

from tao_dynamo.core import admission, pausing
from tao_dynamo.core.decisions import Decision
from tao_dynamo.core.policy import REFERENCE_REFILL_S
from tao_dynamo.core.room import Room
from tao_dynamo.core.session import Session
from tao_dynamo.core.state import State

NODES_A_LOOK = 8
"""Nodes at rest that one look takes in at most: each costs a prediction per session there."""
WAITING_A_NODE = 256
"""Waiting sessions that are looked at for one node; where more wait, others the next time."""
OVERDUE_A_NODE = 64
"""Of the overdue so many are looked at each time besides."""
ENOUGH = 512
"""Sessions, there and waiting, looked at in vain, after which a look goes to no further node: some 2 us for each."""


def place_passed_over(state: State, t: float) -> list[Decision]:
    """Place who waits although a node has room, when no plan is due: some of them each time.

    A plan works with rounded costs, and leaves a shared prefix in the cost of a session where it cannot be charged to
    every node; so it may pass over one that fits.
    """
    out: list[Decision] = []
    for session in sorted(_some_waiting(state), key=lambda s: -s.tier):
        if session.claimed is None and session.id in state.waiting and admission.fitting(state, session):
            node = admission.best_node(state, session, t)
            assert node is not None  # noqa: S101 - it fits
            state.counters["placed_passed_over"] += 1
            out += admission.settle(state, session, node, t)
    return out


def make_way(state: State, t: float) -> list[Decision]:
    """Some of the nodes at rest, those first that have not been looked at for longest."""
    if not state.policy.work_conserving or not state.waiting:
        return []
    out: list[Decision] = []
    in_vain = 0
    for _ in range(min(NODES_A_LOOK, state.rooms.resting)):
        for room in state.rooms.at_rest(1):
            most = len(room.holders) + min(len(state.waiting), WAITING_A_NODE)
            made = make_way_on(state, room, t)
            in_vain += 0 if made else most
            out += made
        if in_vain >= ENOUGH:
            break
    return out


def make_way_at_once(state: State, t: float) -> list[Decision]:
    """A turn has arrived: where it is the only one that waits it need not wait for the next sweep."""
    return make_way(state, t) if len(state.waiting) == 1 else []


def make_way_on(state: State, room: Room, t: float) -> list[Decision]:
    """Give a waiting session that fits nowhere the place of sessions in long tool calls on this node, if it rests."""
    if not (state.policy.work_conserving and state.waiting and room.at_rest):
        return []
    leaving = [
        s for s in (state.sessions.get(h) for h in room.holders) if s is not None and _outlasts(state, s, room, t)
    ]
    if not leaving:
        return []
    session = _first(state, room, leaving, t)
    if session is None or admission.fitting(state, session):
        return []
    leaving.sort(key=lambda s: pausing.pause_key(state, s, room.node, t))
    out: list[Decision] = []
    for holder in leaving:
        if _fits(state, room, session):
            break
        out.append(pausing.pause(state, holder, t))
    if _fits(state, room, session):
        state.counters["made_way"] += 1
        out += admission.settle(state, session, room.node, t)
    return out


def _outlasts(state: State, session: Session, room: Room, t: float) -> bool:
    """Whether the session's tool is expected to run for longer than computing what it holds anew would take."""
    if state.ready(session, t):
        return False
    refill_s = (state.refill_s(room) or REFERENCE_REFILL_S) * room.freed_by(session.id) / room.capacity
    remaining = state.readiness.remaining(session.id, t)
    return remaining is None or remaining.seconds >= refill_s


def _first(state: State, room: Room, leaving: list[Session], t: float) -> Session | None:
    """Of the waiting sessions that fit once the others have left: the overdue, by class, credit here, age."""
    own, going = room.freed_by_all([s.id for s in leaving])
    left = room.used - own - sum(going.values())

    def fits(session: Session) -> bool:
        cost, prefix = state.cost(session), state.prefix(session)
        if prefix is not None and prefix.key in going:
            added = room.whole(max(0, cost - prefix.tokens)) + going[prefix.key]
        else:
            added = room.added(cost, prefix)
        return session.claimed is None and left + added <= _limit(state, room, added)

    fit = [session for session in _some_waiting(state) if fits(session)]
    return max(fit, key=lambda s: _urgency(state, s, room, t), default=None)


def _some_waiting(state: State) -> list[Session]:
    """All that wait where they are few, else the longest overdue and a part of the others, another one each time."""
    waiting = state.waiting.values()
    if len(waiting) <= WAITING_A_NODE:
        return list(waiting)
    start = state.looked_up_to % len(waiting)
    some = list(islice(waiting, start, start + WAITING_A_NODE))
    some += islice(waiting, WAITING_A_NODE - len(some))
    state.looked_up_to = start + WAITING_A_NODE + 1  # not in step with the nodes, which take turns as well
    return [*islice(state.pressing, OVERDUE_A_NODE), *some]


def _urgency(state: State, session: Session, room: Room, t: float) -> tuple[bool, int, int, float]:
    credit = state.credits(session, t).get(room.node, 0)
    return session.pressing is not None, session.tier, credit, -(session.waiting_since or t)


def _fits(state: State, room: Room, session: Session) -> bool:
    added = room.added(state.cost(session), state.prefix(session))
    return room.used + added <= _limit(state, room, added)


def _limit(state: State, room: Room, added: int) -> int:
    """What the node may hold with a session that adds so much: up to the mark, or that alone on the whole node."""
    return min(room.capacity, max(added, int(room.capacity * state.rooms.mark)))
