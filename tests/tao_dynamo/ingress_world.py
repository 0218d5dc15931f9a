# SPDX-License-Identifier: Apache-2.0
"""A frontend of the TCP request plane, by hand: it listens for answers, and reads them when a test says so."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from tao_dynamo.shell import wire

WAIT_S = 20.0
PATH = "1f/ns/comp/generate"
LAST_CHUNK = {"token_ids": [9], "index": 0, "finish_reason": "stop"}


def chunk(*tokens: int) -> dict[str, Any]:
    return {"token_ids": list(tokens), "index": 0}


class Heard:
    """One answer's connection, at the frontend's side, and what it has brought so far."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.subject = ""
        self.chunks: list[dict[str, Any]] = []
        self.answer = wire.Answer()
        self._rest = bytearray()
        self._loop = asyncio.get_running_loop()

    async def piece(self, size: int = 1 << 20) -> bytes:
        """What comes next; nothing at the end, however it comes."""
        try:
            data = await asyncio.wait_for(self._loop.sock_recv(self.socket, size), WAIT_S)
        except ConnectionError:
            return b""
        self._take(data)
        return data

    def now(self) -> bytes:
        """What is there already."""
        try:
            data = self.socket.recv(1 << 20)
        except BlockingIOError:
            return b""
        self._take(data)
        return data

    async def until(self, chunks: int) -> list[dict[str, Any]]:
        """Read until there are so many chunks, or the answer is over, or broken off; returns all so far."""
        while len(self.chunks) < chunks and not self.answer.over and await self.piece():
            pass
        return self.chunks

    async def whole(self) -> list[dict[str, Any]]:
        """Read until the answer is over, or broken off."""
        return await self.until(1 << 30)

    def _take(self, data: bytes) -> None:
        """Cut out messages; not by what cuts workers' answers, which is slow with what comes in a thousand pieces."""
        rest = self._rest
        rest += data
        while len(rest) >= wire.HEAD.size:
            header, body, _ = wire.HEAD.unpack_from(rest)
            if len(rest) < wire.HEAD.size + header + body:
                break
            message = bytes(rest[wire.HEAD.size : wire.HEAD.size + header + body])
            del rest[: wire.HEAD.size + header + body]
            if self.subject:
                self.answer.read(message[:header], message[header:], self.chunks)
            else:
                self.subject = wire.handshake(message)

    def say(self, word: str) -> None:
        self.socket.send(wire.signal(word))

    def reset(self) -> None:
        """Break the connection, as a machine does that has forgotten it."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class Frontend:
    """Listens on a port; ``buffer`` is how many bytes it takes in without reading."""

    def __init__(self, buffer: int | None = None) -> None:
        self._all: list[Heard] = []
        self._server = socket.socket()
        if buffer is not None:
            self._server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self._server.bind(("127.0.0.1", 0))
        self._server.listen(128)
        self._server.setblocking(False)
        self.port = int(self._server.getsockname()[1])
        self.place = (int(socket.AF_INET), ("127.0.0.1", self.port))
        self.address = f"127.0.0.1:{self.port}"

    async def accept(self) -> Heard:
        connection, _ = await asyncio.wait_for(asyncio.get_running_loop().sock_accept(self._server), WAIT_S)
        heard = Heard(connection)
        self._all.append(heard)
        return heard

    def called(self) -> bool:
        """Whether a connection waits to be accepted."""
        with contextlib.suppress(BlockingIOError):
            connection, _ = self._server.accept()
            connection.close()
            return True
        return False

    def request(self, what: object, subject: str = "s1", path: str = PATH, **more: Any) -> bytes:
        """A request whose answer is to come here; ``more`` changes its control data."""
        control = wire.control(f"r-{subject}", subject, self.address, {"tenant": "a"}) | more
        headers = {"request-id": f"r-{subject}"}
        return wire.request(wire.Address("127.0.0.1", 1, path), control=control, headers=headers, body=what)

    def close(self) -> None:
        for heard in self._all:
            heard.socket.close()
        self._server.close()


class Caller:
    """A connection over which a frontend sends requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answers(self, count: int) -> list[bytes]:
        """The next acknowledgements."""
        got = []
        for _ in range(count):
            size = await asyncio.wait_for(self.reader.readexactly(4), WAIT_S)
            got.append(await asyncio.wait_for(self.reader.readexactly(int.from_bytes(size, "big")), WAIT_S))
        return got

    async def ask(self, request: bytes) -> bytes:
        self.writer.write(request)
        return (await self.answers(1))[0]


@asynccontextmanager
async def caller(port: int) -> AsyncIterator[Caller]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Caller(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def eventually(condition: Callable[[], object]) -> None:
    until = asyncio.get_running_loop().time() + WAIT_S
    while not condition():
        assert asyncio.get_running_loop().time() < until
        await asyncio.sleep(0.005)


@contextmanager
def nothing_left() -> Iterator[None]:
    """No file is left open, and no socket registered with the event loop, that was not before."""
    loop: Any = asyncio.get_running_loop()

    def held() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), len(loop._selector.get_map())

    before = held()
    yield
    assert held() == before
