# SPDX-License-Identifier: Apache-2.0
"""Turns that come in without Dynamo's server, in a real graph."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from launch.stack import Stack
from tests.tao_dynamo.ingress_world import eventually
from tests.tao_dynamo.test_graph import at_rest, headers, prompt, served, turn, wait_for

pytestmark = [pytest.mark.dynamo, pytest.mark.timeout(90)]

CONFIG: dict[str, dict[str, Any]] = {"Worker": {"num-gpu-blocks-override": 256, "speedup-ratio": 5}}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with Stack("graphs/tao_agg:Frontend", workers=1, config=CONFIG) as running:
        yield running


def records(stack: Stack) -> dict[str, str]:
    """Where discovery says that the router's endpoints take requests: host:port by endpoint."""
    folder = Path(stack.env["DYN_FILE_KV"]) / "v1/instances"
    found = [json.loads(path.read_bytes()) for path in folder.iterdir()]
    ours = [record for record in found if record["namespace"] == stack.namespace]
    return {record["endpoint"]: record["transport"]["tcp"].partition("/")[0] for record in ours}


def events(stack: Stack, name: str) -> list[str]:
    return re.findall(rf"event={name} (.*)", stack.log("tao-router"))


def body(stack: Stack, ids: list[int], tokens: int) -> dict[str, Any]:
    return {"model": stack.model_name, "prompt": ids, "max_tokens": tokens, "stream": True, "ignore_eos": True}


async def test_turns_come_in_directly_and_all_else_by_dynamos_server(stack: Stack) -> None:
    await eventually(lambda: events(stack, "turns_direct"))
    (said,) = events(stack, "turns_direct")
    found = records(stack)
    ours = found.pop("generate")
    assert said == "host={} port={}".format(*ours.rsplit(":", 1))
    assert ours not in found.values()
    assert len(set(found.values())) == 1
    async with httpx.AsyncClient() as client:
        await asyncio.gather(*(turn(stack, client, f"s{number}", prompt(number, 64), 20) for number in range(8)))
    status = wait_for(stack, at_rest)
    assert status["turns"].get("failed_turns", 0) == 0
    assert not events(stack, "request_broke")


async def test_a_frontend_started_later_finds_them(stack: Stack) -> None:
    before = records(stack)
    await asyncio.to_thread(stack.restart, "frontend")
    assert records(stack) == before
    async with httpx.AsyncClient() as client:
        await served(stack, client, "later", prompt(20, 64))


async def test_a_client_that_hangs_up_in_mid_stream_frees_its_turn(stack: Stack) -> None:
    url = f"{stack.url}/v1/completions"
    async with httpx.AsyncClient(timeout=60) as client:
        before = await asyncio.to_thread(wait_for, stack, at_rest)
        asked = body(stack, prompt(30, 64), 3000)
        async with client.stream("POST", url, json=asked, headers=headers("hangs-up")) as answer:
            await anext(answer.aiter_lines())
            assert stack.status()["turns"]["live"] == 1
        after = await asyncio.to_thread(wait_for, stack, at_rest)
    assert after["turns"]["cancelled_turns"] == before["turns"].get("cancelled_turns", 0) + 1


async def test_a_frontend_that_is_killed_leaves_no_turn_behind(stack: Stack) -> None:
    url = f"{stack.url}/v1/completions"
    async with httpx.AsyncClient(timeout=60) as client:
        asked = body(stack, prompt(31, 64), 3000)
        async with client.stream("POST", url, json=asked, headers=headers("orphan")) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            assert stack.status()["turns"]["live"] == 1
            stack.kill("frontend")
            with pytest.raises(httpx.HTTPError):
                _ = [line async for line in lines]
        await asyncio.to_thread(wait_for, stack, at_rest)
        await asyncio.to_thread(stack.wait_restarted, "frontend", 1, 30.0)
        await served(stack, client, "orphan", prompt(32, 64))


async def test_a_client_that_does_not_read_delays_no_other_and_gets_all(stack: Stack) -> None:
    url = f"{stack.url}/v1/completions"
    async with httpx.AsyncClient(timeout=60) as client:
        asked = body(stack, prompt(40, 64), 600)
        async with client.stream("POST", url, json=asked, headers=headers("reads-late")) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            await turn(stack, client, "other", prompt(41, 64), 20)
            await asyncio.to_thread(wait_for, stack, at_rest, 30.0)
            rest = [line async for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert '"finish_reason":"length"' in rest[-2]


async def test_a_router_stopped_in_mid_turn_finishes_it_and_then_is_not_to_be_found(stack: Stack) -> None:
    url = f"{stack.url}/v1/completions"
    async with httpx.AsyncClient(timeout=60) as client:
        asked = body(stack, prompt(50, 64), 300)
        async with client.stream("POST", url, json=asked, headers=headers("last")) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            stopping = asyncio.create_task(asyncio.to_thread(stack.stop, "tao-router"))
            await eventually(lambda: events(stack, "stopping"))
            stack.kill("tao-router", signal.SIGTERM)  # told twice, it goes no faster
            rest = [line async for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert '"finish_reason":"length"' in rest[-2]
    await stopping
    assert not records(stack)
    assert not events(stack, "not_drained")
    await asyncio.to_thread(stack.start, "tao-router")
    await eventually(lambda: len(events(stack, "turns_direct")) == 2)


def test_without_it_turns_come_in_by_dynamos_server() -> None:
    config = CONFIG | {"TaoRouter": {"tao-direct-streams": False}}
    with Stack("graphs/tao_agg:Frontend", workers=1, config=config) as stack:
        assert not events(stack, "turns_direct")
        assert len(set(records(stack).values())) == 1
        answer = httpx.post(
            f"{stack.url}/v1/completions",
            json=body(stack, prompt(1, 64), 8) | {"stream": False},
            headers=headers("plain"),
            timeout=60,
        )
        assert answer.status_code == 200
        assert answer.json()["usage"]["completion_tokens"] == 8
        assert wait_for(stack, at_rest)["turns"].get("failed_turns", 0) == 0
