# SPDX-License-Identifier: Apache-2.0
"""TAO in a real graph: Dynamo's frontend, mock workers, NATS, and the official client."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from launch.health import post_json
from launch.stack import Stack
from tool_hooks.call import ToolCall
from tool_hooks.nats_wire import NatsOptions
from tool_hooks.publisher import Publisher

pytestmark = [pytest.mark.dynamo, pytest.mark.timeout(90)]

BLOCKS = 256
ROOM = 16 * BLOCKS
"""Tokens of a worker."""
FINAL = {"x-dynamo-session-final": "true"}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    config = {
        "Worker": {"num-gpu-blocks-override": BLOCKS, "speedup-ratio": 20},
        "TaoRouter": {"tao-max-waiting": 200},
    }
    with Stack("graphs/tao_agg:Frontend", workers=2, config=config) as running:
        yield running


def prompt(session: int, tokens: int) -> list[int]:
    return [100 + (session * 131 + i * 7) % 3000 for i in range(tokens)]


def headers(session: str | None, **more: str) -> dict[str, str]:
    return ({"x-dynamo-session-id": session} if session else {}) | more


async def turn(
    stack: Stack, client: httpx.AsyncClient, session: str | None, ids: list[int], tokens: int = 4, **more: str
) -> Any:
    body = {"model": stack.model_name, "prompt": ids, "max_tokens": tokens, "ignore_eos": True}
    answer = await client.post(f"{stack.url}/v1/completions", json=body, headers=headers(session, **more), timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def served(stack: Stack, client: httpx.AsyncClient, session: str, ids: list[int]) -> Any:
    """A turn through a router that has just been started: the frontend hears of it, and of the last one's end, late."""
    body = {"model": stack.model_name, "prompt": ids, "max_tokens": 4}
    until = time.monotonic() + 30
    while True:
        answer = await client.post(f"{stack.url}/v1/completions", json=body, headers=headers(session), timeout=10)
        if answer.status_code == 200:
            return answer.json()
        assert time.monotonic() < until, answer.text
        await asyncio.sleep(0.2)


def at_rest(status: dict[str, Any]) -> bool:
    """No turn waits or runs, and no session that has a turn is left over."""
    sessions = status["sessions"]
    return status["turns"]["live"] == 0 and sessions["running"] == sessions["waiting"] == 0


def wait_for(stack: Stack, condition: Callable[[dict[str, Any]], bool], timeout_s: float = 10.0) -> dict[str, Any]:
    until = time.monotonic() + timeout_s
    while True:
        status: dict[str, Any] = stack.status()
        if condition(status):
            return status
        assert time.monotonic() < until, status
        time.sleep(0.05)


@pytest.mark.parametrize("session", [None, "openai"])
@pytest.mark.parametrize("stream", [False, True])
def test_the_official_client_gets_right_answers(stack: Stack, stream: bool, session: str | None) -> None:
    client = openai.OpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0)
    messages: Any = [{"role": "user", "content": "Tell me a story"}]
    with client:
        if not stream:
            answer = client.chat.completions.create(
                model=stack.model_name, messages=messages, max_tokens=12, extra_headers=headers(session)
            )
            assert answer.choices[0].finish_reason in ("length", "stop")
            assert answer.usage is not None
            assert answer.usage.completion_tokens <= 12
            assert answer.choices[0].message.content
            return
        chunks = list(
            client.chat.completions.create(
                model=stack.model_name,
                messages=messages,
                max_tokens=12,
                stream=True,
                stream_options={"include_usage": True},
                extra_headers=headers(session),
            )
        )
    ends = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason]
    assert len(ends) == 1
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    usages = [chunk.usage for chunk in chunks if chunk.usage]
    assert len(usages) == 1
    assert usages[0].completion_tokens <= 12


async def test_a_sessions_next_turn_finds_its_cache(stack: Stack) -> None:
    async with httpx.AsyncClient() as client:
        await turn(stack, client, "growing", prompt(1, 160))
        again = await turn(stack, client, "growing", prompt(1, 320))
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 160
    view = wait_for(stack, at_rest)
    assert view["credit"]["turns_with_credit"] >= 1
    code, explained = post_json(stack.system_port("tao-router"), "/engine/tao/explain", {"session": "growing"})
    assert code == 200
    assert explained["state"] == "idle"
    assert list(explained["credits"]) == [explained["node"]]


