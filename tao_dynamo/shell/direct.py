# SPDX-License-Identifier: Apache-2.0
"""Sends requests to workers over Dynamo's TCP request plane, and reads their answers, without Dynamo's client.

Dynamo's client hands every chunk to Python by a future of its own, some 40 us of a core; here one piece off the socket
gives all the chunks in it, some 3 us each (``tao-bench hop``). What cannot be had this way (another plane, TLS, a
worker that does not understand) goes through Dynamo's client.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import itertools
import socket
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol, cast

from tao_dynamo.errors import WireError
from tao_dynamo.shell import wire
from tao_dynamo.shell.relay import Chunk, Pace

CONNECT_S = 5.0
ACKNOWLEDGE_S = 30.0
FAREWELL_S = 2.0
BEGIN_S = 120.0
"""Within which a worker that took a request must begin to answer: its connection comes before its first pass."""
BACKLOG = 4096
"""Workers that may connect at one time; one that is turned away drops its request without a word."""


TESTED_RUNTIMES = ("1.6.",)
"""Versions of ai-dynamo-runtime whose bytes these are."""


def can_go_direct(env: Mapping[str, str], version: str | None = None) -> bool:
    """Whether the planes are those spoken here: TCP both ways, no TLS, a Dynamo whose bytes are known."""
    if version is None:
        version = importlib.metadata.version("ai-dynamo-runtime")
    planes = (env.get("DYN_REQUEST_PLANE", "tcp"), env.get("DYN_RESPONSE_PLANE", "tcp"))
    tls = any(name.startswith("DYN_TCP_TLS_") and value for name, value in env.items())
    return version.startswith(TESTED_RUNTIMES) and planes == ("tcp", "tcp") and not tls


class Context(Protocol):
    """Of Dynamo's request context, what is needed here."""

    metadata: Any

    def id(self) -> str:
        """The request's id."""

    def is_killed(self) -> bool:
        """Whether it was killed, rather than asked to stop."""

    def is_stopped(self) -> bool:
        """Whether the client has left."""

    def trace_headers(self) -> dict[str, str] | None:
        """W3C headers of the trace that the request belongs to."""

    def async_killed_or_stopped(self) -> asyncio.Future[bool]:
        """Done when the client leaves."""


class GoneError(ConnectionError):
    """The worker could not be reached, or broke off. Its text is what Dynamo's client says then."""


class Plane:
    """All connections to workers.

    Args:
        pace: how long fast streams are gathered.
        failed: makes the exception of an error that a worker sent.
    """

    def __init__(self, pace: Pace, failed: Callable[[wire.Fault], Exception]) -> None:
        self.distrusted: set[int] = set()
        self._pace = pace
        self._failed = failed
        self._workers: dict[int, _Worker] = {}
        self._homes: dict[str, asyncio.Task[asyncio.Server]] = {}
        self._expected: dict[str, Answer] = {}
        self._answering: set[asyncio.Transport] = set()
        self._subjects = itertools.count()
        self._prefix = uuid.uuid4().hex

    def instances(self, addresses: Mapping[int, str]) -> None:
        """Hear which workers live. Requests to one that has gone, and has not begun to answer, fail."""
        for worker_id in [known for known in self._workers if known not in addresses]:
            self._workers.pop(worker_id).fail()
        self.distrusted &= set(addresses)

    async def send(self, request: dict[str, Any], worker_id: int, address: str, context: Context) -> Answer:
        """Send a request; returns its answer.

        Raises:
            GoneError: the worker cannot be reached.
            WireError: it does not understand, or cannot be understood: use Dynamo's client.
        """
        worker = self._workers.get(worker_id)
        if worker is None or worker.closed or worker.text != address:
            worker = self._workers[worker_id] = _Worker(address)
        await worker.connected()
        here = await self._home(worker.local_host)
        subject = f"{self._prefix}-{next(self._subjects)}"
        stream = self._expected[subject] = Answer(self._pace, self._failed)
        worker.streams[subject] = stream
        stream.on_nonsense = lambda: self.distrusted.add(worker_id)
        headers = {"request-id": context.id(), "x-endpoint-path": worker.address.path}
        headers["x-frontend-send-ts-ns"] = str(time.time_ns())
        headers.update(context.trace_headers() or {})
        metadata = {str(key): str(value) for key, value in context.metadata.items()}
        control = wire.control(context.id(), subject, here, metadata)
        overdue = asyncio.get_running_loop().call_later(BEGIN_S, stream.give_up)
        stopped = asyncio.ensure_future(context.async_killed_or_stopped())
        stopped.add_done_callback(lambda _: stream.stop(killed=context.is_killed()))

        def ended() -> None:
            stopped.cancel()
            overdue.cancel()
            self._expected.pop(subject, None)
            worker.streams.pop(subject, None)

        stream.on_end = ended
        try:
            await worker.request(wire.request(worker.address, control=control, headers=headers, body=request))
        except BaseException as error:
            if isinstance(error, WireError):
                self.distrusted.add(worker_id)
            stream.close()
            raise
        return stream

    async def close(self) -> None:
        """Close everything."""
        for worker in self._workers.values():
            worker.fail()
        for opening in self._homes.values():
            with contextlib.suppress(OSError):
                (await opening).close()
        for transport in list(self._answering):
            transport.abort()
        await asyncio.sleep(0)

    async def _home(self, host: str) -> str:
        """Where workers that reach us at this address are to answer."""
        opening = self._homes.get(host)
        if opening is None:
            loop = asyncio.get_running_loop()
            server = loop.create_server(lambda: _Home(self._take, self._answering), host, 0, backlog=BACKLOG)
            opening = self._homes[host] = loop.create_task(server)
        try:
            port = (await asyncio.shield(opening)).sockets[0].getsockname()[1]
        except OSError as error:
            self._homes.pop(host, None)
            raise WireError(f"no port to be answered on at {host}: {error}") from error
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def _take(self, subject: str) -> Answer | None:
        return self._expected.pop(subject, None)


