# SPDX-License-Identifier: Apache-2.0
"""The parts of the fault, soak and hop benchmarks that need no graph."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable

import pytest

from benchmarks import cli, faults, hop, soak
from benchmarks.fleet import Fleet, Shape
from benchmarks.http_stream import Target

pytestmark = pytest.mark.timeout(30)


class Frontend:
    """Answers each turn by ``tokens`` tokens; ``hold`` keeps streams open, ``broken`` makes the next turns fail."""

    def __init__(self) -> None:
        self.sessions: list[tuple[str, bool]] = []
        self.tokens = 64
        self.broken = 0
        self.hold: asyncio.Event | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        lines = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        await reader.readexactly(int(lines["content-length"]))
        self.sessions.append((lines["x-dynamo-session-id"], "x-dynamo-session-final" in lines))
        if self.broken:
            self.broken -= 1
            writer.write(b"HTTP/1.1 503 away\r\ncontent-length: 4\r\n\r\naway")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            if self.hold is not None:
                await writer.drain()
                await self.hold.wait()
            usage = json.dumps({"choices": [], "usage": {"completion_tokens": self.tokens}})
            writer.write(f"data: {usage}\n\ndata: [DONE]\n\n".encode())
        writer.close()


@pytest.fixture
async def frontend() -> AsyncIterator[tuple[Frontend, Target]]:
    made = Frontend()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    yield made, Target(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "/v1/completions")
    server.close()
    await asyncio.sleep(0.01)


async def until(condition: Callable[[], object]) -> None:
    """Let everything run until the condition holds."""
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came true")


async def test_agents_go_through_their_sessions_and_end_them(frontend: tuple[Frontend, Target]) -> None:
    made, target = frontend
    fleet = Fleet(target, "m", Shape(agents=3, turns=4, tool_s=0.01))
    await fleet.run(rounds=2)
    assert len(fleet.turns) == 3 * 4 * 2
    assert all(turn.error is None and turn.tokens == 64 for turn in fleet.turns)
    assert sum(final for _, final in made.sessions) == 6
    assert fleet.in_flight == {}


async def test_a_turn_that_broke_is_kept_and_tried_again(frontend: tuple[Frontend, Target]) -> None:
    made, target = frontend
    made.broken = 1
    fleet = Fleet(target, "m", Shape(agents=1, turns=2, tool_s=0.01))
    await fleet.run(rounds=1)
    assert [turn.error is None for turn in fleet.turns] == [False, True, True]
    assert "503" in (fleet.turns[0].error or "")
    made.tokens = 3
    short = Fleet(target, "m", Shape(agents=1, turns=1, tool_s=0.01))
    running = asyncio.create_task(short.run(rounds=1))
    await until(lambda: short.turns)
    made.tokens = 64
    await running
    assert short.turns[0].error == "3 tokens came instead of 64"


async def test_a_client_can_be_made_to_hang_up(frontend: tuple[Frontend, Target]) -> None:
    made, target = frontend
    made.hold = asyncio.Event()
    fleet = Fleet(target, "m", Shape(agents=2, turns=1, tool_s=0.01))
    assert not fleet.leave(random.Random(0))
    running = asyncio.create_task(fleet.run(rounds=1))
    await until(lambda: len(made.sessions) == 2)
    assert fleet.leave(random.Random(0))
    made.hold.set()
    await running
    assert sum(turn.left for turn in fleet.turns) == 1
    assert all(turn.error is None for turn in fleet.turns)


async def test_a_fleet_that_is_cancelled_ends(frontend: tuple[Frontend, Target]) -> None:
    made, target = frontend
    made.hold = asyncio.Event()
    running = asyncio.create_task(Fleet(target, "m", Shape(agents=2)).run())
    await until(lambda: len(made.sessions) == 2)
    running.cancel()
    done, _ = await asyncio.wait((running,), timeout=10)
    assert done
    made.hold.set()


@pytest.mark.parametrize(("command", "flag"), [("faults", "--faults"), ("hop", "--ways")])
def test_what_is_not_known_is_refused_by_name(command: str, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, flag, "nonsense"]) == 2
    assert f"tao-bench {command}: {flag}" in capsys.readouterr().err


def test_only_what_was_in_flight_on_the_killed_part_may_fail() -> None:
    assert faults.Report("worker", in_flight=4, failed=4).lost == 0
    assert faults.Report("worker", in_flight=4, failed=6).lost == 2
    assert faults.Report("nats", failed=1).lost == 1


def test_what_is_left_over_is_named() -> None:
    page = {
        "sessions": {"running": 0, "waiting": 1},
        "turns": {"live": 0},
        "nodes": [{"reserved": 16}, {"reserved": 0}],
        "paused_without_turn": 0,
    }
    assert soak._left_over(page) == {"sessions waiting": 1, "reserved tokens": 16}
    assert not faults.at_rest(page)
    assert faults.at_rest(page | {"sessions": {"running": 0, "waiting": 0}})


def test_each_process_of_a_hop_is_counted_by_its_part() -> None:
    pids = {"nats": 1, "worker-0": 2, "worker-1": 3, "tao-router": 4, "frontend": 5}
    assert hop._parts(pids, "tao-router") == {"other": [1], "worker": [2, 3], "router": [4], "frontend": [5]}


def test_the_table_of_hops_shows_each_way_beside_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    def cell(graph: str, wall_s: float) -> dict[str, object]:
        return {
            "graph": graph,
            "tokens": 64,
            "concurrency": 32,
            "turns": 10,
            "output_tokens": 640,
            "wall_s": wall_s,
            "first_s": [0.001] * 10,
            "total_s": [0.002] * 10,
            "events": 100,
            "cpu_s": {"router": 0.0064},
        }

    cells = [cell("embedded KV router", seconds) for seconds in (1.0, 2.0, 1.0)]
    cells += [cell("TAO", seconds) for seconds in (2.0, 2.0, 1.25)]
    hop._table((64, 32, 10), cells, ["embedded KV router", "bare hop", "TAO"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[-5:] == ["client", "frontend", "router", "worker", "other"]
    assert [line.split()[0] for line in lines[3:]] == ["embedded", "TAO"]
    assert lines[-1].split()[5:] == ["320", "0.80", "0.50", "1.00", "10.0", "0.0", "0.0", "10.0", "0.0", "0.0"]