def test_the_endpoints_answer_as_dynamos_own_router_does(stack: Stack) -> None:
    command = [sys.executable, "-m", "tests.tao_dynamo.ask_endpoints", stack.namespace, stack.worker_namespace]
    env = {**os.environ, **stack.env, "DYN_LOG": "off"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    nodes = {int(node["node"].split("/")[0]) for node in stack.status()["nodes"]}
    assert seen["best_worker_id"] in nodes
    assert seen["scores"] == seen["dynamos_scores"]
    assert {row["worker_id"] for row in seen["scores"]["workers"]} == nodes
    assert seen["status"]["version"] == stack.status()["version"]
    assert "not known" in seen["explained"]["error"]


async def test_a_final_turn_is_served_and_ends_the_session(stack: Stack) -> None:
    async with httpx.AsyncClient() as client:
        await turn(stack, client, "ends", prompt(2, 64))
        body = {"model": stack.model_name, "prompt": prompt(2, 96), "max_tokens": 3, "ignore_eos": True}
        final = headers("ends", **FINAL)
        for _ in range(2):
            answer = await client.post(f"{stack.url}/v1/completions", json=body, headers=final)
            assert answer.status_code == 200
            assert answer.json()["usage"]["completion_tokens"] == 3
    _, explained = post_json(stack.system_port("tao-router"), "/engine/tao/explain", {"session": "ends"})
    assert "not known" in explained["error"]


async def test_a_session_that_fits_nowhere_is_told_so(stack: Stack) -> None:
    async with httpx.AsyncClient() as client:
        body = {"model": stack.model_name, "prompt": prompt(3, ROOM + 1), "max_tokens": 4}
        answer = await client.post(f"{stack.url}/v1/completions", json=body, headers=headers("whale"), timeout=10)
    assert answer.status_code == 400
    assert str(ROOM) in answer.json()["message"]


async def test_clients_that_leave_in_mid_stream_or_while_waiting_leave_nothing_behind(stack: Stack) -> None:
    async def leave(number: int, client: httpx.AsyncClient) -> None:
        body = {
            "model": stack.model_name,
            "prompt": prompt(100 + number, 1500),
            "max_tokens": 1500,
            "stream": True,
            "ignore_eos": True,
            "nvext": {"agent_hints": {"osl": 1500}},
        }
        async with client.stream(
            "POST", f"{stack.url}/v1/completions", json=body, headers=headers(f"leaver-{number}")
        ) as answer:
            async for _ in answer.aiter_bytes():
                await asyncio.sleep(3600)

    async with httpx.AsyncClient(timeout=60) as client:
        tasks = [asyncio.create_task(leave(number, client)) for number in range(8)]
        await asyncio.to_thread(wait_for, stack, lambda s: s["sessions"]["waiting"] >= 4 and s["sessions"]["running"])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        status = await asyncio.to_thread(wait_for, stack, at_rest)
        assert status["turns"]["cancelled_turns"] >= 8
        # The room is free again: a big one is served at once.
        await turn(stack, client, "after", prompt(9, 2000))


async def replay(
    stack: Stack, sessions: int, turns: int, publisher: Publisher, *, name: str, tool_s: float = 0.3
) -> list[Exception]:
    """Agents that grow their prompt and run tools between turns; returns what failed."""
    failed: list[Exception] = []

    async def agent(number: int, client: httpx.AsyncClient) -> None:
        for step in range(turns):
            try:
                final = FINAL if step == turns - 1 else {}
                await turn(stack, client, f"{name}-{number}", prompt(1000 + number, 320 + 160 * step), 8, **final)
            except (httpx.HTTPError, AssertionError) as error:
                failed.append(error)
            if step == turns - 1:
                return
            call = ToolCall("bash", session_id=f"{name}-{number}", declared_s=tool_s, publisher=publisher)
            call.start()
            await asyncio.sleep(tool_s)
            call.end()

    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=100)) as client:
        await asyncio.gather(*(agent(number, client) for number in range(sessions)))
    return failed


@pytest.fixture
def publisher(stack: Stack) -> Iterator[Publisher]:
    made = Publisher(options=NatsOptions(servers=(stack.nats_url,)), namespace=stack.namespace)
    yield made
    made.close()


async def test_more_sessions_than_fit_are_paused_and_all_come_through(stack: Stack, publisher: Publisher) -> None:
    # Until its process has its kernels, plans are best-fit decreasing's; the first start of all compiles them.
    before = await asyncio.to_thread(wait_for, stack, lambda s: s["solves"]["warm"], 75.0)
    failed = await replay(stack, 24, 4, publisher, name="crowd", tool_s=0.6)
    assert not failed
    publisher.flush()
    after = await asyncio.to_thread(wait_for, stack, at_rest)
    assert after["pauses"] > before["pauses"]
    assert after["restarts"] > before["restarts"]
    assert after["plans_applied"] > before["plans_applied"]
    assert after["tool_events"]["tool_start"] - before["tool_events"].get("tool_start", 0) == 72
    assert after["tool_events"]["tool_end"] - before["tool_events"].get("tool_end", 0) == 72
    assert after["credit"]["turns_with_credit"] > before["credit"]["turns_with_credit"]
    assert not after["faults"]
    assert after["solves"]["cpu_solves"] > before["solves"]["cpu_solves"]
    async with httpx.AsyncClient() as client:
        metrics = (await client.get(f"http://127.0.0.1:{stack.system_port('tao-router')}/metrics")).text
    assert "dynamo_component_tao_router_solves_total" in metrics
    assert "crowd" not in metrics


