# SPDX-License-Identifier: Apache-2.0
"""What comes over the bus reaches the tables and the core, and nothing that is broken stops it."""

from __future__ import annotations

import asyncio

import pytest

from kv_events.chain import block_hashes
from kv_events.reader import Connection
from kv_events.types import NodeId
from kv_events.wire import DEVICE, Envelope, KvBatch, KvEvent, KvMetrics, Stored
from tao_dynamo.errors import StackError
from tao_dynamo.shell.bus import RouterDump
from tao_dynamo.shell.metrics import FAMILIES, HISTOGRAMS, PREFIX, Metrics
from tao_dynamo.shell.prompts import Ask, Prompts, guest_hashes, read_request
from tao_dynamo.shell.status import explain, status
from tao_dynamo.shell.tenants import Tenants
from tests.tao_dynamo.shell_world import World
from tool_hooks.events import ToolEvent, encode

NODE = NodeId(7, 0)


def tool(kind: str, session: str = "s", call: str = "c1", **more: object) -> bytes:
    event = ToolEvent(
        kind=kind,  # type: ignore[arg-type]
        session_id=session,
        tool_call_id=call,
        tool_class="bash",
        event_time_ms=90_000,
        **more,  # type: ignore[arg-type]
    )
    return encode(event)


def foreign(world: World) -> int:
    (view,) = [n for n in world.driver.scheduler.statistics(world.driver.clock()).nodes if n.node == NODE]
    return view.foreign


async def test_tool_events_make_a_session_wait_for_its_tool() -> None:
    world = World()
    await world.start("s", 100)
    world.bus.on_tool_event(tool("tool_start", declared_s=60.0), "tao")
    assert world.states()["tool"] == 1
    assert not world.predictor.ready("s", world.driver.clock())
    world.bus.on_tool_event(tool("tool_progress", remaining_s=0.2), "tao")
    assert world.predictor.ready("s", world.driver.clock())
    world.bus.on_tool_event(tool("tool_end", duration_s=3.0), "tao")
    assert world.states()["tool"] == 0
    assert world.bus.tool_events == {"tool_start": 1, "tool_progress": 1, "tool_end": 1}


async def test_c16_garbage_and_unknown_sessions_are_counted_and_dropped() -> None:
    world = World()
    world.bus.on_tool_event(b"\xff\x00 not msgpack", "tao")
    for number in range(100):
        world.bus.on_tool_event(tool("tool_start", session=f"stranger-{number}"), "tao")
    assert world.bus.counters["tool_events_malformed"] == 1
    assert world.bus.counters["tool_events_unknown_session"] == 100
    assert len(world.predictor) == 0
    assert sum(world.states().values()) == 0


async def test_a_tool_event_moves_no_session_of_another_tenant() -> None:
    world = World()
    world.bus.tenants = Tenants(("tao", "dynamo"))
    await world.start("s", 100, routing={"cache_salt": "acme"})

    def heard(namespace: str, tenant: str | None) -> bool:
        world.bus.on_tool_event(tool("tool_start", declared_s=60.0, tenant=tenant), namespace)
        running = world.predictor.running("s")
        world.predictor.forget("s")
        return bool(running)

    assert heard("acme", None)
    assert heard("acme", "acme")
    assert heard("tao", "acme")
    assert heard("dynamo", "acme")
    assert not heard("tao", None)
    assert not heard("tao", "umbrella")
    assert not heard("umbrella", None)
    assert not heard("umbrella", "acme")
    assert not heard("acme", "umbrella")
    assert world.bus.counters["tool_events_foreign_tenant"] == 5
    # A session stays with the tenant of its first turn, and is nobody's once it has ended.
    await world.start("s", 120, routing={"cache_salt": "umbrella"})
    assert not heard("umbrella", None)
    world.handler._end_session("s")
    assert len(world.bus.tenants) == 0


def test_a_session_without_a_tenant_teaches_no_tenants_history() -> None:
    tenants = Tenants(("tao",))
    tenants.turn("s", "acme")
    assert tenants.history("s", None) == tenants.history("s", "acme") == "acme"
    assert tenants.history("stray", None) is None
    assert tenants.history("stray", "acme") not in ("acme", None)
    assert tenants.history("stray", "acme") != tenants.history("stray", "umbrella")


def test_tenants_are_bounded() -> None:
    tenants = Tenants(max_sessions=3)
    for number in range(100):
        tenants.turn(f"s{number}", "acme")
        tenants.turn(f"nobody's {number}", None)
    assert len(tenants) == 3


async def test_the_next_turn_ends_a_tool_whose_end_was_lost() -> None:
    world = World()
    await world.start("s", 100)
    world.bus.on_tool_event(tool("tool_start", declared_s=600.0), "tao")
    await world.start("s", 120)
    assert world.states()["idle"] == 1
    assert not world.predictor.running("s")


async def test_load_that_comes_and_goes_within_a_window_is_not_foreign() -> None:
    world = World()
    world.bus.on_kv_metrics(KvMetrics(7, 0, kv_used_blocks=40))
    world.bus.on_kv_metrics(KvMetrics(7, 0, kv_used_blocks=0))
    world.bus.tell_load()
    assert foreign(world) == 0
    world.bus.on_kv_metrics(KvMetrics(7, 0, kv_used_blocks=40))
    world.bus.tell_load()
    assert foreign(world) == 640
    world.bus.on_kv_metrics(KvMetrics(99, 0, kv_used_blocks=40))
    world.bus.on_kv_metrics(KvMetrics(7, 0, kv_used_blocks=0))
    world.bus.tell_load()
    assert foreign(world) == 0


