# SPDX-License-Identifier: Apache-2.0
"""Turns through the whole shell, with workers and clients that misbehave."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from kv_events.types import NodeId
from tao_dynamo.core.policy import DEFAULT
from tests.tao_dynamo.shell_world import FakeContext, GoneError, RefusedError, World

pytestmark = pytest.mark.timeout(20)


async def test_a_turn_is_pinned_and_comes_back_whole() -> None:
    world = World()
    assert await world.start("s", 100, 5) == [0, 1, 2, 3, 4]
    (node, request), *more = world.worker.served
    assert not more
    assert request["routing"]["backend_instance_id"] == node.worker_id
    assert request["routing"]["dp_rank"] == node.dp_rank
    assert request["routing"]["expected_output_tokens"] == 5
    assert world.driver.live_turns == 0
    assert world.states()["idle"] == 1


async def test_a_session_stays_where_its_cache_is() -> None:
    world = World()
    for step in range(4):
        await world.start("s", 100 + 16 * step)
    assert len({node for node, _ in world.worker.served}) == 1
    assert world.handler.counters["credit_confirmed_tokens"] == 4 * 16


async def test_a_request_without_a_session_passes_and_leaves_no_session() -> None:
    world = World()
    assert await world.start(None, 100, 3) == [0, 1, 2]
    assert sum(world.states().values()) == 0
    assert world.reserved() == 0


async def test_c8_a_client_that_leaves_while_it_waits_leaves_nothing() -> None:
    world = World()
    world.worker.gate = asyncio.Event()
    first = [world.start(f"s{i}", 700, 200) for i in range(2)]
    await world.until(lambda: len(world.worker.served) == 2)
    reserved = world.reserved()
    waiting = world.start("waits", 700, 200)
    await world.until(lambda: world.states()["waiting"] == 1)
    world.context["r3"].stop()
    assert await waiting == []
    assert world.states()["waiting"] == 0
    assert world.reserved() == reserved
    assert world.driver.live_turns == 2
    world.worker.gate.set()
    assert [len(tokens) for tokens in await asyncio.gather(*first)] == [200, 200]
    assert world.driver.live_turns == 0


async def test_c8_a_plan_for_a_client_that_has_left_places_the_next_one() -> None:
    world = World()
    world.worker.gate = asyncio.Event()
    for i in range(2):
        world.start(f"s{i}", 700, 200)
    await world.until(lambda: len(world.worker.served) == 2)
    gone, stays = world.start("gone", 700, 200), world.start("stays", 700, 200)
    await world.until(lambda: world.states()["waiting"] == 2)
    world.solver.gate = asyncio.Event()
    world.context["r1"].stop()
    await world.until(lambda: world.solver.calls >= 1)
    world.context["r3"].stop()
    assert await gone == []
    world.solver.gate.set()
    world.worker.gate.set()
    assert len(await stays) == 200


async def test_c9_a_client_that_leaves_in_mid_stream_frees_its_room_once() -> None:
    world = World()
    world.worker.gate = asyncio.Event()
    running = world.start("s", 300, 50)
    await world.until(lambda: world.states()["running"] == 1)
    world.context["r1"].stop()
    await running
    assert world.handler.counters["cancelled_turns"] == 1
    assert world.states()["running"] == 0
    assert world.driver.live_turns == 0


async def test_c10_a_reused_request_id_disturbs_nobody() -> None:
    world = World()
    world.worker.gate = asyncio.Event()
    first = world.start("s", 100, 10, request_id="same")
    await world.until(lambda: world.states()["running"] == 1)
    second = world.start("t", 100, 10, request_id="same")
    await world.until(lambda: len(world.worker.served) == 2)
    world.worker.gate.set()
    assert len(await first) == len(await second) == 10
    assert world.handler.counters["reused_request_ids"] == 1


async def test_c11_an_end_without_a_prompt_goes_to_no_worker_and_may_come_twice() -> None:
    world = World()
    await world.start("s", 100)
    for session in ("s", "s", "unknown"):
        assert await world.start(session, 0, agent={"session_final": True}) == []
    assert len(world.worker.served) == 1
    assert sum(world.states().values()) == 0
    assert len(world.prompts) == 0
    assert "s" not in world.credit


async def test_c11_an_end_with_a_prompt_is_served_and_then_closes() -> None:
    world = World()
    assert len(await world.start("s", 100, 4, agent={"session_final": True})) == 4
    assert sum(world.states().values()) == 0
    assert world.reserved() == 0


async def test_c11_an_end_answers_the_sessions_waiting_turn_at_once() -> None:
    world = World()
    world.worker.gate = asyncio.Event()
    for i in range(2):
        world.start(f"s{i}", 700, 200)
    await world.until(lambda: len(world.worker.served) == 2)
    waiting = world.start("s", 700, 200)
    await world.until(lambda: world.states()["waiting"] == 1)
    await world.start("s", 0, agent={"session_final": True})
    with pytest.raises(RefusedError, match="ended"):
        await waiting


async def test_c12_a_worker_gone_before_the_first_token_costs_the_turn_nothing() -> None:
    world = World()
    await world.start("s", 100)
    home = world.worker.served[0][0]
    world.worker.dead = {home.worker_id}
    assert len(await world.start("s", 116)) == 4
    assert world.worker.served[-1][0] != home
    assert world.handler.counters["displaced_turns"] == 1
    assert await world.start(None, 50, 2) == [0, 1]


async def test_a_guest_too_is_brought_to_another_node() -> None:
    world = World()
    world.worker.dead = {7, 8}
    trying = world.start(None, 50, 2)
    with pytest.raises(RefusedError, match="no worker"):
        await trying
    assert world.reserved() == 0


async def test_a_guest_that_is_brought_to_another_node_is_what_it_was() -> None:
    held = []
    for deaths in (0, 1):
        world = World()
        world.worker.gate = asyncio.Event()
        world.worker.deaths = deaths
        turn = world.start(None, 100, 300)  # more than what is taken for granted without a hint
        await world.until(lambda served=world.worker.served: served)
        held.append(world.reserved())
        assert world.handler.counters["displaced_turns"] == deaths
        world.worker.gate.set()
        assert len(await turn) == 300
    assert held[0] == held[1]


async def test_a_stream_that_breaks_is_an_error_that_does_not_mark_the_router_down() -> None:
    world = World()
    world.worker.break_after = 2
    with pytest.raises(RuntimeError, match="started=True"):
        await world.start("s", 100, 5)
    assert world.states()["running"] == 0
    assert world.handler.counters["failed_turns"] == 1
    world.worker.break_after = None
    assert len(await world.start("s", 100, 5)) == 5


async def test_overload_is_refused_past_the_limit() -> None:
    world = World(dataclasses.replace(DEFAULT, max_waiting=1, idle_release_s=0.05))
    world.worker.gate = asyncio.Event()
    for i in range(2):
        world.start(f"s{i}", 700, 200)
    await world.until(lambda: len(world.worker.served) == 2)
    world.start("waits", 700, 200)
    await world.until(lambda: world.states()["waiting"] == 1)
    with pytest.raises(RefusedError, match="limit is 1"):
        await world.start("too many", 700, 200)


async def test_c15_a_solver_that_fails_twenty_times_does_not_stop_the_loop() -> None:
    world = World(dataclasses.replace(DEFAULT, solve_interval_s=0.0, idle_release_s=0.0))
    world.solver.fail = 20
    turns = [world.start(f"s{i}", 700, 20) for i in range(6)]
    for turn in turns:
        assert len(await turn) == 20
        await world.start(f"poke{id(turn)}", 16)
    assert world.driver.counters["solve_errors"] > 0
    assert world.driver.counters["core_errors"] == 0


async def test_a_core_that_fails_does_not_cost_the_turn() -> None:
    world = World()

    def broken(*_args: object, **_more: object) -> list[object]:
        raise ZeroDivisionError

    world.driver.scheduler.turn_arrived = broken  # type: ignore[method-assign,assignment]
    assert len(await world.start("s", 100)) == 4
    assert world.worker.served[0][0] == NodeId(8, 0)
    assert world.driver.counters["core_errors"] == 1


async def test_nothing_is_left_after_a_crowd_that_comes_and_goes() -> None:
    world = World(dataclasses.replace(DEFAULT, idle_release_s=0.0), blocks=128)
    turns = [world.start(f"s{i % 40}" if i % 5 else None, 100 + i, 1 + i % 7) for i in range(200)]
    for i in range(0, 200, 9):
        await asyncio.sleep(0)
        context = world.context[f"r{i + 1}"]
        if not context.is_stopped():
            context.stop()
    await asyncio.gather(*turns)
    assert world.driver.live_turns == 0
    assert world.states()["running"] == world.states()["waiting"] == 0
    for i in range(40):
        await world.start(f"s{i}", 0, agent={"session_final": True})
    assert sum(world.states().values()) == 0
    assert world.reserved() == 0
    assert len(world.prompts) == len(world.credit) == 0


def kept(world: World) -> tuple[int, int, int]:
    """Sessions that something is kept of."""
    return len(world.prompts), len(world.credit), len(world.bus.tenants)


async def test_nothing_is_kept_of_a_session_that_is_refused() -> None:
    world = World(dataclasses.replace(DEFAULT, max_waiting=1, idle_release_s=0.05))
    salted = {"routing": {"cache_salt": "tenant", "expected_output_tokens": 4}}
    with pytest.raises(RefusedError, match="largest node"):
        await world.start("fits-nowhere", 5000, **salted)
    assert kept(world) == (0, 0, 0)
    world.worker.gate = asyncio.Event()
    full = [world.start(f"s{i}", 700, 200) for i in range(3)]
    await world.until(lambda: world.states()["waiting"] == 1)
    with pytest.raises(RefusedError, match="the limit is 1"):
        await world.start("one-too-many", 700, **salted)
    assert kept(world) == (3, 3, 0)
    world.worker.gate.set()
    await asyncio.gather(*full)
    # A turn that is refused takes nothing from a session that is there.
    with pytest.raises(RefusedError, match="largest node"):
        await world.start("s0", 5000)
    assert kept(world) == (3, 3, 0)


async def test_nothing_is_kept_of_a_session_that_expired_or_had_to_make_way() -> None:
    world = World(dataclasses.replace(DEFAULT, session_expiry_s=0.2, max_sessions=3))
    for number in range(5):
        await world.start(f"s{number}", 100, routing={"cache_salt": "tenant", "expected_output_tokens": 4})
    assert kept(world) == (3, 3, 3)
    await world.until(lambda: not sum(world.states().values()))
    assert kept(world) == (0, 0, 0)


async def test_a_client_that_hangs_up_on_the_last_token_was_served() -> None:
    world = World()
    hang_up: list[str] = []

    class Answer:
        """Ends with an error, as when the client's leaving is passed on; the last token has come."""

        def __init__(self, request: dict[str, Any], context: FakeContext) -> None:
            self._context = context
            self._last = request["stop_conditions"]["max_tokens"]

        async def pour(self, into: Callable[[list[dict[str, Any]]], None]) -> None:
            usage = {"prompt_tokens_details": {"cached_tokens": 16}}
            into([{"token_ids": [n], "index": 0, "completion_usage": usage} for n in range(self._last)])
            into([{"token_ids": [], "finish_reason": "length", "index": 0, "completion_usage": usage}])
            self._context.stop()
            if hang_up:
                raise GoneError("the stream ended")

        def close(self) -> None:
            """Nobody reads on."""

    async def forward(request: dict[str, Any], node: NodeId, context: FakeContext) -> Answer:
        return Answer(request, context)

    world.handler._forward = forward  # type: ignore[assignment]
    assert await world.start("s", 100, 3) == [0, 1, 2]
    hang_up.append("with an error")
    assert await world.start("s", 120, 3) == [0, 1, 2]
    counters = world.driver.scheduler.statistics(world.driver.clock()).counters
    assert counters["turns_done"] == 2
    assert counters["cached_tokens"] == 32
    assert world.handler.counters["cancelled_turns"] == 0


