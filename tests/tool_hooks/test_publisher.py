# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import nkeys
import pytest

from tests.tool_hooks.bus import Listener, Server, environment, free_port
from tool_hooks.events import ToolEvent
from tool_hooks.nats_wire import NatsOptions
from tool_hooks.publisher import Publisher

pytestmark = pytest.mark.nats


def event(call_id: str = "c", kind: str = "tool_start", tool_class: str = "bash") -> ToolEvent:
    return ToolEvent(kind=kind, session_id="s", tool_call_id=call_id, tool_class=tool_class, event_time_ms=1)  # type: ignore[arg-type]


def to(url: str) -> NatsOptions:
    return NatsOptions(servers=(url,))


def trouble(publisher: Publisher) -> str:
    """What the publisher says is wrong, once it does."""
    deadline = time.monotonic() + 60.0
    while publisher.last_error is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return str(publisher.last_error)


@pytest.fixture
def publisher(server: Server) -> Iterator[Publisher]:
    made = Publisher(namespace="tao", options=to(server.url))
    yield made
    made.close()


def test_what_is_sent_is_received_once_each_in_order(publisher: Publisher, listener: Listener) -> None:
    for number in range(3000):
        assert publisher.publish(event(str(number)))
    assert publisher.flush(60)
    events = listener.wait_for(lambda events: len(events) >= 3000)
    assert [e.tool_call_id for e in events] == [str(number) for number in range(3000)]
    assert [frame.sequence for frame in listener.frames] == list(range(3000))
    assert {frame.publisher_id for frame in listener.frames} == {publisher.publisher_id}
    assert set(listener.subjects) == {"namespace.tao.agent-tool-events"}
    counters = publisher.counters
    assert (counters.accepted, counters.sent, counters.dropped, counters.errors) == (3000, 3000, 0, 0)


def test_many_threads_may_publish(publisher: Publisher, listener: Listener) -> None:
    def work(name: int) -> None:
        for number in range(200):
            publisher.publish(event(f"{name}-{number}"))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert publisher.flush(60)
    assert len({e.tool_call_id for e in listener.wait_for(lambda events: len(events) == 1600)}) == 1600


def test_the_namespace_comes_from_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Publisher(options=to(server.url)).subject == "namespace.dynamo.agent-tool-events"
    monkeypatch.setenv("DYN_NAMESPACE", "team-a")
    assert Publisher(options=to(server.url)).subject == "namespace.team-a.agent-tool-events"


def test_a_bus_that_comes_late_gets_everything() -> None:
    server = Server()
    publisher = Publisher(options=to(server.url))
    for number in range(100):
        publisher.publish(event(str(number)))
    assert "the bus is away" in trouble(publisher)
    assert not publisher.flush(0)
    assert publisher.counters.errors > 0
    server.start()
    listener = Listener(server.port)
    try:
        assert publisher.flush(60)
        publisher.publish(event("after"))
        assert publisher.flush(60)
        heard = listener.wait_for(lambda events: bool(events) and events[-1].tool_call_id == "after")
        # NATS keeps nothing for a late listener: those before it subscribed are gone, none after.
        numbers = [int(e.tool_call_id) for e in heard[:-1]]
        assert numbers == list(range(100))[100 - len(numbers) :]
        assert (publisher.sent, publisher.dropped) == (101, 0)
    finally:
        publisher.close()
        listener.close()
        server.stop()


def test_a_bus_that_goes_and_comes_back_loses_nothing() -> None:
    server = Server().start()
    publisher = Publisher(options=to(server.url), timeout_s=1.0)
    try:
        publisher.publish(event("before"))
        assert publisher.flush(60)
        server.stop()
        for number in range(50):
            publisher.publish(event(str(number)))
        time.sleep(0.3)
        server.start()
        assert publisher.flush(60)
        assert (publisher.sent, publisher.dropped) == (51, 0)
        assert publisher.counters.connects >= 2
    finally:
        publisher.close()
        server.stop()


def test_a_bus_that_hangs_holds_nobody_up() -> None:
    server = Server().start()
    publisher = Publisher(options=to(server.url), timeout_s=120.0)
    try:
        publisher.publish(event())
        assert publisher.flush(60)
        server.freeze()
        begun = time.perf_counter()
        for number in range(1000):
            publisher.publish(event(str(number)))
        assert not publisher.close(0.2)
        assert time.perf_counter() - begun < 60.0  # one wait for the bus would be 120
        assert publisher.sent + publisher.dropped == 1001
    finally:
        server.stop()


