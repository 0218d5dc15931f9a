# SPDX-License-Identifier: Apache-2.0
"""A streaming HTTP/1.1 client just big enough for a benchmark: one POST, one stream of server-sent events.

It reads straight from the socket's callbacks, so that many streams fit on the cores that the servers also
use, and asks the kernel for immediate acknowledgements: else streams on loopback stall for some 44 ms
(delayed ACK against Nagle on the server's side), which would be mistaken for the router's.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tao_dynamo.errors import ConfigError, StackError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

_QUICKACK = getattr(socket, "TCP_QUICKACK", None)
_CONNECT_S = 10.0
_MOST_HEADER_BYTES = 65_536


class Target:
    """Where to post: host, port and path of an ``http://`` address."""

    def __init__(self, url: str, path: str, *, flag: str = "--url") -> None:
        parts = urlsplit(url)
        try:
            port = parts.port or 80
        except ValueError:
            port = 0
        if parts.scheme != "http" or not parts.hostname or not port:
            raise ConfigError(flag, url, "an address such as http://127.0.0.1:8000")
        self.host = parts.hostname
        self.port = port
        self.path = parts.path.rstrip("/") + path

    def __str__(self) -> str:
        return f"http://{self.host}:{self.port}{self.path}"


async def events(target: Target, body: bytes, headers: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
    """Post a JSON body and give the payload of each event as it comes, until the server closes.

    The connection is closed when the iterator is, also in mid-stream.

    Raises:
        StackError: when the server cannot be reached, answers with a status other than 200, or breaks off
            before the end of its answer.
    """
    loop = asyncio.get_running_loop()
    try:
        connecting = loop.create_connection(_Stream, target.host, target.port)
        transport, stream = await asyncio.wait_for(connecting, _CONNECT_S)
    except (OSError, asyncio.TimeoutError) as error:
        raise StackError(f"{target}: cannot connect ({error or 'timed out'})") from error
    lines = [f"POST {target.path} HTTP/1.1", f"host: {target.host}:{target.port}", "connection: close"]
    lines += ["content-type: application/json", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    try:
        transport.write("\r\n".join(lines).encode() + b"\r\n\r\n")
        transport.write(body)
        while (batch := await stream.more()) is not None:
            for payload in batch:
                yield payload
    finally:
        transport.abort()


async def get(target: Target, *, timeout_s: float = 5.0) -> bytes:
    """Fetch a small document.

    Raises:
        StackError: when the server cannot be reached, does not answer in time or not with status 200.
    """
    request = f"GET {target.path} HTTP/1.1\r\nhost: {target.host}:{target.port}\r\nconnection: close\r\n\r\n"
    try:
        answer = await asyncio.wait_for(_exchange(target, request.encode()), timeout_s)
    except (OSError, asyncio.TimeoutError) as error:
        raise StackError(f"{target}: no answer ({error or 'timed out'})") from error
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head.lower():
        body = _Chunks().feed(body)
    status = _status(head)
    if status != 200:
        raise _refused(status, body)
    return body


async def _exchange(target: Target, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(target.host, target.port)
    try:
        writer.write(request)
        return await reader.read(-1)
    finally:
        writer.close()


class _Stream(asyncio.Protocol):
    """Turns what the socket gives into payloads of server-sent events."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._raw = bytearray()
        self._status: int | None = None
        self._chunks: _Chunks | None = None
        self._text = b""
        self._ready: list[bytes] = []
        self._body = b""
        self._ended = False
        self._error: Exception | None = None
        self._news = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = transport.get_extra_info("socket")
        if self._socket is not None:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._acknowledge()

    def data_received(self, data: bytes) -> None:
        self._acknowledge()
        if self._status is None:
            self._raw += data
            head, found, rest = bytes(self._raw).partition(b"\r\n\r\n")
            if not found:
                if len(self._raw) > _MOST_HEADER_BYTES:
                    self._fail(StackError("the answer's header does not end"))
                return
            self._status = _status(head)
            if b"transfer-encoding: chunked" in head.lower():
                self._chunks = _Chunks()
            data = rest
        try:
            body = self._chunks.feed(data) if self._chunks else data
        except ValueError:
            self._fail(StackError("the answer is not HTTP"))
            return
        if self._status == 200:
            self._split(body)
        else:
            self._body += body
        if self._chunks and self._chunks.complete:
            self._ended = True
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        unfinished = self._status is None or (self._chunks is not None and not self._chunks.complete)
        if unfinished and self._error is None and not self._ended:
            self._error = StackError(f"the server broke off ({exc or 'closed'})")
        self._ended = True
        self._news.set()

    async def more(self) -> list[bytes] | None:
        """Wait for payloads; ``None`` at the end of the answer."""
        while not self._ready:
            if self._error is not None:
                raise self._error
            if self._ended:
                if self._status != 200:
                    raise _refused(self._status or 0, self._body)
                return None
            await self._news.wait()
            self._news.clear()
        batch, self._ready = self._ready, []
        return batch

    def _split(self, body: bytes) -> None:
        *lines, self._text = (self._text + body).split(b"\n")
        self._ready.extend(line[5:].strip() for line in lines if line.startswith(b"data:"))

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._news.set()

    def _acknowledge(self) -> None:
        # The kernel forgets this option, so it is set again for every piece received.
        if self._socket is not None and _QUICKACK is not None:
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)


class _Chunks:
    """Undoes HTTP/1.1 chunked transfer coding, piece by piece."""

    def __init__(self) -> None:
        self.complete = False
        self._raw = b""

    def feed(self, data: bytes) -> bytes:
        """What of the body has become readable. ValueError: not chunked coding."""
        raw = self._raw + data
        out: list[bytes] = []
        at = 0
        while not self.complete:
            end = raw.find(b"\r\n", at)
            if end < 0:
                break
            size = int(raw[at:end].split(b";")[0], 16)
            if size == 0:
                self.complete = True
                break
            if len(raw) < end + 2 + size + 2:
                break
            out.append(raw[end + 2 : end + 2 + size])
            at = end + 2 + size + 2
        self._raw = raw[at:]
        return b"".join(out)


def _refused(status: int, body: bytes) -> StackError:
    return StackError(f"HTTP {status}: {body.decode(errors='replace').strip()[:300]}")


def _status(head: bytes) -> int:
    parts = head.split(None, 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/") or not parts[1].isdigit():
        raise StackError(f"not an HTTP answer: {head[:60]!r}")
    return int(parts[1])
