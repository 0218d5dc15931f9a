# SPDX-License-Identifier: Apache-2.0
"""The address in a record of Dynamo's discovery in etcd, against a fake of etcd's JSON gateway."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tao_dynamo.errors import DiscoveryError
from tao_dynamo.shell import readdress_etcd
from tao_dynamo.shell.readdress import readdress
from tao_dynamo.shell.readdress_etcd import members
from tests.launch.secure_bus import make_certificates
from tests.tao_dynamo.fake_etcd import FakeEtcd, served

NAME = "tao/router/generate/390da22d9a157a31"
KEY = f"v1/instances/{NAME}"
OTHER_KEY = "v1/instances/tao/router/status/390da22d9a157a31"
OLD = "10.0.0.2:36583/390da22d9a157a31/tao/router/generate"
NEW = "10.0.0.2:33109/390da22d9a157a31/tao/router/generate"
LEASE = 0x390DA22D9A157A31


def record(address: str = OLD) -> bytes:
    """As Dynamo 1.6.1 was seen to write it."""
    return (
        '{"type":"Endpoint","component":"router","endpoint":"generate","namespace":"tao",'
        f'"instance_id":{LEASE},"transport":{{"tcp":"{address}"}},'
        '"device_type":"cuda","request_plane_codec":"msgpack"}'
    ).encode()


@pytest.fixture
def etcd() -> Iterator[FakeEtcd]:
    with served(with_records()) as running:
        yield running


def with_records() -> FakeEtcd:
    etcd = FakeEtcd()
    etcd.put(KEY, record(), LEASE)
    etcd.put(OTHER_KEY, record(), LEASE)
    return etcd


@pytest.fixture
def nowhere() -> Iterator[str]:
    """Where nobody listens, and nobody else can."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    make_certificates(tmp_path)
    return tmp_path


async def go(*urls: str, **more: str) -> None:
    env = {"ETCD_ENDPOINTS": ",".join(urls), **more}
    await asyncio.wait_for(readdress(env, NAME, OLD, NEW), 60)


def as_it_was(etcd: FakeEtcd) -> bool:
    return etcd.records[KEY].value == record() and etcd.records[KEY].lease == LEASE


def is_new(etcd: FakeEtcd) -> bool:
    kept = etcd.records[KEY]
    return json.loads(kept.value) == json.loads(record(NEW)) and kept.lease == LEASE


# --- what is written


@pytest.mark.parametrize("backend", [{}, {"DYN_DISCOVERY_BACKEND": "etcd"}])
async def test_the_address_is_another_and_all_else_as_it_was(etcd: FakeEtcd, backend: dict[str, str]) -> None:
    await go(etcd.url, **backend)
    assert is_new(etcd)
    assert etcd.records[OTHER_KEY].value == record()
    assert etcd.paths() == ["/v3/kv/range", "/v3/kv/txn"]


async def test_another_address_in_the_record_is_left_alone(etcd: FakeEtcd) -> None:
    etcd.put(KEY, record("10.0.0.9:1/x"), LEASE)
    with pytest.raises(DiscoveryError, match=r"has the address '10\.0\.0\.9:1/x', not"):
        await go(etcd.url)
    assert etcd.records[KEY].value == record("10.0.0.9:1/x")
    assert etcd.paths() == ["/v3/kv/range"]


async def test_no_record_is_made_where_there_is_none(etcd: FakeEtcd) -> None:
    del etcd.records[KEY]
    with pytest.raises(DiscoveryError, match=f"{KEY} in etcd: there is none"):
        await go(etcd.url)
    assert list(etcd.records) == [OTHER_KEY]


async def test_a_record_that_goes_while_it_is_changed_does_not_come_back(etcd: FakeEtcd) -> None:
    def goes(path: str) -> None:
        if path == "/v3/kv/txn":
            del etcd.records[KEY]

    etcd.before = goes
    with pytest.raises(DiscoveryError, match="there is none"):
        await go(etcd.url)
    assert list(etcd.records) == [OTHER_KEY]


async def test_a_record_written_meanwhile_is_read_again(etcd: FakeEtcd) -> None:
    def written(path: str) -> None:
        if etcd.paths() == ["/v3/kv/range", "/v3/kv/txn"]:
            etcd.put(KEY, record(), LEASE)

    etcd.before = written
    await go(etcd.url)
    assert is_new(etcd)
    assert etcd.paths() == ["/v3/kv/range", "/v3/kv/txn"] * 2


async def test_a_record_that_is_always_written_meanwhile_is_given_up(etcd: FakeEtcd) -> None:
    def written(path: str) -> None:
        if path == "/v3/kv/txn":
            etcd.put(KEY, record(), LEASE)

    etcd.before = written
    with pytest.raises(DiscoveryError, match=f"{etcd.url}: somebody else changes it"):
        await go(etcd.url)
    assert as_it_was(etcd)


# --- an answer that is lost


async def test_a_write_whose_answer_is_lost_is_not_done_twice(etcd: FakeEtcd) -> None:
    etcd.after = lambda path: path == "/v3/kv/txn"
    await go(etcd.url)
    assert is_new(etcd)
    assert etcd.paths() == ["/v3/kv/range", "/v3/kv/txn", "/v3/kv/range"]


async def test_a_write_that_may_have_been_done_is_no_error(etcd: FakeEtcd, caplog: pytest.LogCaptureFixture) -> None:
    """If it were, nobody would serve the new address, and the record might have it."""
    etcd.before = lambda path: (503, b'{"message":"no leader"}') if "/v3/kv/txn" in etcd.paths()[:-1] else None
    etcd.after = lambda path: path == "/v3/kv/txn"
    await go(etcd.url)
    assert [line.message for line in caplog.records] == ["record_unclear"]
    assert is_new(etcd)


