# SPDX-License-Identifier: Apache-2.0
"""The commands themselves, as processes beside a real nats-server and beside real workers."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar

import nats
import pytest

from kv_events import recording
from kv_events.types import NodeId
from launch.health import post_json
from launch.stack import Stack
from tests.kv_events.events import C, removed, stored
from tests.kv_events.inspection.bus import forward, kv, load, tool
from tests.kv_events.test_reader import Server, until

TAO_EVENTS = (sys.executable, "-m", "kv_events.cli")
ENV = {name: value for name, value in os.environ.items() if not name.startswith(("NATS_", "DYN_"))}


class Command:
    """A ``tao-events`` that runs beside the test; its output is read when it ends."""

    started: ClassVar[list[Command]] = []

    def __init__(self, url: str, *args: str) -> None:
        self._process = subprocess.Popen(
            [*TAO_EVENTS, *args, "--nats", url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV
        )
        self.started.append(self)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    async def ended(self) -> tuple[int, str, str]:
        out, err = await asyncio.to_thread(self._process.communicate, timeout=60)
        return self._process.returncode, out, err

    def stop(self) -> None:
        self._process.terminate()

    def discard(self) -> None:
        """Leave nothing behind, whatever became of the test."""
        with self._process as process:
            process.kill()


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    yield
    while Command.started:
        Command.started.pop().discard()


class Monitored(Server):
    """A nats-server that tells of its clients."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.monitor = int(probe.getsockname()[1])
        super().__init__("-m", str(self.monitor))

    def tell(self, what: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.monitor}/{what}", timeout=5) as answer:
            return json.load(answer)

    async def listeners(self, count: int) -> None:
        """Wait until so many clients have all four subscriptions."""
        await until(lambda: self.tell("varz")["subscriptions"] >= self.own + 4 * count, 30.0)

    async def delivered(self, messages: int) -> None:
        """Wait until every listener has been sent so many messages."""

        def all_sent() -> bool:
            clients = [client for client in self.tell("connz")["connections"] if client["subscriptions"] == 4]
            return bool(clients) and all(client["out_msgs"] >= messages for client in clients)

        await until(all_sent, 30.0)

    async def start(self) -> None:
        await super().start()
        await until(lambda: bool(self.tell("varz")), 10.0)
        self.own = self.tell("varz")["subscriptions"]


@pytest.fixture
async def server() -> AsyncIterator[Monitored]:
    one = Monitored()
    await one.start()
    yield one
    one.stop()


async def publish(url: str, *messages: recording.Message) -> None:
    client = await nats.connect(url)
    for message in messages:
        await client.publish(message.subject, message.data)
    await client.close()


@pytest.mark.nats
async def test_every_command_beside_one_bus_and_what_is_recorded_plays_back(server: Monitored, tmp_path: Path) -> None:
    file = tmp_path / "bus.jsonl.gz"
    tails = [
        Command(server.url, "tail", "--json"),
        Command(server.url, "tail", "--session", "mine"),
        Command(server.url, "record", str(file)),
        Command(server.url, "top", "--once", "--json", "--seconds", "90", "--block-size", "16"),
        Command(server.url, "top", "--once", "--seconds", "90"),
        Command(server.url, "check", "--seconds", "90", "--need-tools"),
    ]
    await server.listeners(6)
    sent = [
        kv([stored([1, 2])], 0),
        kv([stored([1], node=C)], 0, publisher=2),
        load(7, 5, 0),
        forward(7, 100, 0),
        tool("tool_start", 0, t=0.0, session="mine", declared_s=9.0),
        tool("tool_start", 1, t=0.0, session="other"),
    ]
    await publish(server.url, *sent)
    await server.delivered(6)
    for command in tails:
        command.stop()
    code, out, _ = await tails[3].ended()
    top = json.loads(out)
    assert code == 0
    assert [(row["node"], row["blocks"], row["tokens"]) for row in top["nodes"]] == [("7/0", 2, 32), ("9/0", 1, 16)]
    assert {row["session"] for row in top["sessions"]} == {"mine", "other"}
    code, out, _ = await tails[4].ended()
    assert code == 0
    assert "mine" in out
    assert "\x1b" not in out
    code, out, _ = await tails[5].ended()
    assert (code, "fail" in out) == (0, False), out
    _, out, _ = await tails[0].ended()
    assert len([json.loads(line) for line in out.splitlines()]) == 6
    _, out, _ = await tails[1].ended()
    assert out.count("\n") == 1
    _, _, err = await tails[2].ended()
    assert f"6 messages in {file}" in err
    assert [message.data for message in recording.read(file)] == [message.data for message in sent]
    again = Command(server.url, "tail", "--json")
    await server.listeners(1)
    played = Command(server.url, "replay", str(file), "--speed", "0")
    assert (await played.ended())[2] == f"6 messages of {file} published\n"
    await server.delivered(6)
    again.stop()
    assert len((await again.ended())[1].splitlines()) == 6


