# SPDX-License-Identifier: Apache-2.0
"""Real graphs of other shapes: a worker of several ranks, workers of another model, block size or part of the work."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from launch.health import post_json
from launch.stack import Stack
from tests.tao_dynamo.test_graph import at_rest, prompt, turn, wait_for

pytestmark = [pytest.mark.dynamo, pytest.mark.timeout(90)]

ENGINE = {"num-gpu-blocks-override": 256, "speedup-ratio": 20}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """One worker of two ranks, and two adapters (which the mocker takes for the model itself)."""
    config = {"Worker": {**ENGINE, "data-parallel-size": 2}, "TaoRouter": {"tao-adapters": "a-lora,b-lora"}}
    with Stack("graphs/tao_agg:Frontend", workers=1, config=config) as running:
        yield running


@contextlib.contextmanager
def worker(stack: Stack, *flags: str) -> Iterator[None]:
    """One more mock worker on the endpoint that the router looks at."""
    given = {**ENGINE, "block-size": 16, "model-name": stack.model_name}
    common = [f"--{name}={value}" for name, value in given.items()]
    endpoint = f"--endpoint=dyn://{stack.assembly.site.worker_endpoint}"
    process = subprocess.Popen(
        [sys.executable, "-m", "dynamo.mocker", endpoint, f"--model-path={stack.model_path}", *common, *flags],
        env={**os.environ, **stack.env, "DYN_LOG": "off"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def grow(stack: Stack, sessions: int, name: str) -> list[int]:
    """Three turns of each session, all at once; returns the tokens that each third turn found cached."""

    async def agent(number: int) -> int:
        for step in range(3):
            answer = await turn(stack, client, f"{name}-{number}", prompt(number, 320 + 160 * step), 8)
        cached: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        return cached

    async with httpx.AsyncClient() as client:
        return await asyncio.gather(*(agent(number) for number in range(sessions)))


async def test_each_rank_of_a_worker_is_a_node_whose_cache_is_found_again(stack: Stack) -> None:
    nodes = stack.status()["nodes"]
    assert sorted(node["node"].split("/")[1] for node in nodes) == ["0", "1"]
    assert len({node["node"].split("/")[0] for node in nodes}) == 1
    assert [node["capacity"] for node in nodes] == [4096, 4096]
    # A turn that ran on the other rank would have found nothing there.
    assert await grow(stack, 6, "ranks") == [480] * 6
    status = await asyncio.to_thread(wait_for, stack, at_rest)
    assert [node["sessions"] for node in status["nodes"]] == [3, 3]
    assert status["index"]["nodes"] == 2


async def test_workers_that_this_router_is_not_for_are_named_and_get_nothing(stack: Stack) -> None:
    before = stack.status()["nodes"]
    with (
        worker(stack, "--model-name=another"),
        worker(stack, "--disaggregation-mode=prefill"),
        worker(stack, "--disaggregation-mode=decode"),
        worker(stack, "--block-size=32"),
    ):
        status = await asyncio.to_thread(wait_for, stack, lambda s: len(s["refused_workers"]) == 4, 40.0)
        size, *reasons = sorted(status["refused_workers"].values())
        assert "--router-block-size: got 16, want 32, the worker's block size" in size  # case C7
        assert "it is a decode worker; TAO serves graphs without disaggregation only" in reasons[0]
        assert "it is a prefill worker; TAO serves graphs without disaggregation only" in reasons[1]
        assert f"it serves another; this router is for {stack.model_name}" in reasons[2]
        assert min(await grow(stack, 4, "ours")) >= 480
        assert {n["node"] for n in stack.status()["nodes"]} == {n["node"] for n in before}
        async with httpx.AsyncClient() as client:
            body = {"model": "another", "prompt": prompt(1, 16), "max_tokens": 2}
            answer = await client.post(f"{stack.url}/v1/completions", json=body)
        assert answer.status_code == 404
    assert stack.log("tao-router").count("event=worker_refused") == 4


async def test_adapters_are_asked_for_by_name_and_share_no_blocks(stack: Stack) -> None:
    models = [stack.model_name, "a-lora", "b-lora"]
    ids = prompt(77, 320)
    async with httpx.AsyncClient() as client:
        listed = (await client.get(f"{stack.url}/v1/models")).json()["data"]
        assert sorted(model["id"] for model in listed) == sorted(models)
        for model in models:
            body = {"model": model, "prompt": ids, "max_tokens": 3, "ignore_eos": True}
            session = {"x-dynamo-session-id": f"of-{model}"}
            answer = await client.post(f"{stack.url}/v1/completions", json=body, headers=session)
            assert answer.status_code == 200, answer.text
            assert answer.json()["usage"]["completion_tokens"] == 3
    # The same tokens: announced as the model's, they are no credit of a session that asked for an adapter.
    port = stack.system_port("tao-router")
    seen = [post_json(port, "/engine/tao/explain", {"session": f"of-{model}"})[1]["credits"] for model in models]
    assert [bool(credit) for credit in seen] == [True, False, False]
