# SPDX-License-Identifier: Apache-2.0
"""Workers of the TCP request plane, by hand: each behaves as a test tells it to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from tao_dynamo.shell import wire
from tao_dynamo.shell.answers import Answer
from tests.tao_dynamo.shell_world import FakeContext
from tests.tao_dynamo.test_shell_wire import LAST, PROLOGUE, part

Behaviour = Callable[["Talk"], Awaitable[None]]


class Context(FakeContext):
    """With what the plane asks for besides."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.metadata = {"tenant": "a"}
        self.killed = False

    def is_killed(self) -> bool:
        return self.killed


class Talk:
    """A worker's side of one answer."""

    def __init__(self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.request = request
        self.reader = reader
        self.writer = writer

    def chunk(self, *tokens: int) -> None:
        body = msgspec.msgpack.encode({"data": {"data": {"token_ids": list(tokens)}}, "complete_final": False})
        self.writer.write(part(b"", body))

    def end(self) -> None:
        self.writer.write(part(b"", LAST) + part(b'"sentinel"'))


class Worker:
    """Takes requests as Dynamo's workers do, and answers as ``behave`` says."""

    def __init__(self, behave: Behaviour, acknowledge: bytes = b"") -> None:
        self.headers: list[dict[str, str]] = []
        self.controls: list[dict[str, Any]] = []
        self.connections: list[asyncio.StreamWriter] = []
        self._behave = behave
        self._acknowledge = acknowledge
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._requests, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}/1f/ns/comp/generate"
        return self

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self.connections:
            writer.close()
        self._server.close()
        await asyncio.sleep(0.01)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        try:
            while True:
                await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
                self.headers.append(
                    json.loads(await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big")))
                )
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                writer.write(len(self._acknowledge).to_bytes(4, "big") + self._acknowledge)
                ((control, body),) = wire.Messages().feed(frame)
                self.controls.append(json.loads(control))
                task = asyncio.create_task(self._answer(self.controls[-1], msgspec.msgpack.decode(body)))
                self._tasks.add(task)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass

    async def _answer(self, control: dict[str, Any], request: dict[str, Any]) -> None:
        info = json.loads(control["connection_info"]["info"])
        host, _, port = info["address"].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(part(json.dumps({"subject": info["subject"], "stream_type": "response"}).encode()))
        writer.write(part(PROLOGUE))
        try:
            await self._behave(Talk(request, reader, writer))
            await writer.drain()
        finally:
            writer.close()
            self.connections.append(writer)


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[Worker]:
    await worker.open()
    try:
        yield worker
    finally:
        await worker.close()


class Deaf(Worker):
    """Takes no request."""

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        await reader.read()


async def tokens(answer: Answer) -> list[int]:
    got: list[int] = []
    await answer.pour(lambda batch: got.extend(token for chunk in batch for token in chunk["token_ids"]))
    return got


class Batches:
    """What an answer gives, batch by batch."""

    def __init__(self, answer: Answer) -> None:
        self._got: asyncio.Queue[list[dict[str, Any]]] = asyncio.Queue()
        self.end = asyncio.ensure_future(answer.pour(self._got.put_nowait))

    async def next(self) -> list[dict[str, Any]]:
        return await self._got.get()


async def all_begun(*answers: Answer) -> None:
    for _ in range(2000):
        if all(answer.begun for answer in answers):
            return
        await asyncio.sleep(0.005)
    raise AssertionError("not begun")


async def count_to(talk: Talk) -> None:
    for number in range(talk.request["n"]):
        talk.chunk(number)
        if number % 7 == 3:
            await asyncio.sleep(0)
    talk.end()
