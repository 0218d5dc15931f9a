# SPDX-License-Identifier: Apache-2.0
"""Sends requests to workers over Dynamo's TCP request plane, and reads their answers, without Dynamo's client.

Dynamo's client hands every chunk to Python by a future of its own, some 40 us of a core; here one piece off the socket
gives all the chunks in it, some 3 us each (``tao-bench hop``). What cannot be had this way (another plane, TLS, a
worker that does not understand) goes through Dynamo's client.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import itertools
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, cast

from tao_dynamo.errors import WireError
from tao_dynamo.shell import wire
from tao_dynamo.shell.answers import Answer, Context, GoneError, Home
from tao_dynamo.shell.departures import Departures
from tao_dynamo.shell.relay import Pace
from tao_dynamo.shell.sockets import prompt_and_watched

CONNECT_S = 5.0
ACKNOWLEDGE_S = 30.0
LOOK_S = 0.1
"""How often one looks whether clients have left. To be told by Dynamo costs a future and a task of its own for each
answer, as much as thirty chunks; to ask 0.1 us."""
BACKLOG = 4096
"""Workers that may connect at one time; one that is turned away drops its request without a word."""


TESTED_RUNTIMES = ("1.6.",)
"""Versions of ai-dynamo-runtime whose bytes these are."""


def hindrance(env: Mapping[str, str], version: str | None = None) -> str:
    """What keeps the planes from being spoken here; nothing if they are TCP both ways, without TLS, of a known Dynamo.

    A port or host that answers must come to (``DYN_TCP_RESPONSE_STREAM_*``) is bound by Dynamo's client, and it alone.
    """
    if version is None:
        version = importlib.metadata.version("ai-dynamo-runtime")
    if not version.startswith(TESTED_RUNTIMES):
        return f"ai-dynamo-runtime {version} is none of {', '.join(TESTED_RUNTIMES)}"
    for name in ("DYN_REQUEST_PLANE", "DYN_RESPONSE_PLANE"):
        if env.get(name, "tcp") != "tcp":
            return f"{name}={env[name]}"
    hindering = ("DYN_TCP_TLS_", "DYN_TCP_RESPONSE_STREAM_")
    return next((f"{name} is set" for name, value in env.items() if value and name.startswith(hindering)), "")


class Plane:
    """All connections to workers.

    Args:
        pace: how long fast streams are gathered.
        failed: makes the exception of an error that a worker sent.
        departures: told of every answer under way.
        largest: bytes of a request that workers take. They break off over a larger one, and with it everybody else.
    """

    def __init__(
        self,
        pace: Pace,
        failed: Callable[[wire.Fault], Exception],
        departures: Departures,
        largest: int = wire.LARGEST,
    ) -> None:
        self.distrusted: set[int] = set()
        self._pace = pace
        self._failed = failed
        self._workers: dict[int, _Worker] = {}
        self._departures = departures
        self._largest = largest
        self._homes: dict[str, str] = {}
        self._opening = asyncio.Lock()
        self._servers: list[asyncio.Server] = []
        self._expected: dict[str, Answer] = {}
        self._live: dict[str, Answer] = {}
        self._looking: asyncio.TimerHandle | None = None
        self._answering: set[asyncio.Transport] = set()
        self._subjects = itertools.count()
        self._prefix = uuid.uuid4().hex

    def instances(self, addresses: Mapping[int, str]) -> None:
        """Hear which workers live. Requests to one that has left, and has not begun to answer, fail at once.

        What it has begun it may finish, as long as it is heard of; see :mod:`tao_dynamo.shell.departures`.
        """
        for worker_id in [known for known in self._workers if known not in addresses]:
            self._workers.pop(worker_id).fail()
        self.distrusted &= set(addresses)

    async def send(self, request: dict[str, Any], worker_id: int, address: str, context: Context) -> Answer:
        """Send a request; returns its answer.

        Raises:
            GoneError: the worker cannot be reached.
            Exception: the request is too large for it.
            WireError: it does not understand, or cannot be understood: use Dynamo's client.
        """
        worker = self._workers.get(worker_id)
        if worker is None or worker.closed or worker.text != address:
            worker = self._workers[worker_id] = _Worker(address)
        if not worker.ready:
            await worker.connected()
        here = self._homes.get(worker.local_host) or await self._home(worker.local_host)
        subject = f"{self._prefix}-{next(self._subjects)}"
        headers = {"request-id": context.id(), "x-endpoint-path": worker.address.path}
        headers["x-frontend-send-ts-ns"] = str(time.time_ns())
        headers.update(context.trace_headers() or {})
        metadata = {str(key): str(value) for key, value in context.metadata.items()}
        control = wire.control(context.id(), subject, here, metadata)
        frame = wire.request(worker.address, control=control, headers=headers, body=request)
        if len(frame) > self._largest:
            text = f"the request takes {len(frame)} bytes on its way to a worker; at most {self._largest} are taken"
            raise self._failed(wire.Fault("InvalidArgument", "InvalidRequest", text, public=True))
        stream = self._expected[subject] = Answer(self._pace, self._failed, context, worker.plain)
        worker.streams[subject] = stream
        self._departures.begin(worker_id, stream)
        stream.on_nonsense = lambda: self.distrusted.add(worker_id)

        def ended() -> None:
            self._expected.pop(subject, None)
            self._live.pop(subject, None)
            worker.streams.pop(subject, None)
            self._departures.end(worker_id, stream)

        stream.on_end = ended
        self._live[subject] = stream
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)
        try:
            await worker.request(frame)
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
        if self._looking is not None:
            self._looking.cancel()
        for server in self._servers:
            server.close()
        for transport in list(self._answering):
            transport.abort()
        await asyncio.sleep(0)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for worker in list(self._workers.values()):
            worker.look(now)
        for stream in list(self._live.values()):
            stream.look(now)
        # A client may have left before the worker took its request: the request waits for that all the same.
        more = self._live or any(worker.asked for worker in self._workers.values())
        self._looking = loop.call_later(LOOK_S, self._look) if more else None

    async def _home(self, host: str) -> str:
        """Where workers that reach us at this address are to answer."""
        async with self._opening:
            if host not in self._homes:
                try:
                    self._homes[host] = await self._open(host)
                except OSError as error:
                    raise WireError(f"no port to be answered on at {host}: {error}") from error
            return self._homes[host]

    async def _open(self, host: str) -> str:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Home(self._take, self._answering), host, 0, backlog=BACKLOG)
        self._servers.append(server)
        prompt_and_watched(server.sockets[0])  # as what it accepts will be
        port = server.sockets[0].getsockname()[1]
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
        self.plain = wire.Plain()
        self._transport: asyncio.WriteTransport | None = None
        self._connecting: asyncio.Task[Any] | None = None
        self._unanswered: deque[tuple[float, asyncio.Future[bytes]]] = deque()
        self._unsent: list[bytes] = []
        self._acknowledgements = wire.Acknowledgements()

    @property
    def ready(self) -> bool:
        """Whether it is connected."""
        return self._transport is not None and not self.closed

    @property
    def asked(self) -> bool:
        """Whether it has been sent requests that it has not taken."""
        return bool(self._unanswered)

    async def connected(self) -> None:
        """Be connected.

        Raises:
            GoneError: the worker does not answer.
        """
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
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bytes] = loop.create_future()
        self._unanswered.append((loop.time(), answer))
        if not self._unsent:
            loop.call_soon(self._send)
        self._unsent.append(frame)
        words = await answer
        if words:
            text = words.decode(errors="replace")
            if text.startswith("Server "):  # overloaded, unavailable
                raise GoneError(f"Unavailable: {text}")
            raise WireError(f"{self.text} refused a request: {text}")

    def look(self, now: float) -> None:
        """See whether it has had its time to take a request."""
        if self._unanswered and now - self._unanswered[0][0] > ACKNOWLEDGE_S:
            self.fail(f"took no request for {ACKNOWLEDGE_S:g} s")

    def fail(self, why: str = "is gone") -> None:
        """Give the worker up."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()
        self._lost(why)

    def _send(self) -> None:
        """Send what has come together: the worker wakes once for all of it, and begins it in one pass."""
        frames, self._unsent = b"".join(self._unsent), []
        if self._transport is not None and not self.closed:
            self._transport.write(frames)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)
        self.local_host = transport.get_extra_info("sockname")[0]
        prompt_and_watched(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        for words in self._acknowledgements.feed(data):
            if self._unanswered:
                _, answer = self._unanswered.popleft()
                if not answer.done():
                    answer.set_result(words)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._lost(f"broke off ({exc or 'closed'})")

    def _lost(self, why: str) -> None:
        gone = GoneError(f"Unavailable: {self.text} {why}")
        while self._unanswered:
            _, answer = self._unanswered.popleft()
            if not answer.done():
                answer.set_exception(gone)
        for stream in list(self.streams.values()):
            if not stream.begun:
                stream.fail(gone)