def test_a_full_queue_gives_up_progress_first_and_then_the_oldest() -> None:
    publisher = Publisher(options=to(f"nats://127.0.0.1:{free_port()}"), queue_size=3)
    try:
        for number in range(3):
            assert publisher.publish(event(str(number)))
        assert not publisher.publish(event("p", kind="tool_progress"))
        assert publisher.publish(event("3"))
        assert [e.tool_call_id for e in publisher._queue] == ["1", "2", "3"]
        assert publisher.dropped == 2
    finally:
        publisher.close(0)
    assert publisher.dropped == 5


def test_a_payload_over_the_servers_limit_is_dropped_naming_both_sizes(
    publisher: Publisher, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    publisher.publish(event("huge", tool_class="x" * 3_000_000))
    publisher.publish(event("small"))
    assert publisher.flush(60)
    assert [e.tool_call_id for e in listener.wait_for(lambda events: len(events) == 1)] == ["small"]
    assert publisher.last_error is not None
    assert "payload too large: 30" in publisher.last_error
    assert "takes 1048576" in publisher.last_error
    assert publisher.last_error in caplog.text
    counters = publisher.counters
    assert (counters.sent, counters.dropped, counters.too_large, counters.errors) == (1, 1, 1, 0)
    assert listener.frames[0].sequence == 0


def test_an_event_that_cannot_be_written_is_dropped_alone(publisher: Publisher, listener: Listener) -> None:
    publisher.publish(event("bad", tool_class=object()))  # type: ignore[arg-type]
    publisher.publish(event("good"))
    assert publisher.flush(60)
    assert [e.tool_call_id for e in listener.wait_for(lambda events: len(events) == 1)] == ["good"]
    assert publisher.dropped == 1


def test_after_close_events_are_dropped_and_counted(publisher: Publisher) -> None:
    publisher.publish(event())
    assert publisher.close(60)
    assert publisher.close(60)
    assert not publisher.publish(event())
    assert (publisher.sent, publisher.dropped) == (1, 1)


FORKING = """
import os, sys
from tool_hooks import tool_call, default_publisher
with tool_call("parent", session_id="s"):
    pid = os.fork()
    if pid == 0:
        with tool_call("child", session_id="s"):
            pass
        sys.exit(0)
    os.waitpid(pid, 0)
assert default_publisher().flush(60)
assert default_publisher().sent == 2, default_publisher().counters
"""


def test_a_fork_neither_repeats_nor_loses_events(server: Server, listener: Listener) -> None:
    subprocess.run([sys.executable, "-c", FORKING], env=environment(server), check=True, timeout=30)
    listener.wait_for(lambda events: len(events) >= 4)
    by_class = {(f.event.tool_class, f.event.kind): f for f in listener.frames}
    assert len(listener.frames) == len(by_class) == 4
    parent, child = by_class["parent", "tool_end"], by_class["child", "tool_end"]
    assert parent.publisher_id != child.publisher_id
    assert (parent.sequence, child.sequence) == (1, 1)


def _in_child(url: str) -> None:
    Publisher(options=to(url)).publish(event("from a process"))


def test_a_multiprocessing_child_flushes_before_it_leaves(server: Server, listener: Listener) -> None:
    child = multiprocessing.get_context("spawn").Process(target=_in_child, args=(server.url,))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    listener.wait_for(lambda events: len(events) == 1)


AT_EXIT = """
from tool_hooks import tool_call
with tool_call("x", session_id="s"):
    pass
"""


def test_the_end_of_the_program_flushes(server: Server, listener: Listener) -> None:
    subprocess.run([sys.executable, "-c", AT_EXIT], env=environment(server), check=True, timeout=30)
    listener.wait_for(lambda events: [e.kind for e in events] == ["tool_start", "tool_end"])


def test_the_end_of_the_program_does_not_wait_for_a_bus_that_is_away() -> None:
    env = environment(None, NATS_SERVER=f"nats://127.0.0.1:{free_port()}")
    program = AT_EXIT + "import time; time.sleep(0.5); t = time.monotonic()\nimport atexit, os\n"
    program += "from tool_hooks import default_publisher\n"
    program += "default_publisher().close(120.0); assert time.monotonic() - t < 60.0, time.monotonic() - t"
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, timeout=150, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("options", "right", "wrong"),
    [
        (["--user", "u", "--pass", "p@ss"], {"user": "u", "password": "p@ss"}, {"user": "u", "password": "x"}),
        (["--auth", "tok"], {"token": "tok"}, {"token": "no"}),
    ],
)
def test_passwords_and_tokens(options: list[str], right: dict[str, str], wrong: dict[str, str]) -> None:
    server = Server(*options).start()
    try:
        accepted = Publisher(options=NatsOptions(servers=(server.url,), **right))  # type: ignore[arg-type]
        accepted.publish(event())
        assert accepted.close(60)
        refused = Publisher(options=NatsOptions(servers=(server.url,), **wrong))  # type: ignore[arg-type]
        refused.publish(event())
        assert "Authorization Violation" in trouble(refused)
        assert not refused.flush(0)
        refused.close(0)
    finally:
        server.stop()