async def test_blocks_that_are_announced_become_credit() -> None:
    world = World()
    await world.start("s", 64)
    chain = world.prompts.take("s", read_request({"token_ids": list(range(64))}), {16})[16]
    hashes = guest_hashes(read_request({"token_ids": list(range(64))}), {16})[16]
    assert list(chain) == list(hashes)
    event = KvEvent(NODE, 1, Stored(list(chain), block_hashes(list(range(64)), 16)), DEVICE)
    assert world.bus.follower is not None
    world.bus.follower.index.set_stale(NODE, False)
    await world.bus.on_kv_events(Envelope(1, 0, b""), KvBatch([event]))
    assert world.credit.resident("s") == {NODE: 64}


async def test_what_a_worker_publishes_after_it_left_is_nobodys() -> None:
    world = World()
    follower = world.bus.follower
    assert follower is not None

    async def publish(sequence: int, first: int) -> None:
        stored = Stored(list(range(first, first + 4)), list(range(4)))
        await world.bus.on_kv_events(Envelope(1, sequence, b""), KvBatch([KvEvent(NODE, sequence + 1, stored, DEVICE)]))

    await publish(0, 10)
    assert follower.index.node_stats(NODE) is not None
    world.discovery.live = [8]
    world.workers.sync()
    await publish(1, 20)
    assert follower.index.node_stats(NODE) is None
    world.discovery.live = [7, 8]
    world.workers.sync()
    await publish(2, 30)
    assert follower.index.holds_any(NODE)


async def test_the_bus_going_away_marks_the_nodes_and_serving_goes_on() -> None:
    world = World()
    assert world.bus.follower is not None
    for node in (NODE, NodeId(8, 0)):
        world.bus.follower.index.set_stale(node, False)
        world.bus.on_node(node, "recovered", "")
    assert world.bus.stale_nodes == 0
    world.bus.on_connection(Connection.DISCONNECTED)
    assert not world.bus.connected
    assert world.bus.stale_nodes == 2
    assert all(node.stale for node in world.driver.scheduler.statistics(world.driver.clock()).nodes)
    assert len(await world.start("s", 100)) == 4


async def test_a_dump_that_fails_is_an_error_of_ours() -> None:
    async def broken() -> str:
        raise KeyError("anything")

    with pytest.raises(StackError, match="anything"):
        await RouterDump(broken).dump()


def test_c17_salts_and_adapters_share_no_blocks_and_media_have_none() -> None:
    tokens = list(range(64))
    plain = read_request({"token_ids": tokens})
    salted = read_request({"token_ids": tokens, "routing": {"cache_salt": "acme"}})
    lora = read_request({"token_ids": tokens, "routing": {"lora_name": "a"}})
    seen = [set(guest_hashes(ask, {16})[16]) for ask in (plain, salted, lora)]
    assert len(set.union(*seen)) == sum(map(len, seen))
    assert not read_request({"token_ids": tokens, "multi_modal_data": {"image_url": ["x"]}}).blocks_known


def test_a_request_full_of_nonsense_is_read_as_one_that_says_nothing() -> None:
    ask = read_request(
        {"token_ids": None, "agent_context": 7, "routing": {"priority": "high", "lora_name": 3}, "stop_conditions": []}
    )
    assert ask == Ask(None, None, False, [], None, None, 0, 0, 0, None, None, True)


def test_prompts_are_bounded_and_only_what_is_new_is_kept() -> None:
    prompts = Prompts(max_sessions=3)
    for number in range(10):
        prompts.take(f"s{number}", read_request({"token_ids": list(range(32))}), {16})
    assert len(prompts) == 3
    prompts.forget("s9")
    prompts.forget("s0")
    assert len(prompts) == 2


async def test_status_and_metrics_tell_who_waits_in_words() -> None:
    world = World()
    world.worker.gate = asyncio.Event()
    for number in range(2):
        world.start(f"s{number}", 700, 200)
    await world.until(lambda: len(world.worker.served) == 2)
    world.start("waits", 700, 200)
    await world.until(lambda: world.states()["waiting"] == 1)
    sources = world.sources()
    for state, connected in ((Connection.DISCONNECTED, 0), (Connection.RECONNECTED, 1)):
        world.bus.on_connection(state)
        assert sources.figures()["event_bus_connected"] == connected  # C16
    told = status(sources)
    (line,) = told["waiting"]
    assert line["says"].startswith("session waits has waited 0.")
    assert "needs 272 tokens" in line["says"]
    assert told["turns"]["live"] == 3
    assert explain(sources, {"session": "waits"})["state"] == "waiting"
    assert "not known" in explain(sources, {"session": "nobody"})["error"]
    assert "send" in explain(sources, {})["error"]

    metrics = Metrics(sources)
    metrics.observe("turn_wait_seconds")(0.2)
    text = metrics.expose()
    assert f'{PREFIX}sessions{{state="waiting"}} 1.0' in text
    assert f'{PREFIX}node_capacity_tokens{{dp_rank="0",worker_id="7"}} 1024.0' in text
    assert f"{PREFIX}turn_wait_seconds_count 1.0" in text
    assert "waits" not in text
    for name in (*FAMILIES, *HISTOGRAMS):
        assert f"# HELP {PREFIX}{name}" in text
