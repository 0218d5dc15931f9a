# SPDX-License-Identifier: Apache-2.0
"""The answer to one request, on its way to whoever asked, over a connection made for it."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

from tao_dynamo.shell import ingress_wire as wire
from tao_dynamo.shell.outlet import bounded
from tao_dynamo.shell.relay import Chunk, join
from tao_dynamo.shell.sockets import prompt_and_watched

HOLD_S = 0.002
"""How long a last chunk waits for the end of its answer, to go with it."""
FAREWELL_S = 5.0
"""How long the other side has to close, once everything is said."""
STUCK_S = 60.0
"""How long a client has to read the rest of an answer that has ended."""
CONNECT_S = 10.0
"""How long one tries to connect while there are no file descriptors or ports to be had."""
_MOST_SAID = 1024
"""Bytes that a client may say; a word takes some thirty."""
_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EAGAIN}

Place = tuple[int, tuple[str, int]]
"""Where to connect to: address family, and host and port as numbers."""


class Reply:
    """A request's context and outlet in one: what its client says, and the way of its chunks.

    The connection is made for the first chunk, or at the first look, whichever comes first.

    Args:
        request: what is answered.
        place: where to.
    """

    def __init__(self, request: wire.Request, place: Place) -> None:
        self.metadata: Mapping[str, Any] = request.metadata
        self._id = request.id
        self._headers = request.headers
        self._line = _Line(place, wire.opening(request.subject), self._caught_up)
        self._loop = asyncio.get_running_loop()
        self._held = b""
        self._holding: asyncio.TimerHandle | None = None
        self._behind: list[Chunk] = []
        self._ending: bytes | None = None  # how it ends, once that is known; nothing, once that is said
        self._word = ""
        self._leaving: asyncio.Future[bool] | None = None
        self._close_by = math.inf
        self._began = self._loop.time()
        self.closed = False
        self.trouble: OSError | None = None

    @property
    def said(self) -> bool:
        """Whether all is on its way to the client, or the client has left."""
        return self.closed or (self._ending == b"" and not self._line.full)

    # --- the context, as Dynamo's

    def id(self) -> str:
        """The request's id."""
        return self._id

    def is_stopped(self) -> bool:
        """Whether the client has left."""
        return bool(self._word)

    def is_killed(self) -> bool:
        """Whether it left at once, rather than asking to stop."""
        return self._word == "kill"

    def async_killed_or_stopped(self) -> asyncio.Future[bool]:
        """Done when the client leaves."""
        if self._leaving is None or self._leaving.done():
            self._leaving = self._loop.create_future()
            if self._word:
                self._leaving.set_result(True)
        return self._leaving

    def trace_headers(self) -> dict[str, str] | None:
        """W3C headers of the trace that the request belongs to."""
        return {name: value for name, value in self._headers.items() if name in ("traceparent", "tracestate")} or None

    # --- the outlet

    def put(self, chunks: list[Chunk]) -> None:
        """Take chunks; never waits. Once the client has left they are dropped.

        Raises:
            SlowClientError: too many wait for the client already.
        """
        if self._word or not chunks:
            return
        if self._line.full:
            self._behind = bounded(self._behind, chunks)
            return
        data = b"".join([wire.chunk(chunk) for chunk in chunks])
        if chunks[-1].get("finish_reason") is None:
            self._say(data)
            return
        self._held += data
        if self._holding is None:
            self._holding = self._loop.call_later(HOLD_S, self._say, b"")

    def end(self, last: bytes = b"") -> None:
        """Nothing more comes. ``last``: a message before the end, which tells of an error."""
        if self._word:
            self.close()
            return
        self._ending = last + wire.ENDING
        self._close_by = self._loop.time() + STUCK_S
        if not self._line.full:
            self._caught_up()

    def close(self) -> None:
        """Break off."""
        self.closed = True
        self._behind = []
        self._stop_holding()
        self._line.close()
        self._leave("kill")

    def look(self, now: float) -> None:
        """See whether the client has left, and connect to it if that is still to be done.

        Args:
            now: by the loop's clock.
        """
        if not self._line.opened:
            self._say(b"")
            if not self._line.full:
                self._caught_up()
            if not self._line.opened and now > self._began + CONNECT_S:
                self.trouble = self._line.shortage
                self.close()
        if self.closed:
            return
        try:
            words = self._line.heard()
        except OSError:
            words = None
        if words is None or now > self._close_by:
            self.close()
        elif words:
            self._leave("kill" if b'"kill"' in words else "stop")

    # --- inside

    def _say(self, data: bytes) -> None:
        self._stop_holding()
        if self._held:
            data, self._held = self._held + data, b""
        try:
            self._line.send(data)
        except OSError:
            self.close()

    def _stop_holding(self) -> None:
        if self._holding is not None:
            self._holding.cancel()
            self._holding = None

    def _caught_up(self) -> None:
        """The client has read what there was: give it the rest."""
        data = b"".join([*map(wire.chunk, join(self._behind)), self._ending or b""])
        self._behind = []
        if self._ending is not None:
            self._ending = b""
        if data:
            self._say(data)
        if self._ending is not None and not self._line.full:
            self._close_by = self._loop.time() + FAREWELL_S

    def _leave(self, word: str) -> None:
        self._word = self._word or word
        if self._leaving is not None and not self._leaving.done():
            self._leaving.set_result(True)


