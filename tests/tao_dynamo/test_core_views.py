# SPDX-License-Identifier: Apache-2.0
"""Who waits and why: the reason names the node that comes nearest, however it is found."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from kv_events.types import NodeId
from tao_dynamo.core import admission, views
from tao_dynamo.core.policy import DEFAULT
from tao_dynamo.core.prefixes import SharedPrefix
from tao_dynamo.core.room import Room
from tao_dynamo.core.session import Session
from tao_dynamo.core.state import State
from tao_dynamo.core.turn import LiveTurn, Turn
from tests.tao_dynamo.fakes import PLAIN, A, B, Driver, FakeCredit, FakeReadiness


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_the_nearest_node_is_the_one_that_a_look_at_all_of_them_finds(seed: int) -> None:
    rng = random.Random(seed)
    state = State(DEFAULT, FakeCredit(), FakeReadiness())
    prefixes = [SharedPrefix(key, 16 * rng.randrange(1, 200)) for key in range(3)]
    for number in range(rng.randrange(1, 9)):
        node = NodeId(number, 0)
        state.rooms.join(node, rng.choice((4096, 8192, 16_384)), 16, 0)
        room = state.rooms[node]
        for holder in range(rng.randrange(4)):
            room.hold(f"h{holder}", rng.randrange(1, 3000), rng.choice((None, *prefixes)), live=True)
        if rng.random() < 0.2:
            room.claims["claimer"] = rng.randrange(1, 2000)
    session = Session("s", 1, created_at=0.0, common=rng.choice((None, *prefixes)))
    prompt = rng.randrange(max(1, session.common.tokens if session.common else 1), 17_000)
    session.turns["r"] = LiveTurn(Turn("r", "s", prompt), 0.0, 64)
    cost = state.cost(session)

    def short(room: Room) -> int:
        added = room.added(cost, state.prefix(session))
        return added - admission.room_for(state, room, added)

    best = min(map(short, state.rooms.values()))
    found = short(views._BestRooms(state).find(session, cost))
    assert found == best or (found <= 0 and best <= 0)


def test_ids_come_with_the_pool_first_and_the_last_heard_before_the_rest() -> None:
    driver = Driver(nodes={A: 1000})
    for name in ("a", "b"):
        driver.arrive(name, 300, output=100)
    for name in ("w1", "w2"):
        driver.arrive(name, 600, output=100)
    assert driver.core.session_ids(10) == ["w1", "w2", "b", "a"]
    assert driver.core.session_ids(3) == ["w1", "w2", "b"]
    assert driver.core.session_ids(1) == ["w1"]
    seen = driver.core.session_views(["w2", "nobody", "a"], driver.t)
    assert [(view.key, view.state.value) for view in seen] == [("w2", "waiting"), ("a", "running")]
    assert seen[1].held == 400
    assert seen[0].reason.startswith("needs 700 tokens; at most ")


def test_the_choices_of_a_session_are_told_its_own_node_first() -> None:
    driver = Driver(PLAIN, nodes={A: 1000, B: 2000})
    driver.arrive("a", 700, output=100)
    driver.credit.table["a"] = {A: 650}
    own, other = driver.core.choices("a", driver.t)
    assert (own.node, own.credit, own.adds, own.free) == (B, 0, 800, 900)
    assert (other.node, other.credit, other.free) == (A, 650, 850)
    assert driver.core.choices("nobody", driver.t) == []


def test_a_plan_is_remembered_with_its_value_and_bound() -> None:
    driver = Driver(nodes={A: 1000})
    driver.arrive("a", 700, output=100)
    driver.arrive("b", 700, output=100)
    driver.end("a")
    driver.run(driver.core.session_ended("a", driver.t))
    (plan, *_) = driver.core.statistics(driver.t).plans[::-1]
    assert plan.placed == 1
    assert plan.value.footprint > 0
    assert (plan.bound.credit, plan.bound.ready) >= (plan.value.credit, plan.value.ready)
