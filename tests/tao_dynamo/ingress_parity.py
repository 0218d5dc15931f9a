# SPDX-License-Identifier: Apache-2.0
"""One handler, behind Dynamo's server and behind our ingress, asked by one raw client. Prints what it saw as JSON.

What is seen of an answer: its messages in hexadecimal, the handshake first and without its subject, and what the
handler saw of its context.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from dynamo.llm import exceptions as errors
from dynamo.runtime import DistributedRuntime

from tao_dynamo.shell import wire
from tao_dynamo.shell.failures import DynamoFailures
from tao_dynamo.shell.ingress import Ingress
from tao_dynamo.shell.reply import Reply

RAISES: dict[str, Exception] = {
    "invalid": errors.InvalidArgument('say "more", ü'),
    "overloaded": errors.HttpError(529, "too much"),
    "unavailable": errors.HttpError(503, "not now"),
    "bad": errors.HttpError(400, "not so"),
    "teapot": errors.HttpError(418, "a teapot"),
    "broken": errors.HttpError(500, "broken"),
    "value": ValueError("bad value"),
    "type": TypeError("bad type"),
    "runtime": RuntimeError("broken"),
    "key": KeyError("missing"),
    "timeout": errors.ConnectionTimeout("too late"),
    "cancelled": errors.Cancelled("left"),
    "wordless": RuntimeError(),
}
LEAVES = ("stop", "kill", "stop then kill")
CASES = ("ok", "empty", *RAISES, *(f"{name} at once" for name in ("invalid", "runtime")), *LEAVES)
ODD: list[dict[str, Any]] = [
    {"token_ids": [1, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32], "index": 0, "none": None, "yes": True},
    {"big": 2**64 - 1, "small": -(2**63), "minus": [-1, -32, -33, -128, -129, -32769, -(2**31) - 1]},
    {"half": 0.5, "third": 1 / 3, "huge": 1e300, "whole": 1.0, "text": "ü\u2028\U0001f600" + "x" * 300},
    {"list": list(range(20)), "map": {str(number): number for number in range(20)}, "deep": [[{"a": [[]]}]], "": {}},
    {"raw": b"\x00\xff", "tuple": (1, 2), "inf": float("inf"), "zero": -0.0},
    {"token_ids": [], "finish_reason": "stop", "completion_usage": {"prompt_tokens": 3}},
]
WAIT_S = 20.0


class Asked:
    """The handler; keeps what it saw of each context."""

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}
        self.left = asyncio.Event()

    async def generate(self, request: dict[str, Any], context: Any) -> AsyncIterator[dict[str, Any]]:
        """Answer as the request says."""
        what = request["what"]
        self.left.clear()
        seen = {"id": context.id(), "metadata": dict(context.metadata), "request": request, "marks": []}
        self.seen[what] = seen
        seen["marks"].append([context.is_stopped(), context.is_killed()])
        if what == "empty":
            return
        if not what.endswith("at once"):
            for chunk in ODD if what == "ok" else ODD[:2]:
                yield chunk
        what = what.removesuffix(" at once")
        if what in RAISES:
            raise RAISES[what]
        if what in LEAVES:
            await asyncio.wait_for(context.async_killed_or_stopped(), WAIT_S)
            if what == "stop then kill":
                await asyncio.sleep(1.0)
            seen["marks"].append([context.is_stopped(), context.is_killed()])
            self.left.set()
            yield {"token_ids": [9]}


class Caller:
    """A frontend by hand: sends requests over one connection, takes answers over others."""

    def __init__(self) -> None:
        self._answers: dict[str, asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter, list[Any]]]] = {}

    async def open(self) -> None:
        """Listen for answers."""
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self._here = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def ask(self, address: wire.Address, what: str, asked: Asked) -> dict[str, Any]:
        """Send a request; returns all that can be seen of its answer."""
        reader, writer = await asyncio.open_connection(address.host, address.port)
        subject = str(uuid.uuid4())
        self._answers[subject] = asyncio.get_running_loop().create_future()
        control = wire.control(f"r-{what}", subject, self._here, {"tenant": "a", "x": "y"})
        trace = {"traceparent": "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01", "request-id": f"r-{what}"}
        body = {"what": what, "ids": [1, 2**64 - 1, -5], "half": 0.5, "none": None}
        writer.write(wire.request(address, control=control, headers=trace, body=body))
        acknowledged = await reader.readexactly(4)
        answers, to_them, got = await asyncio.wait_for(self._answers[subject], WAIT_S)
        messages = wire.Messages()
        while data := await asyncio.wait_for(_some(answers), WAIT_S):
            got += messages.feed(data)
            if got[-1][0] == wire.SENTINEL:  # Dynamo's server now waits for us to close.
                break
            chunks = sum(bool(body) for _, body in got)
            if what in LEAVES and chunks == 2:
                for word in what.split(" then "):
                    to_them.write(wire.signal(word))
                    await asyncio.sleep(0.3)  # Or they may be heard together.
        if what in LEAVES:
            await asyncio.wait_for(asked.left.wait(), WAIT_S)
        to_them.close()
        writer.close()
        told = [[header.replace(subject.encode(), b"").hex(), body.hex()] for header, body in got]
        return {"acknowledged": acknowledged.hex(), "messages": told, "seen": asked.seen[what]}

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        messages, got = wire.Messages(), []
        size = await reader.readexactly(24)
        header = await reader.readexactly(int.from_bytes(size[:8], "big"))
        got += messages.feed(size + header)
        self._answers[wire.handshake(header)].set_result((reader, writer, got))


async def _some(reader: asyncio.StreamReader) -> bytes:
    """A piece; nothing at the end, however it comes."""
    try:
        return await reader.read(1 << 16)
    except ConnectionError:
        return b""


async def main() -> None:
    """Run every case both ways."""
    runtime = DistributedRuntime(asyncio.get_running_loop(), "mem", "tcp")
    endpoint = runtime.endpoint("lab.worker.generate")
    asked = Asked()
    serving = asyncio.ensure_future(endpoint.serve_endpoint(asked.generate))
    client = await endpoint.client()
    await client.wait_for_instances()
    dynamos = wire.Address.parse(client.instances()[0].transport.address)

    async def serve(request: dict[str, Any], reply: Reply) -> None:
        async for chunk in asked.generate(request, reply):
            reply.put([chunk])

    ingress = Ingress(dynamos.path, serve, DynamoFailures.told, DynamoFailures.EXPECTED)
    ours = wire.Address(dynamos.host, await ingress.open(dynamos.host), dynamos.path)
    caller = Caller()
    await caller.open()
    seen = {what: [await caller.ask(address, what, asked) for address in (dynamos, ours)] for what in CASES}
    sys.stdout.write("\n" + msgspec.json.encode(seen).decode() + "\n")
    sys.stdout.flush()
    await ingress.close()
    serving.cancel()
    os._exit(0)  # a runtime of Dynamo's takes its time to end


if __name__ == "__main__":
    os.environ.setdefault("DYN_LOG", "off")
    asyncio.run(main())