class _Worker(asyncio.Protocol):
    """The connection that requests to one worker go over."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.address = wire.Address.parse(text)
        self.closed = False
        self.local_host = ""
        self.streams: dict[str, Answer] = {}
        self._transport: asyncio.WriteTransport | None = None
        self._connecting: asyncio.Task[Any] | None = None
        self._unanswered: deque[asyncio.Future[bytes]] = deque()
        self._acknowledgements = wire.Acknowledgements()

    async def connected(self) -> None:
        """Be connected.

        Raises:
            GoneError: the worker does not answer.
        """
        if self._transport is not None and not self.closed:
            return
        if self._connecting is None:
            loop = asyncio.get_running_loop()
            making = loop.create_connection(lambda: self, self.address.host, self.address.port)
            self._connecting = loop.create_task(asyncio.wait_for(making, CONNECT_S))
        try:
            await asyncio.shield(self._connecting)
        except (OSError, asyncio.TimeoutError) as error:
            self.closed = True
            raise GoneError(f"Unavailable: cannot connect to {self.text}: {error or 'timed out'}") from error

    async def request(self, frame: bytes) -> None:
        """Send one request and hear that it was taken.

        Raises:
            GoneError: the worker broke off, or is too busy to take it.
            WireError: it cannot read it.
        """
        if self._transport is None or self.closed:
            raise GoneError(f"Unavailable: {self.text} is gone")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._unanswered.append(answer)
        self._transport.write(frame)
        try:
            words = await asyncio.wait_for(answer, ACKNOWLEDGE_S)
        except asyncio.TimeoutError as error:
            self.fail()
            raise GoneError(f"Unavailable: {self.text} took no request for {ACKNOWLEDGE_S:g} s") from error
        if words:
            text = words.decode(errors="replace")
            if text.startswith("Server "):  # overloaded, unavailable
                raise GoneError(f"Unavailable: {text}")
            raise WireError(f"{self.text} refused a request: {text}")

    def fail(self) -> None:
        """Give the worker up."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()
        self.connection_lost(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)
        self.local_host = transport.get_extra_info("sockname")[0]
        _prompt_and_watched(transport)

    def data_received(self, data: bytes) -> None:
        for words in self._acknowledgements.feed(data):
            if self._unanswered:
                answer = self._unanswered.popleft()
                if not answer.done():
                    answer.set_result(words)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        gone = GoneError(f"Unavailable: {self.text} broke off ({exc or 'closed'})")
        while self._unanswered:
            answer = self._unanswered.popleft()
            if not answer.done():
                answer.set_exception(gone)
        for stream in list(self.streams.values()):
            if not stream.begun:
                stream.fail(gone)


