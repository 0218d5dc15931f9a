# SPDX-License-Identifier: Apache-2.0
"""The barest Python hop that Dynamo allows: takes a request, sends it to the next worker, passes each chunk on.

What ``tao-bench hop`` sets TAO against. ``--push`` hands chunks to Dynamo by its response sender instead of being asked
for each.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator
from typing import Any


async def serve(args: argparse.Namespace) -> None:
    """Serve until told to stop."""
    from dynamo.llm import ModelInput, ModelRuntimeConfig, ModelType, WorkerType, register_model
    from dynamo.runtime import DistributedRuntime

    loop = asyncio.get_running_loop()
    runtime = DistributedRuntime(
        loop, os.environ.get("DYN_DISCOVERY_BACKEND", "etcd"), os.environ.get("DYN_REQUEST_PLANE", "tcp")
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, runtime.shutdown)
    client = await runtime.endpoint(args.endpoint).client()
    await client.wait_for_instances()
    turns = itertools.count()

    async def stream(request: dict[str, Any], context: Any) -> AsyncIterator[Any]:
        workers = sorted(client.instance_ids())
        worker = workers[next(turns) % len(workers)]
        request["routing"] = {**(request.get("routing") or {}), "backend_instance_id": worker, "dp_rank": 0}
        chunks: AsyncIterator[Any] = await client.direct(request, worker, annotated=False, context=context)
        return chunks

    async def pull(request: dict[str, Any], context: Any) -> AsyncIterator[Any]:
        async for chunk in await stream(request, context):
            yield chunk

    async def push(request: dict[str, Any], context: Any, response_sender: Any = None) -> AsyncIterator[Any]:
        async for chunk in await stream(request, context):
            if response_sender is None:
                yield chunk
            else:
                response_sender.send(chunk)

    endpoint = runtime.endpoint(f"{args.namespace}.router.generate")
    await register_model(
        ModelInput.Tokens,
        ModelType.Chat | ModelType.Completions,
        endpoint,
        args.model_path,
        args.model_name,
        worker_type=WorkerType.Aggregated,
        runtime_config=ModelRuntimeConfig(),
        kv_cache_block_size=args.block_size,
        ignore_weights=True,
    )
    await endpoint.serve_endpoint(push if args.push else pull, graceful_shutdown=True)


def main() -> None:
    """Run the hop."""
    parser = argparse.ArgumentParser(description=__doc__)
    for flag in ("--endpoint", "--namespace", "--model-path", "--model-name"):
        parser.add_argument(flag, required=True)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--push", action="store_true")
    import uvloop

    os.environ.setdefault("DYN_LOG", "info,dynamo_runtime::pipeline::network=warn")
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