async def test_the_bus_goes_away_and_comes_back_in_mid_run(stack: Stack, publisher: Publisher) -> None:
    run = asyncio.create_task(replay(stack, 8, 8, publisher, name="outage"))
    await asyncio.sleep(0.5)
    await asyncio.to_thread(stack.stop, "nats")
    await asyncio.to_thread(wait_for, stack, lambda s: not s["bus"]["connected"])
    assert all(node["stale"] for node in stack.status()["nodes"])
    await asyncio.sleep(1.0)
    await asyncio.to_thread(stack.start, "nats")
    assert not await run
    status = await asyncio.to_thread(
        wait_for, stack, lambda s: s["bus"]["connected"] and not s["bus"]["stale_nodes"] and at_rest(s), 20.0
    )
    assert status["bus"]["resyncs"] >= 4


async def test_a_killed_worker_costs_no_more_than_what_it_was_serving(stack: Stack, publisher: Publisher) -> None:
    run = asyncio.create_task(replay(stack, 8, 6, publisher, name="killed"))
    await asyncio.sleep(0.6)
    await asyncio.to_thread(stack.kill, "worker-0")
    failed = await run
    assert len(failed) <= 4, failed
    await asyncio.to_thread(wait_for, stack, lambda s: at_rest(s) and len(s["nodes"]) == 2, 30.0)


async def test_a_worker_that_hangs_keeps_no_turn_once_its_lease_is_over(stack: Stack) -> None:
    url = f"{stack.url}/v1/completions"
    begun: list[int] = []

    async def stream(number: int, client: httpx.AsyncClient) -> str:
        body = {"model": stack.model_name, "prompt": prompt(700 + number, 64), "max_tokens": 1500, "stream": True}
        last = ""
        async with client.stream(
            "POST", url, json=body | {"ignore_eos": True}, headers=headers(f"stuck-{number}")
        ) as answer:
            async for line in answer.aiter_lines():
                if line and not last:
                    begun.append(number)
                last = line or last
        return last

    async with httpx.AsyncClient(timeout=60) as client:
        before = await asyncio.to_thread(wait_for, stack, lambda s: at_rest(s) and len(s["nodes"]) == 2, 30.0)
        streams = [asyncio.create_task(stream(number, client)) for number in range(4)]
        await asyncio.to_thread(wait_for, stack, lambda s: s["sessions"]["running"] == 4)
        for _ in range(1000):
            if len(begun) == 4:
                break
            await asyncio.sleep(0.01)
        stack.kill("worker-0", signal.SIGSTOP)
        try:
            # Some of these go to the hanging worker, which is not known to hang.
            await asyncio.gather(*(turn(stack, client, f"new-{n}", prompt(800 + n, 640), 4) for n in range(4)))
            ends = await asyncio.gather(*streams)
            after = await asyncio.to_thread(wait_for, stack, at_rest)
        finally:
            stack.kill("worker-0")
    assert len(ends) == 4
    assert after["turns"]["displaced_turns"] > before["turns"].get("displaced_turns", 0)
    assert after["turns"]["failed_turns"] > before["turns"].get("failed_turns", 0)
    await asyncio.to_thread(wait_for, stack, lambda s: len(s["nodes"]) == 2, 30.0)


def planners_of(router: int) -> list[int]:
    tasks = Path(f"/proc/{router}/task").iterdir()
    children = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
    return [pid for pid in children if b"planner" in Path(f"/proc/{pid}/cmdline").read_bytes()]


async def test_a_killed_planner_is_replaced_and_no_turn_notices(stack: Stack, publisher: Publisher) -> None:
    planners = planners_of(stack.pids()["tao-router"])
    run = asyncio.create_task(replay(stack, 16, 3, publisher, name="planless"))
    await asyncio.sleep(0.3)
    for pid in planners:
        os.kill(pid, signal.SIGKILL)
    assert planners
    assert not await run
    await asyncio.to_thread(wait_for, stack, lambda s: s["solves"]["restarts"] >= 1 and at_rest(s))


async def test_sigterm_lets_a_running_stream_finish(stack: Stack) -> None:
    async with httpx.AsyncClient(timeout=30) as client:
        body = {
            "model": stack.model_name,
            "prompt": prompt(7, 64),
            "max_tokens": 1500,
            "stream": True,
            "ignore_eos": True,
        }
        url = f"{stack.url}/v1/completions"
        async with client.stream("POST", url, json=body, headers=headers("last")) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            stopping = asyncio.create_task(asyncio.to_thread(stack.stop, "tao-router"))
            rest = [line async for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert '"finish_reason":"length"' in rest[-2]
        await stopping
    log = stack.log("tao-router")
    assert "event=stopping signal=SIGTERM live_turns=1" in log
    assert "level=error" not in log
    await asyncio.to_thread(stack.start, "tao-router")


async def test_a_router_that_is_killed_finds_its_sessions_caches_again(stack: Stack) -> None:
    async with httpx.AsyncClient() as client:
        await served(stack, client, "survivor", prompt(50, 160))
        await asyncio.to_thread(stack.kill, "tao-router")
        await asyncio.to_thread(stack.wait_restarted, "tao-router", 1, 30.0)
        assert stack.status()["index"]["resident"] >= 10
        assert not stack.status()["bus"]["stale_nodes"]
        answer = await served(stack, client, "survivor", prompt(50, 320))
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 160