@pytest.mark.nats
async def test_a_replay_keeps_the_rhythm_and_does_not_mix_with_workers(server: Monitored, tmp_path: Path) -> None:
    file = tmp_path / "bus.jsonl"
    with recording.open_text(file, "wt") as out:
        for at in range(3):
            recording.write(out, kv([stored([at], at=at + 1)], at, t=10.0 + 2 * at))
    begun = time.monotonic()
    played = Command(server.url, "replay", str(file), "--speed", "4", "--beside-live")
    code, _, err = await played.ended()
    assert (code, "3 messages" in err) == (0, True)
    assert time.monotonic() - begun >= 1.0
    refused = Command(server.url, "replay", str(file))
    client = await nats.connect(server.url)
    for at in range(600):
        await client.publish(*load(7, at, at)[1:])
        await asyncio.sleep(0.02)
        if not refused.running:
            break
    await client.close()
    code, _, err = await refused.ended()
    assert code == 2
    assert "live messages" in err
    assert err.count("\n") == 1


@pytest.mark.nats
async def test_a_flood_is_sampled_and_said_and_the_server_feels_nothing(server: Monitored) -> None:
    commands = [
        Command(server.url, "tail", "--sample", "50"),
        Command(server.url, "tail", "--sample", "0", "--worker", str(2**63 + 3), "--kind", "removed"),
        Command(server.url, "check", "--sample", "50", "--seconds", "90", "--json"),
        Command(server.url, "top", "--sample", "50", "--seconds", "90", "--once", "--json"),
    ]
    await server.listeners(4)
    flood = []
    for at in range(8_000):
        worker, sequence = at % 8, at // 8
        change = removed if sequence % 2 else stored
        event = change([1, 2], node=NodeId(2**63 + worker, 0), at=sequence + 1)
        flood.append(kv([event], sequence, publisher=worker))
    await publish(server.url, *flood)
    await server.delivered(8_000)
    await asyncio.sleep(1.1)  # what was left out is said once a second
    for command in commands:
        command.stop()
    _, out, _ = await commands[2].ended()
    findings = {finding["about"]: finding for finding in json.loads(out)["findings"]}
    assert findings["gaps"]["level"] == "ok", out
    assert findings["kv events"]["text"].startswith("8,000 messages from "), (
        "all heard; how many nodes the sample shows"
    )
    _, out, _ = await commands[3].ended()
    top = json.loads(out)
    assert top["decoded"] < 0.2
    assert {row["view"] for row in top["nodes"]} == {"sampled"}
    _, out, err = await commands[0].ended()
    assert 0 < out.count("\n") < 1600
    assert "--sample 0 shows all" in err
    _, out, err = await commands[1].ended()
    assert out.count("\n") == 500
    assert err == ""
    assert server.tell("varz")["slow_consumers"] == 0


@pytest.mark.nats
async def test_check_tells_that_nothing_comes(server: Monitored) -> None:
    code, out, _ = await Command(server.url, "check", "--seconds", "1").ended()
    assert code == 3
    assert "DYN_EVENT_PLANE=nats" in out.splitlines()[0]
    assert out.startswith("fail  bus")


@pytest.mark.nats
async def test_a_bus_that_goes_and_comes_back_is_heard_again(server: Monitored) -> None:
    tail = Command(server.url, "tail", "--json")
    await server.listeners(1)
    await publish(server.url, tool("tool_start", 0, t=0.0))
    await server.delivered(1)
    server.stop()
    await asyncio.sleep(0.5)
    await server.start()
    await server.listeners(1)
    await publish(server.url, tool("tool_end", 1, t=0.0))
    await server.delivered(1)
    tail.stop()
    _, out, err = await tail.ended()
    assert [json.loads(line)["kind"] for line in out.splitlines()] == ["tool_start", "tool_end"]
    assert "the bus went away" in err


async def turns(stack: Stack, *commands: Command) -> None:
    """While the commands run, round by round: two sessions that begin alike, one per worker; and a tool event."""
    body = {"model": stack.model_name, "max_tokens": 8}
    port = int(stack.url.rpartition(":")[2])
    at = 0
    while any(command.running for command in commands):
        at += 1
        await publish(stack.nats_url, tool("tool_start", at, t=0.0, call=f"c{at}"))
        for session in ("a", "b"):
            prompt = f"round {at}: {'you are an agent ' * 20} {session} {'word ' * 30}"
            code, _ = await asyncio.to_thread(
                post_json, port, "/v1/completions", body | {"prompt": prompt}, host="127.0.0.1", timeout_s=30.0
            )
            assert code == 200
        await asyncio.sleep(0.5)


@pytest.mark.dynamo
@pytest.mark.nats
async def test_beside_real_workers_with_no_router_running() -> None:
    pytest.importorskip("dynamo.llm")
    async with Stack("graphs/round_robin_agg:Frontend", workers=2) as stack:
        discovery = ("--discovery", str(stack.assembly.site.discovery))
        check = Command(stack.nats_url, "check", "--seconds", "6", "--json", *discovery)
        top = Command(stack.nats_url, "top", "--seconds", "6", "--once", "--json", *discovery)
        await turns(stack, check, top)
        code, out, _ = await check.ended()
        findings = {finding["about"]: finding["level"] for finding in json.loads(out)["findings"]}
        assert code == 0, out
        assert findings["kv events"] == findings["hashes"] == findings["gaps"] == findings["tool events"] == "ok"
        _, out, _ = await top.ended()
        nodes = json.loads(out)["nodes"]
        assert len(nodes) == 2
        assert all(row["blocks"] > 3 and row["tokens"] == 16 * row["blocks"] for row in nodes)
        assert all(row["kv_use"] is not None and row["gaps"] == 0 for row in nodes)