def test_an_nkey_signs_the_servers_nonce(tmp_path: Path) -> None:
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    config = tmp_path / "nats.conf"
    public = nkeys.from_seed(bytearray(seed)).public_key.decode()
    config.write_text(f"authorization {{ users = [ {{ nkey: {public} }} ] }}")
    server = Server("-c", str(config)).start()
    try:
        env = {"NATS_SERVER": server.url, "NATS_AUTH_NKEY": seed.decode()}
        accepted = Publisher(options=NatsOptions.from_env(env))
        accepted.publish(event())
        assert accepted.close(60), accepted.last_error
        stranger = Publisher(options=to(server.url))
        stranger.publish(event())
        assert not stranger.flush(0.3)
        stranger.close(0)
    finally:
        server.stop()


def test_a_credentials_file_without_its_blocks_is_said_to_be_wrong(server: Server, tmp_path: Path) -> None:
    creds = tmp_path / "user.creds"
    creds.write_text("nothing")
    env = {"NATS_SERVER": server.url, "NATS_AUTH_CREDENTIALS_FILE": str(creds)}
    publisher = Publisher(options=NatsOptions.from_env(env))
    publisher.publish(event())
    assert "NATS_AUTH_CREDENTIALS_FILE: no block 'NATS USER JWT'" in trouble(publisher)
    assert not publisher.flush(0)
    publisher.close(0)


def test_tls_with_a_certificate_of_our_own(tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-keyout",
            str(key),
            "-out",
            str(cert),
        ],
        check=True,
        capture_output=True,
    )
    server = Server("--tls", "--tlscert", str(cert), "--tlskey", str(key)).start()
    try:
        env = {"NATS_SERVER": server.url, "NATS_TLS_CA_CERT_PATH": str(cert)}
        trusted = Publisher(options=NatsOptions.from_env(env))
        trusted.publish(event())
        assert trusted.close(60)
        stranger = Publisher(options=to(server.url))
        stranger.publish(event())
        assert "NATS_TLS_CA_CERT_PATH: got None" in trouble(stranger)
        assert not stranger.flush(0)
        stranger.close(0)
    finally:
        server.stop()


def test_the_second_server_is_taken_when_the_first_is_away(server: Server, listener: Listener) -> None:
    env = {"NATS_SERVER": f"nats://127.0.0.1:{free_port()}, {server.url}"}
    publisher = Publisher(options=NatsOptions.from_env(env))
    publisher.publish(event())
    assert publisher.close(60)
    listener.wait_for(lambda events: len(events) == 1)


def test_something_that_is_no_nats_server_is_said_to_be_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as impostor:
        publisher = Publisher(options=to(f"nats://127.0.0.1:{impostor.getsockname()[1]}"), timeout_s=0.5)
        publisher.publish(event())
        peer, _ = impostor.accept()
        with peer:
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n")
            assert "not a NATS server" in trouble(publisher)
        assert not publisher.flush(0)
        publisher.close(0)


def test_secrets_do_not_show() -> None:
    assert "hush" not in repr(NatsOptions.from_env({"NATS_AUTH_PASSWORD": "hush", "NATS_AUTH_TOKEN": "hush"}))


def test_importing_the_shim_starts_no_thread() -> None:
    code = "import threading, tool_hooks.publisher, tool_hooks.call; assert threading.active_count() == 1"
    subprocess.run([sys.executable, "-c", code], env=environment(None), check=True, timeout=30)


def test_an_idle_connection_answers_the_servers_pings(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tool_hooks.publisher._IDLE_S", 0.05)
    publisher = Publisher(options=to(server.url))
    publisher.publish(event())
    assert publisher.flush(60)
    time.sleep(0.3)
    publisher.publish(event())
    assert publisher.close(60)
    assert (publisher.counters.connects, publisher.errors) == (1, 0)
