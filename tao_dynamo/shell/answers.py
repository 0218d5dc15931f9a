# SPDX-License-Identifier: Apache-2.0
"""A worker's answer to one request, read off the connection that the worker makes for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, cast

from tao_dynamo.errors import WireError
from tao_dynamo.shell import wire
from tao_dynamo.shell.relay import Chunk, Pace

FAREWELL_S = 2.0
BEGIN_S = 120.0
"""Within which a worker that took a request must begin to answer: its connection comes before its first pass."""


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


class Home(asyncio.Protocol):
    """A connection that a worker makes to answer one request."""

    def __init__(self, take: Callable[[str], Answer | None], answering: set[asyncio.Transport]) -> None:
        self._take = take
        self._answering = answering
        self._messages = wire.Messages()
        self._stream: Answer | None = None
        self._chunks: list[Chunk] = []
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See :class:`asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)
        self._answering.add(self._transport)

    def data_received(self, data: bytes) -> None:
        """See :class:`asyncio.Protocol`."""
        chunks = self._chunks = []
        stream = self._stream
        try:
            for header, body in self._messages.feed(data, self._skim):
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

    def _skim(self, data: bytes, at: int) -> int:
        return at if self._stream is None else self._stream.skim(data, at, self._chunks)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """See :class:`asyncio.Protocol`."""
        if self._transport is not None:
            self._answering.discard(self._transport)
        if self._stream is not None:
            self._stream.lost()


class Answer:
    """A worker's answer to one request, in batches of chunks."""

    def __init__(
        self, pace: Pace, failed: Callable[[wire.Fault], Exception], context: Context, plain: wire.Plain | None = None
    ) -> None:
        self._context = context
        self._reading = wire.Answer(plain)
        self.begun = False
        self.on_end: Callable[[], None] = lambda: None
        self.on_nonsense: Callable[[], None] = lambda: None
        self._pace = pace
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._into: Callable[[list[Chunk]], None] | None = None
        self._ready: list[Chunk] = []
        self._over: asyncio.Future[None] | None = None
        self._ended = False
        self._error: Exception | None = None
        self._resume: asyncio.TimerHandle | None = None
        self._last = float("-inf")
        self._begin_by = self._loop.time() + BEGIN_S

    @property
    def heard(self) -> float:
        """When its last chunks came, by the loop's clock; minus infinity: none have."""
        return self._last

    async def pour(self, into: Callable[[list[Chunk]], None]) -> None:
        """Hand over each batch as it comes, from the event loop itself: no task wakes for it. Returns at the end.

        Raises:
            Exception: what ended the answer, or what ``into`` raised.
        """
        self._into = into
        ready, self._ready = self._ready, []
        if ready:
            into(ready)
        if not self._ended:
            self._over = self._loop.create_future()
            try:
                await self._over
            except asyncio.CancelledError:
                self.close()
                raise
        if self._error is not None:
            raise self._error

    def look(self, now: float) -> None:
        """See whether the client has left, or the worker has had its time to begin."""
        if self._context.is_stopped():
            self.stop(killed=self._context.is_killed())
        elif not self.begun and now > self._begin_by:
            self.fail(GoneError(f"Unavailable: no answer was begun within {BEGIN_S:g} s"))

    def begin(self, transport: asyncio.Transport) -> None:
        """The worker has connected."""
        self.begun = True
        self._transport = transport

    def read(self, header: bytes, body: bytes, into: list[Chunk]) -> None:
        """Read one message; see :meth:`tao_dynamo.shell.wire.Answer.read`."""
        self._reading.read(header, body, into)

    def skim(self, data: bytes, at: int, into: list[Chunk]) -> int:
        """Take what is plain; see :meth:`tao_dynamo.shell.wire.Answer.skim`."""
        return self._reading.skim(data, at, into)

    def take(self, chunks: list[Chunk]) -> None:
        """Take what one piece off the socket held. A stream that is fast is left alone for a while after it."""
        if self._reading.over and self._transport is not None:
            self._transport.close()
        if self._ended:
            return
        if self._into is None:
            self._ready += chunks
        elif chunks:
            try:
                self._into(chunks)
            except Exception as error:  # noqa: BLE001 - raised by pour
                self.stop(killed=True, error=error)
                return
        fault = self._reading.fault
        if fault is not None:
            self._end(self._failed(fault))
        elif self._reading.complete:
            self._end(None)
        elif chunks:
            self._rest()

    def lost(self) -> None:
        """The connection has ended."""
        if not self._ended:
            self._end(GoneError("Unavailable: Stream ended before generation completed"))

    def fail(self, error: Exception) -> None:
        """End with an error, after everything that came before it."""
        if not self._ended:
            self._end(error)

    def stop(self, *, killed: bool, error: Exception | None = None) -> None:
        """The client has left: tell the worker, and end."""
        if self._ended:
            return
        if self._transport is not None:
            self._transport.write(wire.signal("kill" if killed else "stop"))
        self._end(error)

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
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

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
