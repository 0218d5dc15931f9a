# SPDX-License-Identifier: Apache-2.0
"""The replay against a small frontend of our own, over real sockets."""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import cli, replay
from benchmarks.agent import Agent, Ask, Tally
from benchmarks.http_stream import Target, events, get
from benchmarks.router_status import Reading, RouterStatus
from benchmarks.traces import RecordedTurn, Session, ToolCall
from tao_dynamo.errors import ConfigError, StackError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tool_hooks.events import ToolEvent


@dataclass
class Frontend:
    """Answers completions with the ids 7000, 7001, ... and remembers what it was asked."""

    port: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)
    sessions: list[tuple[str, bool]] = field(default_factory=list)
    running: int = 0
    most_at_once: int = 0
    break_off_at: int | None = None
    status: int = 200
    tell_ids: bool = True
    hang: bool = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
        if head[0].startswith("GET"):
            pages = {"/v1/models": {"data": [{"id": "tiny"}]}, "/engine/tao/status": STATUS}
            path = head[0].split()[1]
            body = METRICS.encode() if path == "/metrics" else json.dumps(pages.get(path, {})).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
            return
        request = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.asked.append(request)
        self.sessions.append((headers["x-dynamo-session-id"], "x-dynamo-session-final" in headers))
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            await self._stream(request, writer)
        finally:
            self.running -= 1

    async def _stream(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if self.hang:
            await asyncio.sleep(60)
        if self.status != 200:
            writer.write(b"HTTP/1.1 %d No\r\ncontent-length: 5\r\n\r\nwhy:x" % self.status)
            return
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        n = request["max_tokens"]
        for i in range(n):
            if i == self.break_off_at:
                writer.transport.abort()
                return
            extra = {"completion_token_ids": [7000 + i]} if self.tell_ids else None
            await self._send(writer, {"choices": [{"text": "x"}], "nvext": extra})
        usage = {"prompt_tokens": len(request["prompt"]), "completion_tokens": n}
        usage["prompt_tokens_details"] = {"cached_tokens": len(request["prompt"]) // 2}
        await self._send(writer, {"choices": [], "usage": usage})
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        await writer.drain()

    @staticmethod
    async def _send(writer: asyncio.StreamWriter, event: dict[str, Any]) -> None:
        text = b"data: " + json.dumps(event).encode() + b"\n\n"
        half = len(text) // 2  # an event may be spread over chunks
        for part in (text[:half], text[half:]):
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
            await writer.drain()
            await asyncio.sleep(0)


@asynccontextmanager
async def frontend(**how: Any) -> AsyncIterator[Frontend]:
    front = Frontend(**how)
    server = await asyncio.start_server(front.serve, "127.0.0.1", 0)
    front.port = server.sockets[0].getsockname()[1]
    try:
        yield front
    finally:
        server.close()
        await server.wait_closed()


class Events:
    def __init__(self) -> None:
        self.seen: list[ToolEvent] = []

    def publish(self, event: ToolEvent, /) -> bool:
        self.seen.append(event)
        return True


def session(name: str, turns: int = 3, tool_s: float = 0.0) -> Session:
    tool = ToolCall("bash", ("cd", "pytest"), "pytest -x", tool_s, True)
    recorded: list[RecordedTurn] = []
    kept = 0
    for i in range(turns):
        recorded.append(RecordedTurn(100 + 50 * i, 10, kept, 0.0, tool))
        kept = 110 + 50 * i
    return Session(name, "test", "harness", tuple(recorded), shared_tokens=40)


def agent(
    front: Frontend, tally: Tally, sink: Events | None = None, *, timeout: float = 20.0, scale: float = 1.0
) -> Agent:
    ask = Ask(Target(f"http://127.0.0.1:{front.port}", "/v1/completions"), "tiny", timeout, (300, 2300))
    return Agent(ask, tally, time_scale=scale, run_id="run", sink=sink)


async def test_a_session_grows_token_exactly_and_closes_itself() -> None:
    tally, sink = Tally([], []), Events()
    async with frontend() as front:
        await agent(front, tally, sink).run(session("s"))
    assert [t.error for t in tally.turns] == [None, None, None]
    prompts = [a["prompt"] for a in front.asked]
    assert [len(p) for p in prompts] == [100, 150, 200]
    for before, after in itertools.pairwise(prompts):
        assert after[: len(before) + 10] == before + list(range(7000, 7010))
    assert front.sessions == [("run-s", False), ("run-s", False), ("run-s", True)]
    assert [(t.prompt_tokens, t.output_tokens, t.cached_tokens) for t in tally.turns] == [
        (100, 10, 50),
        (150, 10, 75),
        (200, 10, 100),
    ]
    assert all(t.sent_s <= t.first_s <= t.ended_s for t in tally.turns)
    assert tally.sessions[0].done
    assert tally.inexact == 0
    # The last turn's tool leads nowhere and does not run.
    assert [e.kind for e in sink.seen] == ["tool_start", "tool_end"] * 2
    assert {e.session_id for e in sink.seen} == {"run-s"}
    assert sink.seen[0].command == "pytest -x"


async def test_a_scaled_tool_keeps_its_command_to_itself() -> None:
    # Its text may tell a time (`sleep 5`) that the scaled call does not take.
    tally, sink = Tally([], []), Events()
    async with frontend() as front:
        await agent(front, tally, sink, scale=0.5).run(session("s"))
    assert (sink.seen[0].command, sink.seen[0].tool_key) == (None, "pytest")


async def test_no_more_sessions_at_once_than_asked_for() -> None:
    tally = Tally([], [])
    async with frontend() as front:
        await replay.run_closed_loop(agent(front, tally), [session(f"s{i}", 2) for i in range(12)], 5)
        assert len(tally.sessions) == 12
        assert 2 <= front.most_at_once <= 5


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"status": 503}, "HTTP 503: why:x"),
        ({"break_off_at": 4}, "broke off"),
        ({"hang": True}, "no complete answer within 0.3 s"),
    ],
)
async def test_a_failed_turn_ends_its_session_and_is_told(how: dict[str, Any], text: str) -> None:
    tally = Tally([], [])
    async with frontend(**how) as front:
        await agent(front, tally, timeout=0.3).run(session("s"))
    assert len(tally.turns) == 1
    assert text in (tally.turns[0].error or "")
    assert not tally.sessions[0].done