async def test_a_session_id_is_not_taken_at_any_length(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world = World()
    assert len(await world.start("s" * 1024, 16)) == 4
    with pytest.raises(RefusedError, match="a session id of 1025 characters; at most 1024 are taken"):
        await world.start("s" * 1025, 16)
    with pytest.raises(RefusedError, match="a parent session id of 2000 characters"):
        await world.start("child", 16, agent={"parent_session_id": "p" * 2000})
    assert world.handler.counters["refused_long_ids"] == 2
    assert [record.getMessage().split()[0] for record in caplog.records].count("turn_refused") == 2
    assert world.driver.live_turns == 0


@pytest.mark.parametrize("stop", [{"ignore_eos": True}, {"min_tokens": 900}])
@pytest.mark.parametrize("session", ["s", None])
async def test_what_no_node_can_hold_to_its_end_is_refused_with_both_numbers(
    session: str | None, stop: dict[str, Any]
) -> None:
    world = World()
    more = {"stop_conditions": {"max_tokens": 900, **stop}, "routing": {}}
    with pytest.raises(RefusedError, match="needs 1100 tokens of KV room; the largest node holds 1024"):
        await world.start(session, 200, **more)
    assert world.handler.counters["refused_never_fits"] == 1
    # The model may end the first of these by itself, and the second fits.
    may_end = {"max_tokens": 900, "ignore_eos": True, "stop": ["\n"]}
    assert len(await world.start(session and "a", 200, stop_conditions=may_end, routing={})) == 900
    assert len(await world.start(session and "b", 100, **more)) == 900


async def test_where_the_large_run_alone_a_request_without_a_session_is_let_through_as_well() -> None:
    world = World(dataclasses.replace(DEFAULT, never_fits="alone"))
    more = {"stop_conditions": {"max_tokens": 900, "ignore_eos": True}, "routing": {}}
    for session in ("s", None):
        assert len(await world.start(session, 200, **more)) == 900
    assert not world.handler.counters["refused_never_fits"]