class _Home(asyncio.Protocol):
    """A connection that a worker makes to answer one request."""

    def __init__(self, take: Callable[[str], Answer | None], answering: set[asyncio.Transport]) -> None:
        self._take = take
        self._answering = answering
        self._messages = wire.Messages()
        self._stream: Answer | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._answering.add(self._transport)
        _prompt_and_watched(transport)

    def data_received(self, data: bytes) -> None:
        chunks: list[Chunk] = []
        stream = self._stream
        try:
            for header, body in self._messages.feed(data):
                if stream is not None:
                    stream.read(header, body, chunks)
                    continue
                stream = self._stream = self._take(wire.handshake(header))
                if stream is None or self._transport is None:  # nobody waits for it any longer
                    if self._transport is not None:
                        self._transport.write(wire.signal("kill"))
                        self._transport.close()
                    return
                stream.begin(self._transport)
        except WireError as error:
            if stream is not None:
                stream.on_nonsense()
                stream.fail(error)
            elif self._transport is not None:
                self._transport.abort()
            return
        if stream is not None:
            stream.take(chunks)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._transport is not None:
            self._answering.discard(self._transport)
        if self._stream is not None:
            self._stream.lost()


class Answer:
    """A worker's answer to one request: an iterator of batches of chunks."""

    def __init__(self, pace: Pace, failed: Callable[[wire.Fault], Exception]) -> None:
        self._reading = wire.Answer()
        self.begun = False
        self.on_end: Callable[[], None] = lambda: None
        self.on_nonsense: Callable[[], None] = lambda: None
        self._pace = pace
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._ready: list[Chunk] = []
        self._waker: asyncio.Future[None] | None = None
        self._ended = False
        self._error: Exception | None = None
        self._resume: asyncio.TimerHandle | None = None
        self._last = float("-inf")

    def __aiter__(self) -> AsyncIterator[list[Chunk]]:
        return self

    async def __anext__(self) -> list[Chunk]:
        while not self._ready:
            if self._ended:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._waker = self._loop.create_future()
            try:
                await self._waker
            except asyncio.CancelledError:
                self.close()
                raise
        batch, self._ready = self._ready, []
        return batch

    def begin(self, transport: asyncio.Transport) -> None:
        """The worker has connected."""
        self.begun = True
        self._transport = transport

    def read(self, header: bytes, body: bytes, into: list[Chunk]) -> None:
        """Read one message; see :meth:`tao_dynamo.shell.wire.Answer.read`."""
        self._reading.read(header, body, into)

    def take(self, chunks: list[Chunk]) -> None:
        """Take what one piece off the socket held. A stream that is fast is left alone for a while after it."""
        if self._reading.over and self._transport is not None:
            self._transport.close()
        if self._ended:
            return
        self._ready += chunks
        fault = self._reading.fault
        if fault is not None:
            self._end(self._failed(fault))
        elif self._reading.complete:
            self._end(None)
        elif chunks:
            self._wake()
            self._rest()

    def lost(self) -> None:
        """The connection has ended."""
        if not self._ended:
            self._end(GoneError("Unavailable: Stream ended before generation completed"))

    def fail(self, error: Exception) -> None:
        """End with an error, after everything that came before it."""
        if not self._ended:
            self._end(error)

    def give_up(self) -> None:
        """The worker has had its time to begin."""
        if not self.begun:
            self.fail(GoneError(f"Unavailable: no answer was begun within {BEGIN_S:g} s"))

    def stop(self, *, killed: bool) -> None:
        """The client has left: tell the worker, and end."""
        if self._ended:
            return
        if self._transport is not None:
            self._transport.write(wire.signal("kill" if killed else "stop"))
        self._end(None)

    def close(self) -> None:
        """Nobody reads on: tell the worker, if it is still at it."""
        self.stop(killed=True)

    def _end(self, error: Exception | None) -> None:
        self._ended = True
        self._error = error
        if self._resume is not None:
            self._resume.cancel()
        transport = self._transport
        if transport is not None:
            if self._reading.complete and not self._reading.over:
                # The worker's farewell is on its way, and it would take a closed door for a failure.
                self._loop.call_later(FAREWELL_S, transport.close)
            else:
                transport.close()
        self.on_end()
        self._wake()

    def _rest(self) -> None:
        now = self._loop.time()
        window = self._pace.window_s()
        if now - self._last < window and self._resume is None and self._transport is not None:
            self._transport.pause_reading()
            self._resume = self._loop.call_later(window, self._read_on)
        self._last = now

    def _read_on(self) -> None:
        self._resume = None
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _wake(self) -> None:
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)


def _prompt_and_watched(transport: asyncio.BaseTransport) -> None:
    """Send small pieces at once; notice a peer whose machine has gone."""
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, seconds in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
