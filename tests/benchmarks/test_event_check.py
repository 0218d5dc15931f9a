# SPDX-License-Identifier: Apache-2.0
"""Case C21: nothing is measured on workers that publish no KV events."""

from __future__ import annotations

import pytest

from benchmarks.event_check import kv_events_flow
from launch.stack import Stack
from tao_dynamo.errors import StackError

pytestmark = [pytest.mark.dynamo, pytest.mark.timeout(90)]


@pytest.mark.parametrize("publishes", [True, False])
async def test_c21_a_run_ends_before_it_begins_where_workers_publish_no_kv_events(publishes: bool) -> None:
    worker = {"num-gpu-blocks-override": 256} | ({} if publishes else {"no-enable-prefix-caching": True})
    async with Stack("graphs/round_robin_agg:Frontend", workers=1, config={"Worker": worker}) as stack:
        if publishes:
            assert await kv_events_flow(stack, 1, vocabulary=(100, 3000)) == 1
            return
        with pytest.raises(StackError, match=r"KV events of 0 of 1 workers within 2 s; nothing measured"):
            await kv_events_flow(stack, 1, vocabulary=(100, 3000), timeout_s=2.0)
