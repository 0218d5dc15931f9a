# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads: gauges of what is there, and nothing of what has gone."""

from __future__ import annotations

import asyncio
import dataclasses
import re

import pytest

from kv_events.types import NodeId
from tao_dynamo.core.policy import DEFAULT
from tao_dynamo.shell.metrics import FAMILIES, Metrics
from tao_dynamo.shell.status import status
from tests.tao_dynamo.shell_world import World
from tests.tao_dynamo.test_shell_workers import card


async def test_c12_gauges_of_a_worker_go_with_it() -> None:
    world = World()
    metrics = Metrics(world.sources())
    assert await world.start("s1", 300)
    assert workers_told(metrics) == {"7", "8"}
    world.discovery.live, world.discovery.found = [8, 12], {8: card(64), 12: card(64)}
    world.workers.sync()
    assert workers_told(metrics) == {"8", "12"}
    node = NodeId(12, 0)
    assert f'node_capacity_tokens{{dp_rank="{node.dp_rank}",worker_id="{node.worker_id}"}} 1024.0' in metrics.expose()


async def test_every_gauge_of_a_node_is_told_for_every_node() -> None:
    text = Metrics(World().sources()).expose()
    for name, (_, _, labels) in FAMILIES.items():
        if labels == ("worker_id", "dp_rank"):
            assert set(re.findall(rf'_{name}{{.*worker_id="(\d+)"', text)) == {"7", "8"}, name


@pytest.mark.parametrize(("bound_s", "overdue", "other"), [(0.001, 230, 0), (60.0, 0, 230)])
async def test_all_who_wait_are_counted_however_many_are_listed(bound_s: float, overdue: int, other: int) -> None:
    world = World(dataclasses.replace(DEFAULT, waiting_bound_s=bound_s))
    world.worker.gate = asyncio.Event()
    turns = [world.start(f"s{i}", 700, 200) for i in range(232)]
    await world.until(lambda: world.states()["waiting"] == 230)
    await asyncio.sleep(0.002)
    text = Metrics(world.sources()).expose()
    assert f'waiting_turns{{overdue="true"}} {overdue:.1f}' in text
    assert f'waiting_turns{{overdue="false"}} {other:.1f}' in text
    told = status(world.sources())
    assert len(told["waiting"]) == 200
    assert told["waiting_not_listed"] == 30
    for turn in turns:
        turn.cancel()
    await asyncio.gather(*turns, return_exceptions=True)


def workers_told(metrics: Metrics) -> set[str]:
    return set(re.findall(r'worker_id="(\d+)"', metrics.expose()))
