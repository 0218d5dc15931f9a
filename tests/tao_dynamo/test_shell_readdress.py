# SPDX-License-Identifier: Apache-2.0
"""The address in a record of Dynamo's discovery in files. The record is one that Dynamo 1.6.1 wrote."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tao_dynamo.errors import DiscoveryError
from tao_dynamo.shell.readdress import changed, quoted, readdress

OLD = "192.0.2.2:45085/5eed77289285df28/tao/router/generate"
NEW = "192.0.2.2:46797/5eed77289285df28/tao/router/generate"
KEY = "tao/router/generate/5eed77289285df28"
FILE = "v1/instances/tao%2Frouter%2Fgenerate%2F5eed77289285df28"
RECORD = (
    b'{"type":"Endpoint","component":"router","endpoint":"generate","namespace":"tao",'
    b'"instance_id":6840254425186295592,"transport":{"tcp":"192.0.2.2:45085/5eed77289285df28/tao/router/generate"},'
    b'"device_type":"cuda","request_plane_codec":"msgpack"}'
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "v1/instances").mkdir(parents=True)
    (tmp_path / FILE).write_bytes(RECORD)
    (tmp_path / FILE.replace("generate", "status")).write_bytes(b"another's")
    return tmp_path


def env(store: Path) -> dict[str, str]:
    return {"DYN_DISCOVERY_BACKEND": "file", "DYN_FILE_KV": str(store)}


def files(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


async def test_the_address_is_another_and_all_else_as_it_was(store: Path) -> None:
    before = files(store)
    await readdress(env(store), KEY, OLD, NEW)
    assert files(store) == before | {FILE: RECORD.replace(b":45085/", b":46797/")}
    await readdress(env(store), KEY, NEW, OLD)
    assert files(store) == before


@pytest.mark.parametrize("mode", [0o644, 0o600, 0o664])
async def test_the_file_keeps_its_mode(store: Path, mode: int) -> None:
    (store / FILE).chmod(mode)
    await readdress(env(store), KEY, OLD, NEW)
    assert (store / FILE).stat().st_mode & 0o7777 == mode


async def test_a_reader_sees_the_old_record_or_the_new_one(store: Path) -> None:
    """The file is another one, not the old one written over."""
    with (store / FILE).open("rb") as reader:
        await readdress(env(store), KEY, OLD, NEW)
        assert reader.read() == RECORD


async def test_without_a_folder_named_it_is_dynamos(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = store / "tmp"
    parent.mkdir()
    (store / "v1").rename(parent / "v1")
    parent.rename(store / "dynamo_store_kv")
    monkeypatch.setattr(tempfile, "tempdir", str(store))
    await readdress({"DYN_DISCOVERY_BACKEND": "file", "DYN_FILE_KV": ""}, KEY, OLD, NEW)
    assert b":46797/" in (store / "dynamo_store_kv" / FILE).read_bytes()


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (RECORD.replace(b"45085", b"45086"), f"has the address '192.0.2.2:45086/.*', not '{OLD}'"),
        (RECORD.replace(b'"tcp"', b'"nats_tcp"'), f"has the address None, not '{OLD}'"),
        (RECORD.replace(b'"transport"', b'"ways"'), "cannot be read: .*transport"),
        (RECORD.replace(b'{"tcp"', b'["tcp"').replace(b'generate"},"dev', b'generate"],"dev'), "cannot be read"),
        (RECORD[:-1], "cannot be read"),
        (RECORD + b"}", "cannot be read"),
        (b"", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"[]", "cannot be read"),
    ],
)
async def test_a_record_that_is_not_ours_stays_as_it_is(store: Path, record: bytes, why: str) -> None:
    (store / FILE).write_bytes(record)
    before = files(store)
    with pytest.raises(DiscoveryError, match=why):
        await readdress(env(store), KEY, OLD, NEW)
    assert files(store) == before


async def test_no_record(store: Path) -> None:
    before = files(store)
    with pytest.raises(DiscoveryError, match=r"generate%2F1: .*No such file"):
        await readdress(env(store), "tao/router/generate/1", OLD, NEW)
    with pytest.raises(DiscoveryError, match="No such file"):
        await readdress(env(store / "nowhere"), KEY, OLD, NEW)
    assert files(store) == before


@contextlib.contextmanager
def locked(store: Path, folder: Path) -> Iterator[None]:
    """A folder that may not be written to, by somebody who is not the superuser, who may write everywhere."""
    user, nobody = os.geteuid(), 65534
    if user == 0:
        for path in (store, *store.rglob("*")):
            os.chown(path, nobody, -1)
        os.seteuid(nobody)
    folder.chmod(0o555)
    try:
        yield
    finally:
        folder.chmod(0o755)
        if user == 0:
            os.seteuid(0)


@pytest.mark.parametrize("folder", ["", "v1/instances"])
async def test_a_folder_that_may_not_be_written_to(folder: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        store = Path(name)
        (store / FILE).parent.mkdir(parents=True)
        (store / FILE).write_bytes(RECORD)
        with locked(store, store / folder):
            with pytest.raises(DiscoveryError, match="Permission denied"):
                await readdress(env(store), KEY, OLD, NEW)
            assert files(store) == {FILE: RECORD}


@pytest.mark.parametrize("given", [{"DYN_DISCOVERY_BACKEND": "kubernetes"}, {"DYN_DISCOVERY_BACKEND": "mem"}])
async def test_other_backends_are_left_alone(given: dict[str, str]) -> None:
    name = given["DYN_DISCOVERY_BACKEND"]
    with pytest.raises(
        DiscoveryError, match=f"DYN_DISCOVERY_BACKEND={name}: records are changed with etcd and file only"
    ):
        await readdress(given, KEY, OLD, NEW)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("tao/router/get_overlap_scores/5eed77289285df28", "tao%2Frouter%2Fget%5Foverlap%5Fscores%2F5eed77289285df28"),
        ("kv-events", "kv%2Devents"),
        (
            "workers/backend/worker_kv_query_source_156efbf7a69acd/8368bc60f5a430a4",
            "workers%2Fbackend%2Fworker%5Fkv%5Fquery%5Fsource%5F156efbf7a69acd%2F8368bc60f5a430a4",
        ),
        ("a.b~c d", "a%2Eb%7Ec%20d"),
        ("ü²", "%C3%BC%C2%B2"),
        ("", ""),
    ],
)
def test_keys_are_named_as_dynamo_names_their_files(key: str, name: str) -> None:
    """The first three as Dynamo 1.6.1 was seen to write them."""
    assert quoted(key) == name


def test_numbers_and_what_is_new_in_a_record_stay() -> None:
    whole: dict[str, Any] = json.loads(RECORD) | {"instance_id": 2**64 - 1, "new": [{"half": 0.5, "none": None}]}
    record = json.loads(changed(json.dumps(whole).encode(), OLD, NEW))
    assert record == whole | {"transport": {"tcp": NEW}}
    assert list(record) == list(whole)
