# SPDX-License-Identifier: Apache-2.0
"""Sends tool events to the bus from a thread of its own, and never stands in a tool's way.

``publish`` appends to a bounded queue and returns. A thread encodes, sends and waits for the server's
confirmation; what is not confirmed is sent again on the next connection under the same sequence number, so
that a reader can tell a repeat. When the queue is full, progress goes first and then the oldest event. A
forked child starts anew: what the parent had queued stays the parent's.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import dataclasses
import logging
import os
import random
import sys
import threading
import time
import weakref
from dataclasses import dataclass

from tao_dynamo.bus_trouble import bus_trouble
from tao_dynamo.errors import TaoError
from tool_hooks.events import DEFAULT_NAMESPACE, ToolEvent, encode, encode_envelope, subject
from tool_hooks.nats_wire import NatsConnection, NatsOptions

log = logging.getLogger("tool_hooks")
log.addHandler(logging.NullHandler())

QUEUE_SIZE = 10_000
BATCH = 256
EXIT_FLUSH_S = 1.0
_IDLE_S = 20.0
_BACKOFF_S = (0.1, 2.0)
_WARN_EVERY_S = 60.0


@dataclass(frozen=True)
class Counters:
    """What became of the events: ``accepted`` = ``sent`` + ``dropped`` + still queued."""

    accepted: int = 0
    sent: int = 0
    dropped: int = 0
    too_large: int = 0
    errors: int = 0
    connects: int = 0


class Publisher:
    """A queue and a thread that empties it into NATS.

    Args:
        namespace: of the subject ``namespace.{namespace}.agent-tool-events``; default ``DYN_NAMESPACE``, else
            ``dynamo``.
        options: servers and credentials; default from the environment.
        queue_size: events kept while the bus is away.
        timeout_s: of connecting, and of one confirmation.

    Every method may be called from any thread. ``publish`` never blocks and never raises.
    """

    def __init__(
        self,
        *,
        namespace: str | None = None,
        options: NatsOptions | None = None,
        queue_size: int = QUEUE_SIZE,
        timeout_s: float = 2.0,
    ) -> None:
        self.subject = subject(namespace or os.environ.get("DYN_NAMESPACE") or DEFAULT_NAMESPACE)
        self._options = options or NatsOptions.from_env()
        self._queue_size = max(1, queue_size)
        self._timeout_s = timeout_s
        self._warned: dict[str, float] = {}
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self.publisher_id = random.SystemRandom().getrandbits(53)
        self.last_error: str | None = None
        self._sequence = 0
        self._queue: collections.deque[ToolEvent] = collections.deque()
        self._unconfirmed: list[bytes] = []
        self._in_hand = 0
        # Reentrant: a signal handler may publish while its thread is in here.
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._connection: NatsConnection | None = None
        self._closing = False
        self._away = False
        self._counters = Counters()

    @property
    def counters(self) -> Counters:
        """The counts so far."""
        return self._counters

    @property
    def sent(self) -> int:
        """Events that the server has confirmed."""
        return self._counters.sent

    @property
    def dropped(self) -> int:
        """Events that were given up: the queue was full, or the server would not take them."""
        return self._counters.dropped

    @property
    def errors(self) -> int:
        """Failed attempts to connect or send; a failed attempt drops nothing."""
        return self._counters.errors

    @property
    def connected(self) -> bool:
        """True while a connection to the bus stands, as far as is known."""
        return self._connection is not None

    def publish(self, event: ToolEvent) -> bool:
        """Queue an event. False when it was dropped on the spot (queue full, publisher closed)."""
        with self._changed:
            self._count(accepted=1)
            full = len(self._queue) + self._in_hand >= self._queue_size
            if self._closing or (full and (event.kind == "tool_progress" or not self._queue)):
                self._count(dropped=1)
                return False
            if full:
                self._queue.popleft()
                self._count(dropped=1)
            self._queue.append(event)
            if self._thread is None:
                self._start()
            self._changed.notify_all()
        return True

    def flush(self, timeout: float = EXIT_FLUSH_S) -> bool:
        """Wait until everything queued is confirmed or dropped; False when ``timeout`` seconds were too
        few.
        """
        with self._changed:
            return self._changed.wait_for(self._is_empty, timeout)

    def close(self, timeout: float = EXIT_FLUSH_S) -> bool:
        """Send what is left, for at most ``timeout`` seconds (not at all while the bus is known to be
        away), and stop.
        """
        with self._changed:
            done = self._changed.wait_for(lambda: self._is_empty() or self._away, timeout) and self._is_empty()
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if done and thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
        with self._changed:
            self._count(dropped=len(self._queue) + self._in_hand)
            self._queue.clear()
            self._in_hand = 0
        _all.discard(self)
        return done

    def _is_empty(self) -> bool:
        return not self._queue and not self._in_hand

    def _count(self, **more: int) -> None:
        values = {name: getattr(self._counters, name) + n for name, n in more.items()}
        self._counters = dataclasses.replace(self._counters, **values)

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="tao-tool-events", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no new threads while the interpreter shuts down
            self._warn("thread", f"tool events are not sent: {error}")
            return
        self._thread = thread
        _flush_in_multiprocessing_children(self)

    def _run(self) -> None:
        lowest, highest = _BACKOFF_S
        wait = lowest
        while self._next_batch():
            if self._try_send():
                wait = lowest
                continue
            with self._changed:
                self._changed.wait_for(lambda: self._closing, wait * random.uniform(0.5, 1.0))
            wait = min(highest, wait * 2.0)
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _try_send(self) -> bool:
        try:
            self._send_batch()
        except Exception as error:  # noqa: BLE001 - whatever fails here must not reach the tool
            self._lost(error)
            return False
        return True

    def _next_batch(self) -> bool:
        """Wait for work. False when the publisher is closing."""
        while True:
            with self._changed:
                ready = self._changed.wait_for(
                    lambda: self._closing or bool(self._queue) or bool(self._in_hand), _IDLE_S
                )
                if self._closing:
                    return False
                if ready:
                    return True
            self._keep_alive()

    def _keep_alive(self) -> None:
        try:
            if self._connection is not None:
                self._connection.poll()
        except Exception as error:  # noqa: BLE001 - as above
            self._lost(error)

    def _send_batch(self) -> None:
        connection = self._connection or self._connect()
        if not self._in_hand:
            with self._changed:
                batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
                self._in_hand = len(batch)
            self._unconfirmed = self._encode_batch(batch, connection.max_payload)
        connection.publish(self.subject, self._unconfirmed)
        with self._changed:
            # close() may have given the batch up meanwhile, and counted it.
            self._count(sent=min(self._in_hand, len(self._unconfirmed)))
            self._unconfirmed, self._in_hand = [], 0
            self._changed.notify_all()

    def _encode_batch(self, batch: list[ToolEvent], max_payload: int) -> list[bytes]:
        messages = (self._encode(event, max_payload) for event in batch)
        return [message for message in messages if message is not None]

    def _encode(self, event: ToolEvent, max_payload: int) -> bytes | None:
        """An event as it goes over the wire, numbered; None when it cannot go, which is then counted."""
        try:
            message = encode_envelope(
                encode(event),
                publisher_id=self.publisher_id,
                sequence=self._sequence,
                published_at=time.time_ns() // 1_000_000,
            )
        except Exception as error:  # noqa: BLE001 - a field of the wrong type must not stop the others
            self._drop("encode", f"tool event dropped: {error}")
            return None
        if len(message) > max_payload:
            sizes = f"{len(message)} bytes, the NATS server takes {max_payload}"
            self._drop("size", f"payload too large: {sizes}; event dropped", too_large=1)
            return None
        self._sequence += 1
        return message

    def _connect(self) -> NatsConnection:
        last: Exception = OSError("no NATS server is named")
        for url in self._options.servers:
            try:
                self._connection = NatsConnection(url, self._options, timeout_s=self._timeout_s)
            except (OSError, TaoError) as error:
                last = error
                continue
            with self._changed:
                self._count(connects=1)
                self._away = False
            return self._connection
        with self._changed:
            self._away = True
            self._changed.notify_all()
        raise last

    def _lost(self, error: Exception) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        with self._changed:
            self._count(errors=1)
        trouble = bus_trouble(error, ",".join(self._options.servers), os.environ)
        self._warn("bus", f"tool events wait, the bus is away: {trouble}")

    def _drop(self, what: str, text: str, too_large: int = 0) -> None:
        with self._changed:
            self._count(dropped=1, too_large=too_large)
            self._in_hand -= 1
            self._changed.notify_all()
        self._warn(what, text)

    def _warn(self, what: str, text: str) -> None:
        """Keep the text, and log it once a minute for each kind of trouble."""
        self.last_error = text
        now = time.monotonic()
        if now - self._warned.get(what, -_WARN_EVERY_S) >= _WARN_EVERY_S:
            self._warned[what] = now
            log.warning("%s", text)


_all: weakref.WeakSet[Publisher] = weakref.WeakSet()
_default: Publisher | None = None
_default_lock = threading.Lock()
_kept_for_parent: list[object] = []


def default_publisher() -> Publisher:
    """The process's own publisher, made at first use from the environment."""
    global _default  # noqa: PLW0603 - one per process is the point
    if _default is None:
        with _default_lock:
            if _default is None:
                _default = Publisher()
    return _default


def _close_all() -> None:
    deadline = time.monotonic() + EXIT_FLUSH_S
    for publisher in list(_all):
        publisher.close(max(0.0, deadline - time.monotonic()))


def _after_fork_in_child() -> None:
    """The child has no publisher thread, and must not touch the parent's socket, lock or queue."""
    global _default_lock  # noqa: PLW0603 - the parent's may be held by a thread that is not here
    _default_lock = threading.Lock()
    for publisher in list(_all):
        # Collecting the connection would end the parent's TLS session.
        _kept_for_parent.append(publisher._connection)  # noqa: SLF001 - same module
        publisher._begin()  # noqa: SLF001 - same module


def _flush_in_multiprocessing_children(publisher: Publisher) -> None:
    """multiprocessing's children leave through os._exit, which runs its finalizers but no atexit."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        with contextlib.suppress(Exception):
            from multiprocessing.util import Finalize

            Finalize(None, publisher.close, exitpriority=10)


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