# --- no etcd, or not for us


async def test_members_that_are_gone_are_passed_over(etcd: FakeEtcd, nowhere: str) -> None:
    await go(nowhere, etcd.url)
    assert is_new(etcd)


async def test_nobody_there(nowhere: str) -> None:
    with pytest.raises(DiscoveryError, match=rf"{KEY} in etcd: {nowhere}: .*refused; http://127\.0\.0\.1:1: .*refused"):
        await go(nowhere, "http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((404, b"404 page not found"), "/v3/kv/range: 404 Not Found"),
        ((503, b'{"error":"x","message":"etcdserver: no leader"}'), "/v3/kv/range: 503 etcdserver: no leader"),
        ((200, b"<html>"), "/v3/kv/range: .*malformed"),
        ((200, b'{"kvs":[{"value":"e30="}]}'), "/v3/kv/range: .*mod_revision"),
    ],
)
async def test_an_answer_that_is_none(etcd: FakeEtcd, answer: tuple[int, bytes], reason: str) -> None:
    etcd.before = lambda _path: answer
    with pytest.raises(DiscoveryError, match=f"{etcd.url}: {reason}"):
        await go(etcd.url)
    assert as_it_was(etcd)


async def test_one_that_says_nothing_is_given_up(etcd: FakeEtcd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readdress_etcd, "REQUEST_S", 0.2)
    over = threading.Event()

    def silent(_path: str) -> None:
        over.wait(60)

    etcd.before = silent
    with pytest.raises(DiscoveryError, match=r"/v3/kv/range: timed out"):
        await go(etcd.url)
    over.set()
    assert as_it_was(etcd)


async def test_turns_go_on_meanwhile(etcd: FakeEtcd) -> None:
    """etcd answers only once the event loop has done something else."""
    asked, went_on = threading.Event(), threading.Event()

    def wait(path: str) -> tuple[int, bytes] | None:
        asked.set()
        return None if went_on.wait(30) else (500, b"the loop stood still")

    etcd.before = wait
    going = asyncio.ensure_future(go(etcd.url))
    assert await asyncio.to_thread(asked.wait, 30)
    went_on.set()
    await going
    assert is_new(etcd)


async def test_nothing_is_begun_after_the_time(etcd: FakeEtcd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readdress_etcd, "WITHIN_S", 0.0)
    with pytest.raises(DiscoveryError, match="not within 0 s"):
        await go(etcd.url)
    assert etcd.asked == []


# --- where etcd is, and how one is let in


@pytest.mark.parametrize(
    ("env", "urls"),
    [
        ({}, ["http://localhost:2379"]),
        ({"ETCD_ENDPOINTS": "http://a:1, https://b:2"}, ["http://a:1", "https://b:2"]),
        ({"ETCD_ENDPOINTS": "a:1,"}, ["http://a:1"]),
        ({"ETCD_ENDPOINTS": "http://me:secret@a:1/x"}, ["http://a:1"]),
        (
            {"ETCD_ENDPOINTS": "a:1", "ETCD_AUTH_CA": "x", "ETCD_AUTH_CLIENT_CERT": "x", "ETCD_AUTH_CLIENT_KEY": "x"},
            ["https://a:1"],
        ),
    ],
)
def test_members(env: dict[str, str], urls: list[str]) -> None:
    assert members(env) == urls


@pytest.mark.parametrize("wrong", ["unix://a:1", "http://", "http://a:port", "http://[::1", "http://a b:1"])
async def test_an_endpoint_that_is_none(wrong: str) -> None:
    with pytest.raises(DiscoveryError, match="in etcd: "):
        await go(wrong)


def entrance(password: str) -> dict[str, str]:
    return {"ETCD_AUTH_USERNAME": "dyn", "ETCD_AUTH_PASSWORD": password}


async def test_user_and_password(etcd: FakeEtcd) -> None:
    etcd.users = {"dyn": "secret"}
    await go(etcd.url, **entrance("secret"))
    assert is_new(etcd)


async def test_a_wrong_password(etcd: FakeEtcd) -> None:
    etcd.users = {"dyn": "secret"}
    with pytest.raises(DiscoveryError, match=r"authenticate: 400 etcdserver: authentication failed") as told:
        await go(etcd.url, **entrance("guessed"))
    assert "guessed" not in str(told.value)
    assert as_it_was(etcd)


def both_sides(folder: Path) -> ssl.SSLContext:
    """A server's TLS that asks for a certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.pem")
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.mark.parametrize("texts", [True, False])
async def test_certificates(certificates: Path, monkeypatch: pytest.MonkeyPatch, texts: bool) -> None:
    """Given as texts, as Dynamo reads them, or as paths; a key's text is left in no file."""
    scratch = certificates / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    files = {"CA": "ca.pem", "CLIENT_CERT": "client.pem", "CLIENT_KEY": "client.key"}
    paths = {f"ETCD_AUTH_{name}": certificates / file for name, file in files.items()}
    given = {name: path.read_text() if texts else str(path) for name, path in paths.items()}
    with served(with_records(), both_sides(certificates)) as etcd:
        await go(etcd.url, **given)
        assert is_new(etcd)
    assert list(scratch.iterdir()) == []


async def test_a_server_that_nobody_vouches_for(certificates: Path) -> None:
    with served(with_records(), both_sides(certificates)) as etcd:
        with pytest.raises(DiscoveryError, match="CERTIFICATE_VERIFY_FAILED"):
            await go(etcd.url)
        assert as_it_was(etcd)


async def test_certificates_that_are_not_there(etcd: FakeEtcd, certificates: Path) -> None:
    with pytest.raises(DiscoveryError, match="No such file"):
        await go(etcd.url.replace("http:", "https:"), ETCD_AUTH_CA=str(certificates / "none.pem"))
