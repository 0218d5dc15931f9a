# SPDX-License-Identifier: Apache-2.0
"""Changes in Dynamo's discovery where an endpoint of ours takes its requests.

Dynamo writes there where its own server listens, and has no setting for another place. So the record is changed after
it was written: the one key of this process, in its own lease, the address in it and nothing else. Records in files and
in etcd are changed; Kubernetes' are not, since Dynamo keeps all of a process in one resource and writes it over.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec

from tao_dynamo.errors import DiscoveryError
from tao_dynamo.shell import readdress_etcd

BACKENDS = ("etcd", "file")
"""Values of ``DYN_DISCOVERY_BACKEND`` whose records can be changed."""
_FOLDER = "v1/instances"


class _Record(msgspec.Struct):
    """The part of a record that is read: ``{"transport": {"tcp": "host:port/path"}, ...}``."""

    transport: dict[str, str]


async def readdress(env: Mapping[str, str], key: str, old: str, new: str) -> None:
    """Put another address in the place of the present one.

    Args:
        env: where Dynamo reads which discovery it uses.
        key: namespace/component/endpoint/instance id, the latter in hexadecimal.
        old: host:port/path, as Dynamo wrote it.
        new: what is to be there.

    Raises:
        DiscoveryError: it cannot be done; all is as it was.
    """
    backend = env.get("DYN_DISCOVERY_BACKEND", "etcd")
    if backend not in BACKENDS:
        raise DiscoveryError(f"DYN_DISCOVERY_BACKEND={backend}: records are changed with {' and '.join(BACKENDS)} only")
    if backend == "etcd":
        change = partial(changed, old=old, new=new)
        await asyncio.to_thread(readdress_etcd.exchange, env, f"{_FOLDER}/{key}", change)
        return
    _in_file(Path(env.get("DYN_FILE_KV") or Path(tempfile.gettempdir()) / "dynamo_store_kv"), key, old, new)


def changed(record: bytes, old: str, new: str) -> bytes:
    """A record with the new address.

    Raises:
        DiscoveryError: it is not as Dynamo 1.6 writes it, or has another address.
    """
    try:
        found = msgspec.json.decode(record, type=_Record).transport.get("tcp")
    except msgspec.MsgspecError as error:
        raise DiscoveryError(f"a record in Dynamo's discovery that cannot be read: {error}") from error
    if found != old:
        raise DiscoveryError(f"the record in Dynamo's discovery has the address {found!r}, not {old!r}")
    whole = msgspec.json.decode(record)
    whole["transport"]["tcp"] = new
    return msgspec.json.encode(whole)


def _in_file(store: Path, key: str, old: str, new: str) -> None:
    path = store / _FOLDER / quoted(key)
    try:
        record = changed(path.read_bytes(), old, new)
        # Not in the folder of the records, where it would be taken for one; then into its place at once.
        handle, name = tempfile.mkstemp(prefix=".tao-", dir=store)
        try:
            with os.fdopen(handle, "wb") as file:
                os.fchmod(handle, path.stat().st_mode)
                file.write(record)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise DiscoveryError(f"the record in Dynamo's discovery, {path}: {error}") from error


def quoted(key: str) -> str:
    """The name of a key's file: whatever is neither a letter nor a digit as ``%XX``."""
    return "".join(chr(byte) if chr(byte).isalnum() and byte < 128 else f"%{byte:02X}" for byte in key.encode())
