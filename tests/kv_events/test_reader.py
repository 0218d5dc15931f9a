# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import nats
import pytest

from kv_events.follow import Follower
from kv_events.index import BlockIndex
from kv_events.reader import BusOptions, Connection, EventReader, endpoint_subjects, tool_subject
from kv_events.wire import Envelope, ForwardPass, KvBatch, KvMetrics
from tao_dynamo.errors import ConfigError
from tests.kv_events.events import A, B, C, FakeSource, chain, message, stored
from tests.kv_events.test_wire import SAMPLES

SUBJECT = "namespace.t.component.c.endpoint.e.kv-events"


class Server:
    """A nats-server on a loopback port of its own."""

    def __init__(self, *options: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    async def start(self) -> None:
        binary = Path(sys.executable).with_name("nats-server")
        argv = [str(binary), "-a", "127.0.0.1", "-p", str(self.port), *self.options]
        self.process = subprocess.Popen(  # noqa: ASYNC220 - it does not wait
            argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        for _ in range(200):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                await writer.wait_closed()
                return
            await asyncio.sleep(0.02)
        raise AssertionError("nats-server did not start")

    def stop(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(5)
            self.process = None


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    one = Server()
    await one.start()
    yield one
    one.stop()


class Ears:
    """A handler that writes everything down, and follows KV events into an index."""

    def __init__(self, source: FakeSource | None = None) -> None:
        self.follower = Follower(BlockIndex(), source, settle_s=0.0, jitter_s=0.05, spacing_s=0.0)
        self.batches: list[KvBatch] = []
        self.metrics: list[KvMetrics] = []
        self.passes: list[ForwardPass] = []
        self.tools: list[bytes] = []
        self.states: list[Connection] = []
        self.dropped: list[str] = []
        self.delay_s = 0.0

    async def on_kv_events(self, envelope: Envelope, batch: KvBatch) -> None:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        self.batches.append(batch)
        await self.follower.on_kv_events(envelope, batch)

    def on_kv_metrics(self, metrics: KvMetrics) -> None:
        self.metrics.append(metrics)

    def on_forward_pass(self, metrics: ForwardPass) -> None:
        self.passes.append(metrics)

    def on_tool_event(self, data: bytes, namespace: str) -> None:
        self.tools.append(data)

    def on_connection(self, state: Connection) -> None:
        self.states.append(state)
        self.follower.on_connection(state)

    def on_dropped(self, subject: str) -> None:
        self.dropped.append(subject)
        self.follower.on_dropped(subject)


async def until(what: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, "it never came about"
        await asyncio.sleep(0.01)


def sample(name: str) -> bytes:
    import base64

    return base64.b64decode((SAMPLES / f"{name}.b64").read_text())


def test_options_come_from_the_variables_that_dynamo_reads() -> None:
    options = BusOptions.from_env(
        {
            "NATS_SERVER": "nats://a:1, tls://b:2",
            "NATS_AUTH_USERNAME": "u",
            "NATS_AUTH_PASSWORD": "secret-p",
            "NATS_AUTH_TOKEN": "secret-t",
            "DYN_TAO_BUS_PENDING_MESSAGES": "17",
        }
    )
    assert options.servers == ("nats://a:1", "tls://b:2")
    assert options.pending_messages == 17
    assert "secret" not in repr(options)
    arguments = options.arguments()
    assert (arguments["user"], arguments["password"]) == ("u", "secret-p")
    assert "token" not in arguments
    assert isinstance(arguments["tls"], ssl.SSLContext)
    assert BusOptions.from_env({}).arguments() == {
        "servers": ["nats://localhost:4222"],
        "tls": None,
        "user": "user",
        "password": "user",
    }
    # What stands in the URL is for that server.
    assert BusOptions.from_env({"NATS_SERVER": "nats://me:mine@h"}).arguments()["servers"] == ["nats://me:mine@h"]
    assert "user" not in BusOptions.from_env({"NATS_SERVER": "nats://me:mine@h"}).arguments()
    assert BusOptions.from_env({"NATS_AUTH_TOKEN": "t"}).arguments()["token"] == "t"  # noqa: S105
    assert BusOptions.from_env({"NATS_AUTH_NKEY": "SU"}).arguments()["nkeys_seed_str"] == "SU"
    assert BusOptions.from_env({"NATS_AUTH_CREDENTIALS_FILE": "f"}).arguments()["user_credentials"] == "f"


def test_tls_options_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.pem")
    with pytest.raises(ConfigError, match=r"NATS_TLS_CA_CERT_PATH.*none\.pem"):
        BusOptions.from_env({"NATS_TLS_CA_CERT_PATH": missing}).tls()
    with pytest.raises(ConfigError, match=r"NATS_TLS_CLIENT_CERT_PATH.*none\.pem"):
        BusOptions.from_env({"NATS_TLS_CLIENT_CERT_PATH": missing}).tls()
    loose = BusOptions.from_env({"NATS_TLS_INSECURE": "true"}).tls()
    assert loose is not None
    assert loose.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize("value", ["0", "-3", "many"])
def test_a_bound_that_is_no_positive_number_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=f"DYN_TAO_BUS_PENDING_BYTES: got '{value}'"):
        BusOptions.from_env({"DYN_TAO_BUS_PENDING_BYTES": value})


def test_subjects() -> None:
    assert endpoint_subjects("dyn://t.c.e", ["kv-events"]) == [SUBJECT]
    assert len(endpoint_subjects("t.c.e")) == 3
    assert tool_subject("t") == "namespace.t.agent-tool-events"
    with pytest.raises(ConfigError, match=r"t\.c"):
        endpoint_subjects("t.c")


@pytest.mark.nats
async def test_all_four_topics_arrive_and_rubbish_harms_nobody(server: Server) -> None:
    ears = Ears()
    reader = EventReader(BusOptions(servers=(server.url,)), [*endpoint_subjects("t.c.e"), tool_subject("t")], ears)
    await reader.start()
    await until(lambda: reader.connected)
    client = await nats.connect(server.url)
    base = "namespace.t.component.c.endpoint.e."
    await client.publish(base + "kv-events", b"\xc1 rubbish")
    await client.publish(base + "kv-events", message([stored([1, 2])], 0))
    await client.publish(base + "kv_metrics", sample("kv_metrics"))
    await client.publish(base + "kv_metrics", sample("kv-events.stored.device"))
    await client.publish(base + "forward-pass-metrics", sample("forward-pass-metrics.decode"))
    await client.publish("namespace.t.agent-tool-events", sample("agent-tool-events.tool_end"))
    await client.publish("namespace.other.component.c.endpoint.e.kv-events", message([stored([3])], 0))
    await client.flush()
    await until(lambda: bool(ears.tools))
    await until(lambda: reader.counters.messages == 6)
    assert ears.follower.index.overlap(chain([1, 2])) == {A: 2}
    assert [metrics.kv_used_blocks for metrics in ears.metrics] == [0]
    assert ears.passes[0].counter_id == 33
    assert ears.tools == [sample("agent-tool-events.tool_end")]
    assert reader.counters.malformed == 2
    assert ears.states == [Connection.CONNECTED]
    await client.close()
    await reader.close()
    assert not reader.connected


@pytest.mark.nats
async def test_c16_a_tool_event_that_was_sent_twice_is_heard_once(server: Server) -> None:
    ears = Ears()
    reader = EventReader(BusOptions(servers=(server.url,)), [tool_subject("t")], ears)
    await reader.start()
    await until(lambda: reader.connected)
    client = await nats.connect(server.url)
    ended = sample("agent-tool-events.tool_end")
    start = msgspec.msgpack.encode({"publisher_id": 7, "sequence": 0, "published_at": 1, "payload": b"start"})
    for data in (start, ended, ended, b"\xc1", b"\xc1", ended):
        await client.publish("namespace.t.agent-tool-events", data)
    await client.flush()
    await until(lambda: reader.counters.messages == 6)
    assert ears.tools == [start, ended, b"\xc1", b"\xc1"]
    assert reader.counters.repeated_tool_events == 2
    assert reader.counters.by_topic == {"agent-tool-events": 6}
    await client.close()
    await reader.close()


@pytest.mark.nats
async def test_c16_the_bus_goes_away_and_comes_back(server: Server) -> None:
    source = FakeSource()
    ears = Ears(source)
    reader = EventReader(BusOptions(servers=(server.url,), reconnect_wait_s=0.1), [SUBJECT], ears)
    index = ears.follower.index
    await reader.start()
    await until(lambda: reader.connected)
    client = await nats.connect(server.url)
    for at, node in enumerate((A, B, C), start=1):
        await client.publish(SUBJECT, message([stored([1], node=node)], 0, publisher=at))
    await client.flush()
    await until(lambda: len(index.overlap(chain([1]))) == 3)
    await client.close()
    server.stop()
    await until(lambda: Connection.DISCONNECTED in ears.states)
    assert not reader.connected
    assert all(index.is_stale(node) for node in (A, B, C))
    assert index.overlap(chain([1])) == {A: 1, B: 1, C: 1}
    await asyncio.sleep(0.5)
    source.events = [stored([1, 2, 3]), stored([1], node=B)]
    asked = source.asked
    await server.start()
    await until(lambda: ears.states[-1] is Connection.RECONNECTED)
    assert reader.connected
    await until(lambda: not any(index.is_stale(node) for node in (A, B, C)))
    assert index.overlap(chain([1, 2, 3])) == {A: 3, B: 1}
    await asyncio.sleep(0.2)
    assert source.asked == asked + 1
    assert ears.states == [Connection.CONNECTED, Connection.DISCONNECTED, Connection.RECONNECTED]
    await reader.close()
    await ears.follower.close()


@pytest.mark.nats
async def test_c16_a_slow_reader_hears_that_messages_were_dropped_and_heals(server: Server) -> None:
    source = FakeSource(stored(range(1, 301)))
    ears = Ears(source)
    ears.delay_s = 0.02
    reader = EventReader(BusOptions(servers=(server.url,), pending_messages=10), [SUBJECT], ears)
    await reader.start()
    await until(lambda: reader.connected)
    client = await nats.connect(server.url)
    for at in range(1, 301):
        await client.publish(SUBJECT, message([stored([at], at - 1 if at > 1 else None, at=at)], at - 1))
    await client.flush()
    await until(lambda: bool(ears.dropped))
    ears.delay_s = 0.0
    assert ears.dropped[0] == SUBJECT
    assert reader.counters.dropped >= 1
    index = ears.follower.index
    await until(lambda: index.overlap(chain(range(1, 301))) == {A: 300} and not index.is_stale(A))
    assert len(ears.batches) < 300
    await client.close()
    await reader.close()
    await ears.follower.close()


@pytest.mark.nats
async def test_the_bus_may_come_after_us_and_the_second_server_will_do(caplog: pytest.LogCaptureFixture) -> None:
    nobody, late = Server(), Server()
    ears = Ears()
    options = BusOptions(servers=(nobody.url, late.url), reconnect_wait_s=0.1)
    reader = EventReader(options, [SUBJECT], ears)
    with caplog.at_level(logging.WARNING):
        await reader.start()
        await asyncio.sleep(1.0)
        assert not reader.connected
        assert len(caplog.records) <= 3
        await late.start()
        await until(lambda: reader.connected)
    await reader.close()
    late.stop()


@pytest.mark.nats
async def test_c16_one_replica_leaves_and_the_other_reads_on(server: Server) -> None:
    first, second = Ears(), Ears()
    readers = [EventReader(BusOptions(servers=(server.url,)), [SUBJECT], ears) for ears in (first, second)]
    for reader in readers:
        await reader.start()
    await until(lambda: all(reader.connected for reader in readers))
    client = await nats.connect(server.url)
    await client.publish(SUBJECT, message([stored([1])], 0))
    await until(lambda: len(first.batches) == len(second.batches) == 1)
    await readers[0].close()
    await client.publish(SUBJECT, message([stored([2], 1, at=2)], 1))
    await until(lambda: len(second.batches) == 2)
    assert len(first.batches) == 1
    assert second.follower.index.overlap(chain([1, 2])) == {A: 2}
    await client.close()
    await readers[1].close()


@pytest.mark.nats
async def test_a_handler_that_raises_does_not_stop_the_reader(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    ears = Ears()

    def broken(metrics: KvMetrics) -> None:
        raise ZeroDivisionError("oh")

    ears.on_kv_metrics = broken  # type: ignore[method-assign]
    reader = EventReader(BusOptions(servers=(server.url,)), endpoint_subjects("t.c.e"), ears)
    await reader.start()
    await until(lambda: reader.connected)
    client = await nats.connect(server.url)
    await client.publish(SUBJECT.replace("kv-events", "kv_metrics"), sample("kv_metrics"))
    await client.publish(SUBJECT, message([stored([1])], 0))
    await until(lambda: len(ears.batches) == 1)
    await until(lambda: reader.counters.handler_errors == 1)
    assert "oh" in caplog.text
    await client.close()
    await reader.close()


@pytest.mark.nats
@pytest.mark.parametrize(
    ("server_options", "good", "bad"),
    [
        (("--user", "u", "--pass", "p"), {"user": "u", "password": "p"}, {"user": "u", "password": "x"}),
        (("--auth", "tok"), {"token": "tok"}, {}),
    ],
)
async def test_credentials(
    server_options: tuple[str, ...], good: dict[str, str], bad: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(*server_options)
    await server.start()
    readers = [
        EventReader(BusOptions(servers=(server.url,), reconnect_wait_s=0.1, **given), [SUBJECT], Ears())  # type: ignore[arg-type]
        for given in (good, bad)
    ]
    for reader in readers:
        await reader.start()
    await until(lambda: readers[0].connected)
    await asyncio.sleep(0.5)
    assert not readers[1].connected
    assert "Authorization" in caplog.text
    for reader in readers:
        await reader.close()
    server.stop()
