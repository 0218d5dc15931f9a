# SPDX-License-Identifier: Apache-2.0
"""The subscription: bytes from NATS to decoded messages, for as long as the process lives."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import random
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import nats
from nats.errors import SlowConsumerError

from kv_events import wire
from kv_events.repeats import Repeats
from tao_dynamo.bus_trouble import DEFAULT_LOGIN, bus_trouble
from tao_dynamo.errors import ConfigError, WireError

log = logging.getLogger(__name__)

_SAY_AGAIN_S = 30.0
_MAX_KINDS = 64

TOPICS = (wire.KV_EVENTS, wire.KV_METRICS, wire.FORWARD_METRICS)


def endpoint_subjects(endpoint: str, topics: Sequence[str] = TOPICS) -> list[str]:
    """Return the subjects of a worker endpoint, written ``namespace.component.endpoint``; ``*`` matches any."""
    parts = endpoint.removeprefix("dyn://").split(".")
    if len(parts) != 3 or not all(parts):
        raise ConfigError("endpoint", endpoint, "namespace.component.endpoint")
    namespace, component, name = parts
    return [f"namespace.{namespace}.component.{component}.endpoint.{name}.{topic}" for topic in topics]


def tool_subject(namespace: str) -> str:
    """Return the subject of a namespace's tool events."""
    return f"namespace.{namespace}.{wire.TOOL_EVENTS}"


