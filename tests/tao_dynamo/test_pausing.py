# SPDX-License-Identifier: Apache-2.0
"""Making room on a node."""

from __future__ import annotations

from dataclasses import replace

from tao_dynamo.core import overdue, pausing
from tao_dynamo.core.policy import DEFAULT
from tao_dynamo.core.prefixes import SharedPrefix
from tao_dynamo.core.session import Session, SessionState
from tao_dynamo.core.state import State
from tao_dynamo.core.turn import LiveTurn, Turn
from tests.tao_dynamo.fakes import A, B, FakeCredit, FakeReadiness

PREFIX = SharedPrefix(key=1, tokens=1024)


def world() -> State:
    state = State(replace(DEFAULT, host_tier="on"), FakeCredit(), FakeReadiness())
    state.rooms.join(A, 12_000, 16, 100_000)
    state.host_tier = True
    return state


def in_a_tool(state: State, name: str) -> Session:
    session = state.session(name, 0.0)
    session.common = PREFIX
    state.set_footprint(session, 2000)
    session.enter(SessionState.TOOL, 0.0)
    state.hold(session, A)
    return session


def test_sessions_that_hold_nothing_but_a_prefix_free_it_together() -> None:
    state = world()
    for name in ("a", "b"):
        in_a_tool(state, name)
    assert state.rooms[A].used == 1024
    pausing.make_room(state, state.rooms[A], 0, 1.0)
    assert state.rooms[A].used == 0
    assert {s.state for s in state.sessions.values()} == {SessionState.PAUSED}


def test_a_prefix_that_a_running_session_needs_too_stays_and_so_do_its_sharers() -> None:
    state = world()
    for name in ("a", "b"):
        in_a_tool(state, name)
    in_a_tool(state, "busy").enter(SessionState.RUNNING, 0.0)
    pausing.make_room(state, state.rooms[A], 0, 1.0)
    assert state.rooms[A].used == 1024
    assert state.sessions["a"].node == state.sessions["b"].node == A


def test_a_claim_on_a_node_that_the_session_has_outgrown_moves_to_one_that_holds_it() -> None:
    state = State(DEFAULT, FakeCredit(), FakeReadiness())
    state.rooms.join(A, 10_000, 16, 0)
    session = state.session("big", 0.0)
    session.turns["r"] = LiveTurn(Turn("r", "big", 10_500), 0.0, 100)
    state.to_pool(session, 0.0)
    state.rooms[A].claim("big", 10_000)
    session.claimed = A
    state.pressing.add(session)
    state.rooms.join(B, 12_000, 16, 0)
    overdue.serve(state, 100.0)
    assert session.node == B
    assert not state.rooms[A].claims
