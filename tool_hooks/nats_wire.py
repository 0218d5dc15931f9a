# SPDX-License-Identifier: Apache-2.0
"""The publishing half of the NATS client protocol, on a blocking socket.

The shim cannot afford the full client: importing it costs 0.2 s of CPU, more than most of the tool calls it
would report. Publishing needs five verbs (INFO, CONNECT, PUB, PING, PONG). Source: the NATS client
protocol, docs.nats.io/reference/reference-protocols/nats-protocol.
"""

from __future__ import annotations

import base64
import os
import re
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from tao_dynamo.bus_trouble import CA, CERT, DEFAULT_LOGIN, KEY
from tao_dynamo.errors import ConfigError, WireError

DEFAULT_PORT = 4222
_MAX_LINE = 1 << 20
_SUBJECT = re.compile(r"[^\s*>]+")


@dataclass(frozen=True)
class NatsOptions:
    """Where the server is and how to prove who we are. :meth:`from_env` reads the variables that Dynamo
    reads.
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

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> NatsOptions:
        """Read ``NATS_SERVER`` (several, with commas), ``NATS_AUTH_*`` and ``NATS_TLS_*``."""
        get = (os.environ if env is None else env).get
        servers = tuple(s.strip() for s in (get("NATS_SERVER") or "").split(",") if s.strip())
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
        )

    @property
    def wants_tls(self) -> bool:
        """True when a TLS variable is set, whatever the URL says."""
        return bool(self.tls_ca or self.tls_cert or self.tls_insecure)


class _Info(msgspec.Struct):
    max_payload: int = 1 << 20
    nonce: str | None = None
    tls_required: bool = False


class NatsConnection:
    """One connection to one server. Every method may raise OSError or WireError; the connection is then
    spent.
    """

    def __init__(self, url: str, options: NatsOptions, *, timeout_s: float = 2.0) -> None:
        self._timeout_s = timeout_s
        self._buffer = b""
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        if parts.scheme not in ("nats", "tls"):
            raise WireError(f"NATS_SERVER {url!r}: scheme {parts.scheme!r}, want nats or tls")
        host = parts.hostname or "localhost"
        self._socket: socket.socket = socket.create_connection((host, parts.port or DEFAULT_PORT), timeout=timeout_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._handshake(host, options, parts.scheme == "tls", parts.username, parts.password)
        except BaseException:
            self._socket.close()
            raise

    @property
    def max_payload(self) -> int:
        """The largest message the server takes, in bytes."""
        return self._info.max_payload

    def publish(self, subject: str, messages: Iterable[bytes]) -> None:
        """Send messages and wait until the server has confirmed them (one PING, one PONG)."""
        if not _SUBJECT.fullmatch(subject):
            raise WireError(f"NATS subject {subject!r} has blanks or wildcards")
        head = subject.encode()
        parts = [b"PUB %b %d\r\n%b\r\n" % (head, len(message), message) for message in messages]
        self._socket.settimeout(self._timeout_s)
        self._socket.sendall(b"".join([*parts, b"PING\r\n"]))
        deadline = time.monotonic() + self._timeout_s
        while self._verb(deadline) != "PONG":
            pass

    def poll(self) -> None:
        """Answer what the server asked while nothing was published, so that it keeps the connection."""
        self._socket.settimeout(0.0)
        try:
            chunk = self._socket.recv(65536)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            if type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError"):
                return
            raise
        if not chunk:
            raise ConnectionResetError("the NATS server closed the connection")
        self._buffer += chunk
        self._socket.settimeout(self._timeout_s)
        while b"\r\n" in self._buffer:
            self._verb(time.monotonic() + self._timeout_s)

    def close(self) -> None:
        """Close the socket. Never raises."""
        try:
            self._socket.close()
        except OSError:
            return

    def _handshake(
        self, host: str, options: NatsOptions, tls: bool, url_user: str | None, url_password: str | None
    ) -> None:
        deadline = time.monotonic() + self._timeout_s
        line = self._line(deadline)
        if not line.startswith(b"INFO "):
            raise WireError(f"not a NATS server: it says {line[:40]!r}")
        self._info = self._parse_info(line)
        if tls or options.wants_tls or self._info.tls_required:
            self._socket = _start_tls(self._socket, host, options)
        connect: dict[str, Any] = {
            "verbose": False, "pedantic": False, "lang": "python", "name": "tao-tool-hooks", "protocol": 1,
            "version": "1", "headers": False, "echo": False,
        }  # fmt: skip
        connect.update(_credentials(options, self._info.nonce, url_user, url_password))
        self._socket.sendall(b"CONNECT " + msgspec.json.encode(connect) + b"\r\nPING\r\n")
        while self._verb(deadline) != "PONG":
            pass

    def _verb(self, deadline: float) -> str:
        """Read one line, answer it if it asks for an answer, and name it."""
        line = self._line(deadline)
        verb = line.split(b" ", 1)[0].upper()
        if verb == b"PING":
            self._socket.sendall(b"PONG\r\n")
        elif verb == b"-ERR":
            raise WireError(f"NATS server: {line[5:].decode('utf-8', 'replace').strip()}")
        elif verb == b"INFO":
            self._info = self._parse_info(line)
        return verb.decode("ascii", "replace")

    def _line(self, deadline: float) -> bytes:
        while b"\r\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0.0:
                raise TimeoutError(f"the NATS server did not answer within {self._timeout_s:g} s")
            if len(self._buffer) > _MAX_LINE:
                raise WireError(f"the NATS server sent a line of more than {_MAX_LINE} bytes")
            self._socket.settimeout(left)
            chunk = self._socket.recv(65536)
            if not chunk:
                raise ConnectionResetError("the NATS server closed the connection")
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\r\n", 1)
        return line

    @staticmethod
    def _parse_info(line: bytes) -> _Info:
        try:
            return msgspec.json.decode(line[5:], type=_Info)
        except msgspec.DecodeError as error:
            raise WireError(f"NATS server's INFO: {error}") from error


def _start_tls(raw: socket.socket, host: str, options: NatsOptions) -> socket.socket:
    import ssl

    try:
        context = ssl.create_default_context(cafile=options.tls_ca)
    except OSError as error:
        raise ConfigError(CA, options.tls_ca, "a readable PEM file") from error
    if options.tls_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.tls_cert:
        try:
            context.load_cert_chain(options.tls_cert, options.tls_key)
        except OSError as error:
            given = (options.tls_cert, options.tls_key)
            raise ConfigError(f"{CERT}, {KEY}", given, "a readable PEM certificate and its key") from error
    return context.wrap_socket(raw, server_hostname=host)


def _credentials(
    options: NatsOptions, nonce: str | None, url_user: str | None, url_password: str | None
) -> dict[str, str]:
    """The fields of CONNECT that say who we are. What stands in the URL wins, as it is the more special; then the
    variables in the order of Dynamo's own client, which without any says ``user``, ``user``.
    """
    if url_user is not None:
        if url_password is None:
            return {"auth_token": unquote(url_user)}
        return {"user": unquote(url_user), "pass": unquote(url_password)}
    if options.user is not None and options.password is not None:
        return {"user": options.user, "pass": options.password}
    if options.token is not None:
        return {"auth_token": options.token}
    if options.nkey_seed is not None:
        public, signature = _sign(options.nkey_seed, nonce)
        return {"nkey": public, "sig": signature}
    if options.credentials_file is not None:
        text = Path(options.credentials_file).read_text(encoding="utf-8")
        jwt, seed = _block(text, "NATS USER JWT"), _block(text, "USER NKEY SEED")
        return {"jwt": jwt, "sig": _sign(seed, nonce)[1]}
    user, password = DEFAULT_LOGIN
    return {"user": user, "pass": password}


def _block(text: str, name: str) -> str:
    match = re.search(rf"-+BEGIN {name}-+\s*(\S+)\s*-+END {name}-+", text)
    if match is None:
        raise WireError(f"NATS_AUTH_CREDENTIALS_FILE: no block {name!r}")
    return match.group(1)


def _sign(seed: str, nonce: str | None) -> tuple[str, str]:
    """The public key of a seed, and the server's nonce signed with it."""
    if nonce is None:
        raise WireError("the NATS server sent no nonce, yet an nkey was given")
    import importlib

    # Optional to whoever uses no nkey, so not an import that a type checker must find.
    nkeys = importlib.import_module("nkeys")
    pair = nkeys.from_seed(seed.encode())
    signature = base64.urlsafe_b64encode(pair.sign(nonce.encode())).decode().rstrip("=")
    return str(pair.public_key.decode()), signature
