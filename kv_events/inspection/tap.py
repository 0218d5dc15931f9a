# SPDX-License-Identifier: Apache-2.0
"""A listener for people: all four topics of every namespace, and what to leave out when there is too much.

It only subscribes. What waits for it is bounded, here and in the server, which drops a reader that lags and nobody
else; so the bus never feels it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import nats
import nats.errors

from kv_events import wire
from kv_events.reader import BusOptions
from kv_events.recording import Message
from tao_dynamo.bus_trouble import bus_trouble

if TYPE_CHECKING:
    from typing_extensions import Self

TOPICS: Final = (wire.KV_EVENTS, wire.KV_METRICS, wire.FORWARD_METRICS, wire.TOOL_EVENTS)
SUBJECTS: Final = (
    *(f"namespace.*.component.*.endpoint.*.{topic}" for topic in TOPICS[:3]),
    f"namespace.*.{wire.TOOL_EVENTS}",
)
_WINDOW_S: Final = 0.1


class Sampler:
    """Lets at most ``rate`` messages a second through, drawn at random from all, by how many came just before.

    Args:
        rate: messages a second; 0: all.
        rng: draws; not every k-th, since publishers take turns and one of them would never be seen.
    """

    def __init__(self, rate: float, rng: random.Random | None = None) -> None:
        self.seen = 0
        self.taken = 0
        self._window = max(_WINDOW_S, 1 / rate) if rate else _WINDOW_S
        self._budget = rate * self._window
        self._draw = (rng or random.Random()).random
        self._stride = 1.0
        self._begun = float("-inf")
        self._here = 0
        self._let = 0

    def admit(self, t: float) -> bool:
        """Whether the message that came at time ``t`` (seconds, going forward) is one of those."""
        self.seen += 1
        if self._budget:
            past = t - self._begun
            if past >= self._window:
                self._stride = max(1.0, self._here * self._window / (past * self._budget))
                self._begun, self._here, self._let = t, 0, 0
            self._here += 1
            if self._let >= self._budget or (self._stride > 1.0 and self._draw() * self._stride >= 1.0):
                return False
            self._let += 1
        self.taken += 1
        return True


class Tap:
    """What is heard, and what was lost on the way.

    Args:
        options: where the bus is.
        handle: gets every message, on the event loop; to be quick about it.
        subjects: what to listen to.
    """

    def __init__(
        self, options: BusOptions, handle: Callable[[Message], None], subjects: Sequence[str] = SUBJECTS
    ) -> None:
        self.dropped = 0
        """Messages that came faster than they could be handled."""
        self.outages = 0
        self.begun = 0.0
        self._options = options
        self._handle = handle
        self._subjects = subjects
        self._client: Any = None
        self._last_error: Exception | None = None

    @property
    def connected(self) -> bool:
        """Whether the bus is there now."""
        return self._client is not None and bool(self._client.is_connected)

    async def __aenter__(self) -> Self:
        # nats-py ends a refused TLS connection in a way that asyncio remarks on.
        logging.getLogger("asyncio").setLevel(logging.ERROR)
        client = nats.NATS()
        try:
            await client.connect(
                **self._options.arguments(),
                name="tao-events",
                connect_timeout=5,
                # A client that may reconnect tries for ever inside its first connect, whatever refused it.
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0.2,
                error_cb=self._on_error,
                disconnected_cb=self._on_disconnected,
            )
        except (OSError, nats.errors.Error, asyncio.TimeoutError) as error:
            raise bus_trouble(self._last_error or error, ",".join(self._options.servers), os.environ) from error
        # From now on for ever.
        client.options["allow_reconnect"] = True
        client.options["max_reconnect_attempts"] = -1
        client.options["reconnect_time_wait"] = self._options.reconnect_wait_s
        self.begun = time.monotonic()
        for subject in self._subjects:
            await client.subscribe(
                subject,
                cb=self._on_message,
                pending_msgs_limit=self._options.pending_messages,
                pending_bytes_limit=self._options.pending_bytes,
            )
        await client.flush(5)
        self._client = client
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.settle()
        client, self._client = self._client, None
        with contextlib.suppress(Exception):
            await asyncio.wait_for(client.close(), 2.0)

    async def settle(self) -> None:
        """Take in what the server has sent so far, as far as that is done within some seconds."""
        with contextlib.suppress(Exception):
            await self._client.flush(10)

    async def publish(self, subject: str, data: bytes) -> None:
        """Publish a message; the one thing here that is more than listening, for ``tao-events replay``."""
        await self._client.publish(subject, data)

    async def flush(self) -> None:
        """Wait until the server has what was published."""
        await self._client.flush(10)

    async def _on_message(self, message: Any) -> None:
        self._handle(Message(time.monotonic() - self.begun, message.subject, message.data))

    async def _on_error(self, error: Exception) -> None:
        self._last_error = error
        if isinstance(error, nats.errors.SlowConsumerError):
            self.dropped += 1

    async def _on_disconnected(self) -> None:
        if self._client is not None:
            self.outages += 1


def stop_on_signals() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


async def wait(stop: asyncio.Event, seconds: float | None) -> bool:
    """Wait for the event, at most so many seconds (None: for ever); return whether it was set."""
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
    return stop.is_set()
