# SPDX-License-Identifier: Apache-2.0
"""A real graph on mock workers."""

from __future__ import annotations

import time

import pytest

from launch.health import post_json
from launch.stack import Stack
from tao_dynamo.errors import StackError
from tests.launch.conftest import alive

pytestmark = pytest.mark.dynamo


def ask(stack: Stack, prompt: str, tokens: int = 4) -> tuple[int, str]:
    body = {"model": stack.model_name, "prompt": prompt, "max_tokens": tokens}
    code, answer = post_json(stack.assembly.site.http_port, "/v1/completions", body)
    return code, answer["choices"][0]["text"] if code == 200 else str(answer)


def ask_until_served(stack: Stack, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while ask(stack, "hello")[0] != 200:
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.parametrize("graph", ["graphs/kv_agg:Frontend", "graphs/round_robin_agg:Frontend"])
def test_a_graph_answers_and_goes_without_a_trace(graph: str) -> None:
    lines: list[str] = []
    with Stack(graph, workers=2, tell=lines.append, config={"Worker": {"num-gpu-blocks-override": 256}}) as stack:
        code, text = ask(stack, "Hello there", 8)
        assert code == 200
        assert len(text.split()) >= 1
        pids = stack.pids()
        assert sorted(pids) == ["frontend", "nats", "worker-0", "worker-1"]
        assert all(alive(pid) for pid in pids.values())
        run_dir = stack.run_dir
        assert run_dir.is_dir()
    assert not any(alive(pid) for pid in pids.values())
    assert not run_dir.exists()
    assert len(lines) == 4


def test_workers_and_nats_come_back() -> None:
    with Stack("graphs/round_robin_agg:Frontend", workers=1) as stack:
        first = stack.pids()["worker-0"]
        stack.kill("worker-0")
        stack.wait_restarted("worker-0", timeout_s=20)
        assert stack.pids()["worker-0"] != first
        # The dead worker's entry vanishes from discovery after some seconds.
        ask_until_served(stack, 30.0)
        stack.stop("nats")
        assert "nats" not in stack.pids()
        stack.start("nats")
        ask_until_served(stack, 10.0)


async def test_it_can_be_used_in_coroutines() -> None:
    async with Stack("graphs/round_robin_agg:Frontend", workers=1) as stack:
        assert stack.health()["status"] == "healthy"
        assert stack.env["NATS_SERVER"] == stack.nats_url
        pids = stack.pids().values()
    assert not any(alive(pid) for pid in pids)


def test_a_failed_start_leaves_nothing_but_the_logs() -> None:
    stack = Stack("graphs/round_robin_agg:Frontend", config={"Frontend": {"router-mode": "nonsense"}})
    with pytest.raises(StackError, match=r"frontend: exit code 2: .*invalid choice: 'nonsense'"), stack:
        pass
    assert "invalid choice" in stack.log("frontend")
    with pytest.raises(StackError, match="not running"):
        stack.pids()


def test_two_stacks_do_not_see_each_other() -> None:
    with (
        Stack("graphs/round_robin_agg:Frontend", workers=1, model_name="one") as one,
        Stack("graphs/round_robin_agg:Frontend", workers=1, model_name="two") as two,
    ):
        assert ask(one, "hello")[0] == 200
        assert ask(two, "hello")[0] == 200
        for stack in (one, two):
            instances = [i for i in stack.health()["instances"] if i["endpoint"] == "generate"]
            assert len(instances) == 1
