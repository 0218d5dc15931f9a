# SPDX-License-Identifier: Apache-2.0
"""A look at the whole router: what it says, and that it holds nobody up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kv_events.types import NodeId
from tao_dynamo.shell import snapshot as module
from tao_dynamo.shell.snapshot import snapshot
from tao_dynamo.shell.sources import Sources
from tao_dynamo.shell.status import explain
from tests.tao_dynamo.shell_world import World


async def crowd(world: World, waiting: int = 3) -> Sources:
    """Two sessions run, each filling a node; the others wait."""
    world.worker.gate = asyncio.Event()
    for number in range(2):
        world.start(f"s{number}", 700, 100)
    await world.until(lambda: len(world.worker.served) == 2)
    for number in range(waiting):
        world.start(f"w{number}", 600 + number, 100)
    await world.until(lambda: world.states()["waiting"] == waiting)
    return world.sources()


async def test_who_waits_comes_first_in_order_each_with_its_reason() -> None:
    world = World()
    shot = await snapshot(await crowd(world))
    assert [(row.id, row.place, row.state) for row in shot.sessions[:3]] == [
        ("w0", 1, "waiting"),
        ("w1", 2, "waiting"),
        ("w2", 3, "waiting"),
    ]
    assert all("needs" in row.reason and row.waited_s is not None for row in shot.sessions[:3])
    assert {row.id: row.node for row in shot.sessions[3:]}.keys() == {"s0", "s1"}
    assert shot.by_state["waiting"] == 3
    assert shot.by_state["running"] == 2
    assert shot.left_out == 0
    assert sum(node.running for node in shot.nodes) == sum(row.held for row in shot.sessions)
    assert [node.running_sessions for node in shot.nodes] == [1, 1]
    assert {node.name for node in shot.nodes} == {"7/0", "8/0"}
    assert shot.totals.live_turns == 5


async def test_of_too_many_sessions_those_that_wait_are_kept() -> None:
    world = World()
    shot = await snapshot(await crowd(world), limit=4)
    assert [row.state for row in shot.sessions] == ["waiting"] * 3 + ["running"]
    assert shot.left_out == 1
    assert sum(shot.by_state.values()) == 5


async def test_a_tool_is_shown_with_how_long_it_ran_and_what_is_expected_of_it() -> None:
    world = World()
    task = world.start("s", 64, 4)
    await task
    t = world.driver.clock()
    world.predictor.started("s", "c1", "pytest", t, declared_s=20.0)
    world.predictor.started("s", "c2", "grep", t, declared_s=2.0)
    world.driver.feed(world.driver.scheduler.tool_changed, "s")
    told = world.sources()
    (row,) = (await snapshot(told)).sessions
    assert (row.state, row.tool, row.calls, row.source) == ("tool", "pytest", 2, "declared")
    assert row.returns_in_s == pytest.approx(20.0, abs=2.0)
    assert row.held > 0
    explained = explain(told, {"session": "s"})
    assert [call["key"] for call in explained["tool_calls"]] == ["pytest", "grep"]
    assert explained["nodes"][0]["node"] == row.node
    assert {choice["node"] for choice in explained["nodes"]} == {"7/0", "8/0"}


async def test_a_session_that_goes_while_it_is_looked_at_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(blocks=4096)
    for number in range(70):
        await world.start(f"s{number}", 32, 2)
    told = world.sources()
    monkeypatch.setattr(module, "STEP_S", 0.0)  # the event loop has its turn after every few sessions
    looking = asyncio.create_task(snapshot(told))
    for _ in range(2):
        await asyncio.sleep(0)
    for number in range(70):
        world.driver.feed(world.driver.scheduler.session_ended, f"s{number}")
    shot = await looking
    assert 0 < len(shot.sessions) < 70
    assert not (await snapshot(told)).sessions


async def test_others_have_their_turn_while_many_sessions_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(blocks=65_536)
    for number in range(320):
        await world.start(f"s{number}", 32, 1)
    monkeypatch.setattr(module, "STEP_S", 0.0)
    looking = asyncio.create_task(snapshot(world.sources()))
    turns = 0
    while not looking.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 320 / module.SLICE
    assert len(looking.result().sessions) == 320


async def test_what_an_operator_should_know_is_said_in_words() -> None:
    world = World()
    told = await crowd(world, waiting=1)
    shot = await snapshot(told)
    assert any("No event bus is listened to" in problem for problem in shot.problems)
    told.workers.refused[9] = "it does not tell its KV capacity"
    world.bus.verdicts[NodeId(7, 0)] = "silent"
    world.driver.feed(world.driver.scheduler.node_stale, NodeId(8, 0), True)
    said = " ".join((await snapshot(told)).problems)
    assert "Worker 9 is left out: it does not tell its KV capacity." in said
    assert "Node 7/0: publishes no KV events" in said
    assert "8/0" in next(problem for problem in (await snapshot(told)).problems if "events had a gap" in problem)
    nodes: dict[str, Any] = {node.node: node for node in (await snapshot(told)).nodes}
    assert nodes["7/0"].events == "silent"
    assert nodes["8/0"].stale


async def test_that_the_planner_has_long_been_left_out_is_said() -> None:
    world = World()
    told = world.sources()
    world.worker.gate = asyncio.Event()
    turns = []
    for number in range(14):
        own = list(range(1000 * number, 1000 * number + 700))
        turns.append(world.start(f"s{number}", 700, 2, agent={"session_final": True}, token_ids=own))
    await world.until(lambda: world.states()["waiting"] == 12)
    world.worker.gate.set()
    await asyncio.gather(*turns)
    shot = await snapshot(told)
    assert len(shot.plans) >= module.FALLBACKS
    assert shot.plans[0].method == "bfd"
    assert any("not made by the planner" in problem for problem in shot.problems)


@pytest.mark.parametrize("body", [{}, [], "s0", None, 5, {"session": 5}, {"session": ""}])
async def test_what_asks_for_no_session_is_told_how_to_ask(body: object) -> None:
    assert explain(World().sources(), body) == {"error": 'send {"session": "<id>"}'}