class Connection(Enum):
    """State of the bus, as the handler hears of it."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    RECONNECTED = "reconnected"


class Handler(Protocol):
    """Whoever listens. Exceptions that a handler raises are logged and counted; the next message comes anyway."""

    async def on_kv_events(self, envelope: wire.Envelope, batch: wire.KvBatch) -> None:
        """Take one message of topic ``kv-events``."""

    def on_kv_metrics(self, metrics: wire.KvMetrics) -> None:
        """Take one message of topic ``kv_metrics``."""

    def on_forward_pass(self, metrics: wire.ForwardPass) -> None:
        """Take one message of topic ``forward-pass-metrics``."""

    def on_tool_event(self, data: bytes, namespace: str) -> None:
        """Take one message of ``agent-tool-events`` as it came, envelope and all; what was sent twice comes once.

        ``namespace`` is the one it came over: NATS can be told who may publish there.
        """

    def on_connection(self, state: Connection) -> None:
        """Hear that the bus came, went or came back. After RECONNECTED, messages may be missing."""

    def on_dropped(self, subject: str) -> None:
        """Hear that we were too slow and messages of this subject were dropped."""


@dataclass(frozen=True)
class BusOptions:
    """Where NATS is and how to prove who we are: the variables that Dynamo reads, plus bounds of our own.

    ``pending_messages`` and ``pending_bytes`` bound what waits for us per subject; beyond it the client library
    drops, and the handler hears of it.
    """

    servers: tuple[str, ...] = ("nats://localhost:4222",)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    nkey_seed: str | None = field(default=None, repr=False)
    credentials_file: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_insecure: bool = False
    pending_messages: int = 65_536
    pending_bytes: int = 128 << 20
    reconnect_wait_s: float = 1.0

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> BusOptions:
        """Read ``NATS_SERVER`` (several, with commas), ``NATS_AUTH_*``, ``NATS_TLS_*`` and our ``DYN_TAO_BUS_*``."""
        get = (os.environ if env is None else env).get
        servers = tuple(part.strip() for part in (get("NATS_SERVER") or "").split(",") if part.strip())
        return cls(
            servers=servers or cls.servers,
            user=get("NATS_AUTH_USERNAME") or None,
            password=get("NATS_AUTH_PASSWORD") or None,
            token=get("NATS_AUTH_TOKEN") or None,
            nkey_seed=get("NATS_AUTH_NKEY") or None,
            credentials_file=get("NATS_AUTH_CREDENTIALS_FILE") or None,
            tls_ca=get("NATS_TLS_CA_CERT_PATH") or None,
            tls_cert=get("NATS_TLS_CLIENT_CERT_PATH") or None,
            tls_key=get("NATS_TLS_CLIENT_KEY_PATH") or None,
            tls_insecure=(get("NATS_TLS_INSECURE") or "").lower() in ("1", "true", "yes", "on"),
            pending_messages=_positive(get, "DYN_TAO_BUS_PENDING_MESSAGES", cls.pending_messages),
            pending_bytes=_positive(get, "DYN_TAO_BUS_PENDING_BYTES", cls.pending_bytes),
        )

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context that these options ask for, None for none.

        Raises:
            ConfigError: a certificate or key cannot be read.
        """
        secure = any(server.startswith(("tls://", "wss://")) for server in self.servers)
        if not (secure or self.tls_ca or self.tls_cert or self.tls_insecure):
            return None
        try:
            context = ssl.create_default_context(cafile=self.tls_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError("NATS_TLS_CA_CERT_PATH", self.tls_ca, "a readable PEM file") from error
        if self.tls_cert:
            try:
                context.load_cert_chain(self.tls_cert, self.tls_key)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(
                    "NATS_TLS_CLIENT_CERT_PATH, NATS_TLS_CLIENT_KEY_PATH",
                    (self.tls_cert, self.tls_key),
                    "a readable PEM certificate and its key",
                ) from error
        if self.tls_insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def arguments(self) -> dict[str, Any]:
        """Return what ``nats.connect`` is to be called with; credentials in the order of Dynamo's own client."""
        given: dict[str, Any] = {"servers": list(self.servers), "tls": self.tls()}
        if any("@" in server for server in self.servers):
            return given
        if self.user is not None and self.password is not None:
            given |= {"user": self.user, "password": self.password}
        elif self.token is not None:
            given["token"] = self.token
        elif self.nkey_seed is not None:
            given["nkeys_seed_str"] = self.nkey_seed
        elif self.credentials_file is not None:
            given["user_credentials"] = self.credentials_file
        else:
            given["user"], given["password"] = DEFAULT_LOGIN
        return given


@dataclass
class ReaderCounters:
    """Messages since the reader was made."""

    messages: int = 0
    bytes: int = 0
    malformed: int = 0
    unknown_events: int = 0
    malformed_events: int = 0
    repeated_tool_events: int = 0
    """Tool events that a publisher sent again under the same number; the handler does not get them twice."""
    dropped: int = 0
    """Signals of the client library that we are too slow; each stands for at least one message."""
    handler_errors: int = 0
    disconnects: int = 0
    by_topic: dict[str, int] = field(default_factory=dict)


class EventReader:
    """Subscribes, decodes, hands over; reconnects for ever.

    ``start`` returns at once: the bus may come later. One reader never touches the subscriptions of another.
    """

    def __init__(self, options: BusOptions, subjects: Sequence[str], handler: Handler) -> None:
        self.counters = ReaderCounters()
        self._options = options
        self._arguments = options.arguments()
        self._subjects = tuple(dict.fromkeys(subjects))
        self._handler = handler
        self._task: asyncio.Task[None] | None = None
        self._client: Any = None
        self._gone = asyncio.Event()
        self._ever = False
        self._said: dict[str, float] = {}
        self._repeats = Repeats()

    @property
    def connected(self) -> bool:
        """Whether the bus is there now."""
        return self._client is not None and bool(self._client.is_connected)

    async def start(self) -> None:
        """Begin to read."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="kv_events reader")

    async def close(self) -> None:
        """Stop reading; other readers are not disturbed."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        wait = self._options.reconnect_wait_s
        try:
            while True:
                self._gone.clear()
                if await self._connect():
                    await self._gone.wait()
                await asyncio.sleep(wait * random.uniform(0.5, 1.5))
        finally:
            client, self._client = self._client, None
            if client is not None:
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(client.close(), 2.0)

    async def _connect(self) -> bool:
        client = nats.NATS()
        try:
            await asyncio.wait_for(
                client.connect(
                    **self._arguments,
                    name="tao-dynamo kv_events",
                    allow_reconnect=False,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=self._options.reconnect_wait_s,
                    connect_timeout=3,
                    ping_interval=10,
                    error_cb=self._on_error,
                    disconnected_cb=self._on_disconnected,
                    reconnected_cb=self._on_reconnected,
                    closed_cb=self._on_closed,
                ),
                10.0,
            )
            # Not before: a client that may reconnect tries for ever inside its first connect, and leaks when cancelled.
            client.options["allow_reconnect"] = True
            for subject in self._subjects:
                await client.subscribe(
                    subject,
                    cb=self._on_message,
                    pending_msgs_limit=self._options.pending_messages,
                    pending_bytes_limit=self._options.pending_bytes,
                )
            await client.flush(5)
        except BaseException as error:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(client.close(), 2.0)
            if not isinstance(error, Exception):
                raise
            # Whatever keeps us off the bus is waited out.
            self._say(f"event bus: {bus_trouble(error, ','.join(self._options.servers), os.environ)}")
            return False
        self._client = client
        self._said.clear()
        self._tell(Connection.RECONNECTED if self._ever else Connection.CONNECTED)
        self._ever = True
        return True

    async def _on_message(self, message: Any) -> None:
        counters = self.counters
        data: bytes = message.data
        topic = message.subject.rsplit(".", 1)[-1]
        counters.messages += 1
        counters.bytes += len(data)
        try:
            if topic == wire.TOOL_EVENTS:
                if self._repeated(data):
                    counters.repeated_tool_events += 1
                else:
                    self._handler.on_tool_event(data, message.subject.split(".")[1])
            elif topic == wire.KV_EVENTS:
                envelope = wire.decode_envelope(data)
                batch = wire.decode_kv_events(envelope.payload)
                counters.unknown_events += batch.unknown
                counters.malformed_events += batch.malformed
                await self._handler.on_kv_events(envelope, batch)
            elif topic == wire.KV_METRICS:
                self._handler.on_kv_metrics(wire.decode_kv_metrics(wire.decode_envelope(data).payload))
            elif topic == wire.FORWARD_METRICS:
                self._handler.on_forward_pass(wire.decode_forward_pass(wire.decode_envelope(data).payload))
            else:
                topic = "other"
        except WireError as error:
            counters.malformed += 1
            self._say(f"a message of {message.subject} cannot be read: {error}")
        except Exception:
            counters.handler_errors += 1
            log.exception("the handler of %s failed", message.subject)
        counters.by_topic[topic] = counters.by_topic.get(topic, 0) + 1

    def _repeated(self, data: bytes) -> bool:
        try:
            return self._repeats.again(wire.decode_envelope(data))
        except WireError:
            # A bare record has no envelope and no number; and what is rubbish is the handler's to count.
            return False

    async def _on_error(self, error: Exception) -> None:
        if isinstance(error, SlowConsumerError):
            self.counters.dropped += 1
            self._say(f"too slow: messages of {error.subject} are being dropped")
            self._call(self._handler.on_dropped, error.subject)
        else:
            self._say(f"event bus: {error or type(error).__name__}")

    async def _on_disconnected(self) -> None:
        if self._client is not None:
            self.counters.disconnects += 1
            self._tell(Connection.DISCONNECTED)

    async def _on_reconnected(self) -> None:
        self._said.clear()
        self._tell(Connection.RECONNECTED)

    async def _on_closed(self) -> None:
        self._client = None
        self._gone.set()

    def _tell(self, state: Connection) -> None:
        log.log(logging.WARNING if state is Connection.DISCONNECTED else logging.INFO, "event bus %s", state.value)
        self._call(self._handler.on_connection, state)

    def _call(self, handler: Any, argument: object) -> None:
        try:
            handler(argument)
        except Exception:
            self.counters.handler_errors += 1
            log.exception("the handler of %r failed", argument)

    def _say(self, text: str) -> None:
        """Log a warning, the same kind at most once in 30 s."""
        kind = text.split(":", 1)[0]
        now = time.monotonic()
        if now - self._said.get(kind, -math.inf) > _SAY_AGAIN_S:
            if len(self._said) > _MAX_KINDS:
                self._said.clear()
            self._said[kind] = now
            log.warning("%s", text)


def _positive(get: Any, name: str, default: int) -> int:
    text = get(name)
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value <= 0:
        raise ConfigError(name, text, "a positive whole number")
    return value
