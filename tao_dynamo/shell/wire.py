# SPDX-License-Identifier: Apache-2.0
"""The bytes of Dynamo 1.6's TCP request plane, as they were seen on the wire.

A request goes over a connection to the worker: path, headers and a two-part message of control data and request; the
worker acknowledges it. The answer comes over a connection that the worker makes to the address in the control data:
two-part messages again, a handshake, a prologue, the chunks, a sentinel. Integers are big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tao_dynamo.errors import WireError
from tao_dynamo.shell.relay import Chunk, plain

_HEAD = struct.Struct(">QQQ")
_SENTINEL = b'"sentinel"'
_LARGEST = 1 << 30
_ONE_TOKEN = b"\xa9token_ids\x91"
"""How a list of one token begins."""

_json = msgspec.json.decode
_msgpack = msgspec.msgpack.decode


@dataclass(frozen=True, slots=True)
class Address:
    """Where a worker takes requests, as discovery tells it: ``host:port/path``."""

    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read one.

        Raises:
            WireError: it is of another form.
        """
        place, slash, path = text.partition("/")
        host, colon, port = place.rpartition(":")
        if not (slash and colon and port.isdigit() and path):
            raise WireError(f"worker address {text!r}: want host:port/path")
        return cls(host.strip("[]"), int(port), path)


def request(address: Address, *, control: Mapping[str, Any], headers: Mapping[str, str], body: object) -> bytes:
    """One request to a worker. ``body`` is sent as msgpack, which ``control`` must say."""
    path, head = address.path.encode(), msgspec.json.encode(headers)
    first, second = msgspec.json.encode(control), msgspec.msgpack.encode(body)
    size = _HEAD.size + len(first) + len(second)
    return b"".join(
        (
            struct.pack(">H", len(path)),
            path,
            struct.pack(">H", len(head)),
            head,
            struct.pack(">I", size),
            _HEAD.pack(len(first), len(second), 0),
            first,
            second,
        )
    )


def control(request_id: str, subject: str, here: str, metadata: Mapping[str, str]) -> dict[str, Any]:
    """The control data of a request whose answer is to come to ``here`` (host:port) under ``subject``."""
    info = {"address": here, "subject": subject, "context": request_id, "stream_type": "response"}
    return {
        "id": request_id,
        "request_type": "single_in",
        "response_type": "many_out",
        "payload_codec": "msgpack",
        "connection_info": {"transport": "tcp_server", "info": msgspec.json.encode(info).decode()},
        "metadata": dict(metadata),
    }


def signal(word: str) -> bytes:
    """``stop`` or ``kill``, said to a worker over the connection of its answer."""
    text = msgspec.json.encode(word)
    return _HEAD.pack(len(text), 0, 0) + text


class Messages:
    """Cuts a stream of bytes into two-part messages."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield (header, body) of each message that is complete.

        Raises:
            WireError: a message of an absurd length, which is no such stream.
        """
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        while end - at >= 24:
            header, body, _ = _HEAD.unpack_from(data, at)
            if header + body > _LARGEST:
                self._rest = b""
                raise WireError(f"a message of {header} and {body} bytes on the response plane")
            after = at + 24 + header + body
            if after > end:
                break
            yield data[at + 24 : at + 24 + header], data[at + 24 + header : after]
            at = after
        self._rest = data[at:]


class Acknowledgements:
    """Cuts a stream of bytes into the acknowledgements of requests: empty, or words that say what is wrong."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield each that is complete."""
        data = self._rest + data
        while len(data) >= 4:
            size = int.from_bytes(data[:4], "big")
            if len(data) < 4 + size:
                break
            yield data[4 : 4 + size]
            data = data[4 + size :]
        self._rest = data


@dataclass(frozen=True, slots=True)
class Fault:
    """An error that a worker sends in its answer. ``public``: its text is meant for the client."""

    kind: str
    group: str
    text: str
    public: bool = False


class Answer:
    """Reads the messages of one answer, after its handshake.

    ``complete``: the last chunk has come; ``over``: the worker will send nothing more. A stream's plain chunks differ
    in the bytes of their token alone: after the first of them, the others are joined without being decoded.
    """

    def __init__(self) -> None:
        self._prologue = False
        self._before = b""
        self._after = b""
        self._like: Chunk | None = None
        self._run: Chunk | None = None
        self.complete = False
        self.over = False
        self.fault: Fault | None = None

    def read(self, header: bytes, body: bytes, into: list[Chunk]) -> None:
        """Take one message; its chunk, if it has one, is added to ``into``, or its token to the last one there.

        Raises:
            WireError: the message is none of this protocol.
        """
        if self._like is not None and body.startswith(self._before) and body.endswith(self._after):
            token = _token(body[len(self._before) : len(body) - len(self._after)])
            if token is not None:
                if into and into[-1] is self._run:
                    self._run["token_ids"].append(token)
                else:
                    self._run = {**self._like, "token_ids": [token]}
                    into.append(self._run)
                return
        try:
            if body:
                self._chunk(body, into)
            elif not self._prologue:
                self._prologue = True
                error = _json(header).get("error")
                if error is not None:
                    self.fault = Fault("", "Internal", str(error))
            elif header == _SENTINEL:
                self.over = True
            else:
                raise WireError(f"an unknown control message on the response plane: {header[:80]!r}")
        except (msgspec.DecodeError, AttributeError, KeyError, TypeError) as error:
            raise WireError(f"an unreadable message on the response plane: {error}") from error

    def _chunk(self, body: bytes, into: list[Chunk]) -> None:
        message = _msgpack(body)
        if message["complete_final"]:
            self.complete = True
        annotated = message.get("data")
        if annotated is None:
            return
        chunk = annotated.get("data")
        if chunk is not None:
            into.append(chunk)
            if plain(chunk) and len(chunk["token_ids"]) == 1:
                self._learn(body, chunk)
        error = annotated.get("error")
        if error is not None or annotated.get("event") == "error":
            self.fault = _fault(error, annotated.get("comment"))

    def _learn(self, body: bytes, chunk: Chunk) -> None:
        before, found, after = body.partition(_ONE_TOKEN + msgspec.msgpack.encode(chunk["token_ids"][0]))
        if found:
            self._before, self._after, self._like = before + _ONE_TOKEN, after, dict(chunk)


def _token(raw: bytes) -> int | None:
    """Read an unsigned integer of msgpack; None if it is anything else."""
    size = len(raw)
    if size == 3 and raw[0] == 0xCD:
        return raw[1] << 8 | raw[2]
    if size == 5 and raw[0] == 0xCE:
        return int.from_bytes(raw[1:], "big")
    if size == 1 and raw[0] < 0x80:
        return raw[0]
    if size == 2 and raw[0] == 0xCC:
        return raw[1]
    return None


def handshake(header: bytes) -> str:
    """The subject that a worker's connection is for.

    Raises:
        WireError: it is no handshake.
    """
    try:
        subject = _json(header)["subject"]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise WireError(f"no handshake on the response plane: {header[:80]!r}") from error
    return str(subject)


def _fault(error: object, comment: object) -> Fault:
    if isinstance(error, Mapping):
        kind = error.get("error_type")
        while isinstance(kind, Mapping) and kind:  # {"Backend": "InvalidArgument"}
            kind = next(iter(kind.values()))
        text, group = str(error.get("message") or error), str(error.get("class") or "Internal")
        return Fault(str(kind or ""), group, text, error.get("public") is not None)
    words = comment if isinstance(comment, list) else [comment or error or "no reason given"]
    return Fault("", "Internal", ", ".join(map(str, words)))
