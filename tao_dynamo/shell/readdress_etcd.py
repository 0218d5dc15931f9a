# SPDX-License-Identifier: Apache-2.0
"""Changes one record of Dynamo's discovery in etcd, by etcd's JSON gateway (etcd 3.4 and newer have it on their port).

Read, then written in a transaction that does nothing if the record has changed meanwhile; the lease stays as it is, so
that the record goes with Dynamo's lease. Where etcd is and what it asks for is said by the variables that Dynamo reads.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import ssl
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from tao_dynamo.errors import DiscoveryError
from tao_dynamo.shell.logs import Events

REQUEST_S = 3.0
"""For a connection, and for an answer."""
WITHIN_S = 10.0
"""For everything: no new request is begun afterwards."""
_TRIES = 2
"""How often each member of the cluster is asked."""
_LARGEST = 1 << 20
_DEFAULT = "http://localhost:2379"

log = Events("tao.readdress")
Answer = TypeVar("Answer", bound=msgspec.Struct)


class _Record(msgspec.Struct):
    mod_revision: int
    value: bytes = b""


class _Found(msgspec.Struct):
    kvs: list[_Record] = []


class _Written(msgspec.Struct):
    succeeded: bool = False


class _Entrance(msgspec.Struct):
    token: str


class _Refusal(msgspec.Struct):
    message: str = ""
    error: str = ""


class _FailedError(Exception):
    """A member of the cluster could not be asked, or said no."""


class _UnansweredError(_FailedError):
    """A member was asked and has not said what it did."""


class _UnclearError(_FailedError):
    """It may have been written."""


def exchange(env: Mapping[str, str], key: str, change: Callable[[bytes], bytes]) -> None:
    """Put another value in the place of a key's present one; takes some ten seconds at most.

    Whether a write whose answer is lost was done is asked again. If nobody can say, that is logged and no error: the
    record then has the old address or the new one, and both must be served.

    Args:
        env: where Dynamo reads which etcd it uses, and how it is let in.
        key: the record's.
        change: makes the new value of the present one; its errors are passed on.

    Raises:
        DiscoveryError: it cannot be done; all is as it was.
    """
    where = f"the record in Dynamo's discovery, {key} in etcd"
    until = time.monotonic() + WITHIN_S
    reasons: dict[str, str] = {}
    unclear = False
    written: bytes | None = None
    for url in members(env) * _TRIES:
        member = None
        try:
            member = _Member(url, env, until)
            record = member.read(key)
            if record is None:
                raise DiscoveryError(f"{where}: there is none")
            if record.value == written:
                return
            written = change(record.value)
            if member.write(key, record.mod_revision, written):
                return
            reasons[url] = "somebody else changes it"
        except _FailedError as error:
            unclear = unclear or isinstance(error, _UnclearError)
            reasons[url] = str(error)
        finally:
            if member is not None:
                member.close()
    said = "; ".join(f"{url}: {reason}" for url, reason in reasons.items())
    if not unclear:
        raise DiscoveryError(f"{where}: {said}")
    log.warning("record_unclear", key=key, because=said)


def members(env: Mapping[str, str]) -> list[str]:
    """The URLs of the cluster's members: ``ETCD_ENDPOINTS``, as Dynamo reads it, without names and passwords."""
    secure = all(env.get(f"ETCD_AUTH_{name}") for name in ("CA", "CLIENT_CERT", "CLIENT_KEY"))
    urls = []
    for one in (env.get("ETCD_ENDPOINTS") or _DEFAULT).split(","):
        text = one.strip()
        if text and "://" not in text:
            text = f"{'https' if secure else 'http'}://{text}"
        scheme, _, rest = text.partition("://")
        if text:
            urls.append(f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}")
    return urls


