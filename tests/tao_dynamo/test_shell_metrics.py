# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads: gauges of what is there, and nothing of what has gone."""

from __future__ import annotations

import re

from kv_events.types import NodeId
from tao_dynamo.shell.metrics import FAMILIES, Metrics
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


def workers_told(metrics: Metrics) -> set[str]:
    return set(re.findall(r'worker_id="(\d+)"', metrics.expose()))
