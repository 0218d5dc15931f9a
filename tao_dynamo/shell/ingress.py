# SPDX-License-Identifier: Apache-2.0
"""Takes requests off Dynamo's TCP request plane, without Dynamo's own server.

Dynamo's server hands each request to Python from threads of its own, and takes each chunk back so: half a millisecond
of a core a turn (``tao-bench hop``). Here the event loop that serves the turn reads and writes for itself.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, cast

from tao_dynamo.errors import WireError
from tao_dynamo.shell import ingress_wire as wire
from tao_dynamo.shell.logs import Events
from tao_dynamo.shell.reply import Place, Reply
from tao_dynamo.shell.sockets import prompt_and_watched
from tao_dynamo.shell.wire import LARGEST

LOOK_S = 0.1
"""How often one looks whether clients have left; see :data:`tao_dynamo.shell.direct.LOOK_S`."""
BACKLOG = 1024
_MOST_PLACES = 1024
_LAST_PORT = 65535
_LONGEST_TEXT = 200

log = Events("tao.ingress")


class Ingress:
    """Serves one endpoint.

    Args:
        path: the endpoint's, as requests name it.
        serve: serves a request; returns when its answer is whole, raises what it ends with instead.
        told: the error that whoever asked is to hear of, for what ``serve`` raises.
        expected: exceptions that are no fault of this program; others are logged.
        largest: bytes of a request that is still taken.
    """

    def __init__(
        self,
        path: str,
        serve: Callable[[dict[str, Any], Reply], Awaitable[None]],
        told: Callable[[Exception], dict[str, Any]],
        expected: tuple[type[Exception], ...] = (),
        largest: int = LARGEST,
    ) -> None:
        self._path = path
        self._serve = serve
        self._told = told
        self._expected = expected
        self._largest = largest
        self._leaving = False
        self._server: asyncio.Server | None = None
        self._callers: set[asyncio.Transport] = set()
        self._running: set[asyncio.Task[None]] = set()
        self._replies: set[Reply] = set()
        self._places: dict[str, Place] = {}
        self._looking: asyncio.TimerHandle | None = None

    async def open(self, host: str) -> int:
        """Listen on this host, on a free port; returns the port.

        Raises:
            OSError: it cannot be had.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._caller, host, 0, backlog=BACKLOG)
        prompt_and_watched(self._server.sockets[0])
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def serving(self) -> int:
        """Requests that are being served."""
        return len(self._running)

    def leave(self) -> None:
        """Be about to leave: frontends give up requests whose answer has not been connected to them by then."""
        self._leaving = True
        now = asyncio.get_running_loop().time()
        for reply in self._replies:
            reply.look(now)

    async def drained(self, within_s: float) -> bool:
        """Wait until nothing is being served and all is said; whether that came in time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        while self._running and loop.time() < until:
            await asyncio.wait(self._running, timeout=until - loop.time())
        # What their clients have not read yet is still to go.
        while (late := any(not reply.said for reply in self._replies)) and loop.time() < until:  # noqa: ASYNC110 - rare
            await asyncio.sleep(min(LOOK_S, until - loop.time()))
        return not (self._running or late)

    async def close(self) -> None:
        """Stop; what is being served is broken off."""
        if self._server is not None:
            self._server.close()
        for transport in list(self._callers):
            transport.abort()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        if self._looking is not None:
            self._looking.cancel()
        for reply in self._replies:
            reply.close()
        await asyncio.sleep(0)

    def _caller(self) -> _Caller:
        return _Caller(self._take, self._callers, self._largest)

    def _take(self, path: str, headers: bytes, payload: bytes) -> None:
        """Begin to serve a request.

        Raises:
            WireError: it cannot be served.
        """
        request = wire.request(path, headers, payload, self._path)
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._run(request))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        if self._looking is None:
            self._looking = loop.call_later(LOOK_S, self._look)

    async def _run(self, request: wire.Request) -> None:
        place = self._places.get(request.address)
        if place is None:
            try:
                place = await _resolve(request.address)
            except (OSError, ValueError) as error:
                log.warning("nowhere_to_answer", request=request.id, address=request.address, error=error)
                return
            if len(self._places) >= _MOST_PLACES:
                self._places.clear()
            self._places[request.address] = place
        reply = Reply(request, place)
        self._replies.add(reply)
        if self._leaving:
            reply.look(asyncio.get_running_loop().time())
        try:
            await self._serve(request.body, reply)
        except asyncio.CancelledError:
            reply.close()
            raise
        except Exception as error:
            if not isinstance(error, self._expected):
                log.exception("request_broke", request=request.id)
            reply.end(wire.fault(self._told(error)))
        else:
            reply.end()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for reply in list(self._replies):
            try:
                reply.look(now)
            except Exception:
                log.exception("look_failed", request=reply.id())
                reply.close()
            if reply.closed:
                self._replies.discard(reply)
                if reply.trouble is not None:
                    log.warning("not_answered", request=reply.id(), error=reply.trouble)
        self._looking = loop.call_later(LOOK_S, self._look) if self._replies or self._running else None


class _Caller(asyncio.Protocol):
    """A connection over which somebody, a frontend as a rule, sends requests."""

    def __init__(
        self, take: Callable[[str, bytes, bytes], None], callers: set[asyncio.Transport], largest: int
    ) -> None:
        self._take = take
        self._callers = callers
        self._requests = wire.Requests(largest)
        self._transport: asyncio.Transport | None = None
        self._complained = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._callers.add(self._transport)

    def data_received(self, data: bytes) -> None:
        answers: list[bytes] = []
        readable = True
        try:
            for parts in self._requests.feed(data):
                try:
                    self._take(*parts)
                except WireError as error:  # noqa: PERF203 - each request is answered
                    answers.append(self._refusal(error))
                else:
                    answers.append(wire.acknowledgement())
        except WireError as error:
            answers.append(self._refusal(error))
            readable = False
        if answers and self._transport is not None:
            self._transport.write(b"".join(answers))
        if not readable and self._transport is not None:
            self._transport.close()

    def pause_writing(self) -> None:
        """Nobody reads what is said to requests: take no more of them."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._transport is not None:
            self._callers.discard(self._transport)

    def _refusal(self, error: WireError) -> bytes:
        text = str(error)[:_LONGEST_TEXT]
        if not self._complained:  # once a connection
            self._complained = True
            log.warning("request_not_read", error=text)
        return wire.acknowledgement(text)


async def _resolve(address: str) -> Place:
    """Where host:port is.

    Raises:
        OSError: there is no such host.
        ValueError: there is no port in it.
    """
    host, _, text = address.rpartition(":")
    port = int(text)
    if not 0 < port <= _LAST_PORT:
        raise ValueError(f"port {port}: want 1 to {_LAST_PORT}")
    found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    family, _, _, _, place = found[0]
    return int(family), (str(place[0]), int(place[1]))