class _Member:
    """A connection to one member of the cluster.

    Args:
        url: of http or https.
        env: says how one is let in.
        until: when nothing new is begun any longer, by the monotonic clock.

    Raises:
        _FailedError: there is none, or we are not let in.
    """

    def __init__(self, url: str, env: Mapping[str, str], until: float) -> None:
        self._until = until
        self._token = ""
        try:
            parts = urllib.parse.urlsplit(url)
            host, port = parts.hostname or "", parts.port
            if not host or parts.scheme not in ("http", "https"):
                raise _FailedError("ETCD_ENDPOINTS: want http://host:port or https://host:port")
            self._line = (
                http.client.HTTPConnection(host, port, timeout=REQUEST_S)
                if parts.scheme == "http"
                else http.client.HTTPSConnection(host, port, timeout=REQUEST_S, context=tls(env))
            )
            self._in_time()
            self._line.connect()
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise _FailedError(str(error)) from error
        try:
            name, password = env.get("ETCD_AUTH_USERNAME"), env.get("ETCD_AUTH_PASSWORD")
            if name and password is not None:
                who = {"name": name, "password": password}
                self._token = self._ask("/v3/auth/authenticate", who, _Entrance).token
        except _FailedError:
            self.close()
            raise

    def read(self, key: str) -> _Record | None:
        """The record of that key, if there is one."""
        found = self._ask("/v3/kv/range", {"key": key.encode()}, _Found).kvs
        return found[0] if found else None

    def write(self, key: str, revision: int, value: bytes) -> bool:
        """Write if the record still is of that revision; whether it was. Its lease stays."""
        name = key.encode()
        still = {"key": name, "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}
        put = {"request_put": {"key": name, "value": value, "ignore_lease": True}}
        try:
            return self._ask("/v3/kv/txn", {"compare": [still], "success": [put]}, _Written).succeeded
        except _UnansweredError as error:
            raise _UnclearError(str(error)) from error

    def close(self) -> None:
        """Close."""
        self._line.close()

    def _in_time(self) -> None:
        if time.monotonic() >= self._until:
            raise _FailedError(f"not within {WITHIN_S:g} s")

    def _ask(self, path: str, question: object, kind: type[Answer]) -> Answer:
        """Ask. Bytes are base64 both ways, whole numbers come as text."""
        self._in_time()
        headers = {"Content-Type": "application/json"} | ({"Authorization": self._token} if self._token else {})
        try:
            self._line.request("POST", path, msgspec.json.encode(question), headers)
            answer = self._line.getresponse()
            words = answer.read(_LARGEST)
            if answer.status == http.HTTPStatus.OK:
                return msgspec.json.decode(words, type=kind, strict=False)
        except (OSError, ValueError, http.client.HTTPException) as error:  # msgspec's are of ValueError
            raise _UnansweredError(f"{path}: {error or type(error).__name__}") from error
        refusal = _Refusal()
        with contextlib.suppress(msgspec.MsgspecError):
            refusal = msgspec.json.decode(words, type=_Refusal)
        said = refusal.message or refusal.error or answer.reason
        clear = answer.status < http.HTTPStatus.INTERNAL_SERVER_ERROR
        raise (_FailedError if clear else _UnansweredError)(f"{path}: {answer.status} {said}")


def tls(env: Mapping[str, str]) -> ssl.SSLContext:
    """How https is spoken: ``ETCD_AUTH_CA``, ``ETCD_AUTH_CLIENT_CERT`` and ``ETCD_AUTH_CLIENT_KEY``.

    Dynamo takes them for PEM texts; paths are taken too. Without a CA it is the system's.

    Raises:
        OSError: a file cannot be read, or what is in it.
    """
    authority, own, secret = (env.get(f"ETCD_AUTH_{name}") or "" for name in ("CA", "CLIENT_CERT", "CLIENT_KEY"))
    context = ssl.create_default_context()
    if authority:
        context = ssl.create_default_context(cadata=_pem(authority))
    if own and secret:
        # Python reads them from a file only.
        handle, name = tempfile.mkstemp(prefix="tao-")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(f"{_pem(own)}\n{_pem(secret)}\n")
            context.load_cert_chain(name, password="")  # nobody is there to be asked for one
        finally:
            Path(name).unlink()
    return context


def _pem(given: str) -> str:
    if "-----BEGIN" in given:
        return given
    return Path(given).read_text(encoding="ascii")