async def test_ids_that_are_not_told_are_counted() -> None:
    tally = Tally([], [])
    async with frontend(tell_ids=False) as front:
        await agent(front, tally).run(session("s", 2))
    assert tally.inexact == 2
    assert [t.output_tokens for t in tally.turns] == [10, 10]


async def test_nobody_listens() -> None:
    async with frontend() as front:
        target = Target(f"http://127.0.0.1:{front.port}", "/v1/completions")
    with pytest.raises(StackError, match="cannot connect"):
        async for _ in events(target, b"{}", {}):
            pass
    with pytest.raises(StackError, match="no answer"):
        await get(target)


def in_thread(call: Callable[[], int]) -> Any:
    return asyncio.to_thread(call)


async def test_the_command_writes_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    async with frontend() as front:
        base = f"http://127.0.0.1:{front.port}"
        args = ["replay", "--url", base, "--status-url", f"{base}/engine/tao/status", "--sessions", "3"]
        args += ["--max-turns", "2", "--time-scale", "0", "--json", str(out), "--max-prompt-tokens", "400"]
        code = await in_thread(lambda: cli.main(args))
    assert code == 0
    result = json.loads(out.read_text())
    assert (result["turns_done"], result["turns_failed"], result["sessions_done"]) == (6, 0, 3)
    assert result["cache_hit_share"] == pytest.approx(0.5, abs=0.01)
    assert (result["pauses"], result["wait_max_s"]) == (0, 2.5)
    assert result["model"] == "tiny"
    keys = "latency_mean_s ttft_mean_s ttft_p99_s turn_p95_s decode_tokens_per_s pause_wait_mean_s wait_max_s solves"
    assert set(keys.split()) <= set(result)
    shown = capsys.readouterr().out
    assert "tool and think times x 0;" in shown
    assert "contexts x 0.0" in shown


def test_bad_usage_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    cases = [
        (["replay", "--url", "ftp://x"], "--url: got 'ftp://x'"),
        (["replay", "--json", str(tmp_path / "no" / "x.json")], "--json: got"),
        (["replay", "--source", str(tmp_path / "none")], "a file or folder that exists"),
        (["nonsense"], "unknown command 'nonsense'"),
    ]
    for args, text in cases:
        assert cli.main(args) == 2
        error = capsys.readouterr().err
        assert text in error
        assert error.count("\n") == 1
    for flag, value in (("--sessions", "0"), ("--time-scale", "nan"), ("--vocabulary", "9:3"), ("--concurrency", "x")):
        with pytest.raises(SystemExit) as caught:
            replay.main([flag, value])
        assert caught.value.code == 2
        assert repr(value) in capsys.readouterr().err


def test_an_address_without_a_good_port() -> None:
    with pytest.raises(ConfigError, match="--url"):
        Target("http://x:99999", "/")


STATUS = {
    "pauses": 3,
    "restarts": 3,
    "plans_applied": 4,
    "core": {"plans_optimal": 3, "names": "x"},
    "solves": {"by_method": {"dp": 4}, "total": 4},
    "tool_events": {"tool_start": 5, "tool_end": 5},
    "waiting": [{"waited_s": 2.5}, {"waited_s": None}],
}
METRICS = """# HELP dynamo_component_tao_router_pause_seconds x
dynamo_component_tao_router_pause_seconds_sum 6.0
dynamo_component_tao_router_pause_seconds_count 3.0
dynamo_component_tao_router_solve_seconds_bucket{le="0.1"} 4.0
dynamo_component_tao_router_solve_seconds_sum 0.02
dynamo_component_tao_router_solve_seconds_count 4.0
"""


async def test_the_routers_figures_are_what_happened_meanwhile() -> None:
    async with frontend() as front:
        status = RouterStatus(Target(f"http://127.0.0.1:{front.port}", "/engine/tao/status"))
        before = Reading({"pauses": 1, "solves": 1, "pause_seconds_sum": 2.0, "pause_seconds_count": 1})
        watching = asyncio.create_task(status.watch())
        await asyncio.sleep(0.1)
        watching.cancel()
        got = status.figures(before, await status.read())
    assert (got["pauses"], got["restarts"], got["solves"], got["tool_events_received"]) == (2, 3, 3, 10)
    assert (got["pause_wait_mean_s"], got["solve_mean_ms"]) == (2.0, pytest.approx(5.0))
    assert (got["optimal_share"], got["wait_max_s"], got["wait_mean_s"]) == (0.75, 2.5, None)


async def test_a_router_that_tells_nothing() -> None:
    async with frontend() as front:
        status = RouterStatus(Target(f"http://127.0.0.1:{front.port}", "/other"))
        got = status.figures(Reading(), await status.read())
    assert got["pauses"] is None
    assert got["optimal_share"] is None