class _Line:
    """A connection out of the event loop that is never waited for: what cannot be sent yet is kept.

    Sockets by hand, since a transport of asyncio's costs five times as much to make, and one is made for each turn.

    Args:
        place: where to.
        first: what is said before all else.
        caught_up: called when nothing is kept any longer.
    """

    def __init__(self, place: Place, first: bytes, caught_up: Callable[[], None]) -> None:
        self._place = place
        self._first = first
        self._caught_up = caught_up
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._kept = memoryview(b"")
        self._closed = False
        self._heard = 0
        self.shortage: OSError | None = None

    @property
    def opened(self) -> bool:
        """Whether the connection has been begun."""
        return self._socket is not None

    @property
    def full(self) -> bool:
        """Whether something is kept, so that more had better not be sent."""
        return bool(self._kept)

    def send(self, data: bytes) -> None:
        """Send, or keep; connects first if need be. To be called while nothing is kept, or there is no connection yet.

        Raises:
            OSError: there is no connection to be had, or it has broken.
        """
        if self._closed:
            return
        if self._kept:
            data = bytes(self._kept) + data
        elif self._socket is None:
            data = self._first + data
        if self._socket is None:
            self._socket = self._connected()
        if self._socket is None:
            self._kept = memoryview(data)
            return
        self._kept = memoryview(data)[self._try(self._socket, data) :]
        if self._kept:
            self._loop.add_writer(self._socket.fileno(), self._writable, self._socket)

    def heard(self) -> bytes | None:
        """What has been said to us since; None: the other side has closed.

        Raises:
            OSError: the connection has broken.
        """
        if self._socket is None:
            return b""
        try:
            words = self._socket.recv(_MOST_SAID)
        except (BlockingIOError, InterruptedError):
            return b""
        self._heard += len(words)
        if self._heard > _MOST_SAID:
            raise ConnectionError(f"more than {_MOST_SAID} bytes came back")
        return words or None

    def close(self) -> None:
        """Close; what is kept is dropped."""
        self._closed = True
        if self._socket is not None:
            if self._kept:
                self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
        self._kept = memoryview(b"")

    def _connected(self) -> socket.socket | None:
        """A connection under way: what is sent meanwhile is kept, and fails if it does. None: there is a shortage.

        Raises:
            OSError: nobody is there.
        """
        family, address = self._place
        try:
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            if error.errno not in _SHORTAGES:
                raise
            self.shortage = error
            return None
        prompt_and_watched(sock)
        code = sock.connect_ex(address)
        if code in _SHORTAGES:
            self.shortage = OSError(code, os.strerror(code))
            sock.close()
            return None
        return sock

    def _writable(self, sock: socket.socket) -> None:
        try:
            self._kept = self._kept[self._try(sock, self._kept) :]
        except OSError:
            # Whoever sends or listens next hears of it.
            self._kept = memoryview(b"")
        if not self._kept:
            self._loop.remove_writer(sock.fileno())
            self._caught_up()

    @staticmethod
    def _try(sock: socket.socket, data: bytes | memoryview) -> int:
        try:
            return sock.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
