# SPDX-License-Identifier: Apache-2.0
"""One worker, asked through Dynamo's client and directly. Prints what came of it both ways as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

from dynamo.llm import exceptions as errors
from dynamo.runtime import Context, DistributedRuntime

from tao_dynamo.shell.answers import Answer
from tao_dynamo.shell.departures import Departures
from tao_dynamo.shell.direct import Plane
from tao_dynamo.shell.failures import DynamoFailures
from tao_dynamo.shell.relay import Pace

RAISES: dict[str, Exception] = {
    "invalid": errors.InvalidArgument("say more"),
    "value": ValueError("bad value"),
    "runtime": RuntimeError("broken"),
    "shutdown": errors.EngineShutdown("going down"),
    "unavailable": errors.WorkerUnavailable("not here"),
}
CASES = ("ok", "empty", *RAISES, "stopped")


class Worker:
    """What is asked; remembers who saw that its client had left."""

    def __init__(self) -> None:
        self.stopped: dict[str, asyncio.Event] = {}

    async def generate(self, request: dict[str, Any], context: Any) -> AsyncIterator[dict[str, Any]]:
        """Answer as the request says."""
        what = request["what"]
        if what == "empty":
            return
        for _ in range(3):
            yield {"token_ids": [1], "big": 2**63 + 5, "half": 0.5, "none": None}
        if what in RAISES:
            raise RAISES[what]
        if what == "stopped":
            await context.async_killed_or_stopped()
            self.stopped[context.id()].set()


async def take(worker: Worker, what: str, context: Any, chunks: Any) -> list[Any]:
    """Read an answer: its chunks, its error, and whether the worker saw that the client left."""
    got: list[Any] = []
    error = ""
    stopped = worker.stopped[context.id()]
    try:
        async for chunk in chunks:
            got.append(chunk)
            if what == "stopped" and len(got) == 3:
                context.stop_generating()
    except Exception as caught:  # noqa: BLE001 - it is what is compared
        error = f"{type(caught).__name__}: {caught}"
    if what == "stopped":
        await asyncio.wait_for(stopped.wait(), 10.0)
    return [got, error, stopped.is_set()]


async def one_by_one(answer: Answer) -> AsyncIterator[Any]:
    """Chunks out of batches."""
    batches: asyncio.Queue[list[Any]] = asyncio.Queue()
    end = asyncio.ensure_future(answer.pour(batches.put_nowait))
    end.add_done_callback(lambda _: batches.put_nowait([]))
    while batch := await batches.get():
        for chunk in batch:
            yield chunk
    await end


async def main() -> None:
    """Run every case both ways."""
    runtime = DistributedRuntime(asyncio.get_running_loop(), "mem", "tcp")
    endpoint = runtime.endpoint("lab.worker.generate")
    worker = Worker()
    serving = asyncio.ensure_future(endpoint.serve_endpoint(worker.generate))
    client = await endpoint.client()
    (worker_id,) = await client.wait_for_instances()
    plane = Plane(Pace(), DynamoFailures.sent, Departures())
    address = client.instances()[0].transport.address
    seen: dict[str, Any] = {}
    for what in CASES:
        first, second = Context(f"dynamo-{what}", {"a": "b"}), Context(f"direct-{what}", {"a": "b"})
        worker.stopped.update({first.id(): asyncio.Event(), second.id(): asyncio.Event()})
        request = {"what": what}
        chunks = await client.direct(request, worker_id, annotated=False, context=first)
        dynamo = await take(worker, what, first, chunks)
        answer = await plane.send(request, worker_id, address, second)
        seen[what] = (dynamo, await take(worker, what, second, one_by_one(answer)))
    sys.stdout.write("\n" + json.dumps(seen) + "\n")
    sys.stdout.flush()
    await plane.close()
    serving.cancel()
    os._exit(0)  # a runtime of Dynamo's takes its time to end


if __name__ == "__main__":
    os.environ.setdefault("DYN_LOG", "off")
    asyncio.run(main())
