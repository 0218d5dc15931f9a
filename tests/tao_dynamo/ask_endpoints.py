# SPDX-License-Identifier: Apache-2.0
"""Asks a running router's endpoints as another Dynamo component would, and Dynamo's KV router beside it; prints JSON.

Arguments: the router's namespace and the workers'.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from dynamo.llm import KvRouter, KvRouterConfig
from dynamo.runtime import DistributedRuntime

TOKENS = list(range(300, 364))


async def main(router: str, workers: str) -> None:
    """Ask everything once."""
    runtime = DistributedRuntime(asyncio.get_running_loop(), "file", "tcp")

    async def ask(endpoint: str, request: Any) -> Any:
        client = await runtime.endpoint(f"{router}.router.{endpoint}").client()
        await client.wait_for_instances()
        answers = [answer async for answer in await client.round_robin(request, annotated=False)]
        assert len(answers) == 1, answers
        return answers[0]

    own = KvRouter(
        endpoint=runtime.endpoint(f"{workers}.backend.generate"), block_size=16, kv_router_config=KvRouterConfig()
    )
    seen = {
        "best_worker_id": await ask("best_worker_id", TOKENS),
        "scores": await ask("get_overlap_scores", {"token_ids": TOKENS}),
        "status": await ask("status", {}),
        "explained": await ask("status", {"session": "nobody"}),
        "dynamos_scores": await own.get_overlap_scores(TOKENS),
    }
    for name in ("scores", "dynamos_scores"):
        seen[name]["workers"].sort(key=lambda row: (row["worker_id"], row["dp_rank"]))
    sys.stdout.write("\n" + json.dumps(seen) + "\n")
    sys.stdout.flush()
    os._exit(0)  # a runtime of Dynamo's takes its time to end


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
