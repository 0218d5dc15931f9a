# SPDX-License-Identifier: Apache-2.0
"""The other side of :mod:`tao_dynamo.shell.wire`: requests as Dynamo's frontend sends them, and their answers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from tao_dynamo.errors import WireError
from tao_dynamo.shell.relay import Chunk
from tao_dynamo.shell.wire import HEAD, LARGEST, SENTINEL

_TAKEN = b"\0\0\0\0"
_SHORT, _LONG = struct.Struct(">H"), struct.Struct(">I")

# A message of a chunk is {"data": {"data": chunk}, "complete_final": false}, as msgpack.
_BEFORE, _AFTER = b"\x82\xa4data\x81\xa4data", b"\xaecomplete_final\xc2"
_encode = msgspec.msgpack.Encoder().encode


class _Connection(msgspec.Struct):
    transport: str
    info: str


class _Control(msgspec.Struct):
    id: str
    connection_info: _Connection
    request_type: str = "single_in"
    payload_codec: str = "json"
    metadata: dict[str, Any] = {}


class _Home(msgspec.Struct):
    address: str
    subject: str


_read_control = msgspec.json.Decoder(_Control).decode
_read_home = msgspec.json.Decoder(_Home).decode
_read_headers = msgspec.json.Decoder(dict[str, Any]).decode
_read_json = msgspec.json.Decoder().decode
_read_msgpack = msgspec.msgpack.Decoder().decode


class Request(NamedTuple):
    """A request: its id, what it asks, and where its answer is to go.

    Attributes:
        address: host:port, where whoever asks waits for a connection.
        subject: what that connection is to be introduced as.
        headers: of the request itself; W3C headers of its trace among them.
        metadata: of the request's context, which goes on to the worker.
    """

    id: str
    body: dict[str, Any]
    address: str
    subject: str
    headers: dict[str, Any]
    metadata: dict[str, Any]


class Requests:
    """Cuts what comes over a connection into requests.

    Args:
        largest: bytes of a request that is still taken.
    """

    def __init__(self, largest: int = LARGEST) -> None:
        self._largest = largest
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[str, bytes, bytes]]:
        """Yield (path, headers, payload) of each request that is complete.

        Raises:
            WireError: a request is too large; nothing more can be read.
        """
        rest = self._rest
        rest += data
        at, end = 0, len(rest)
        while end - at >= 2:
            path = at + 2
            head_size = path + _SHORT.unpack_from(rest, at)[0]
            if end < head_size + 2:
                break
            head = head_size + 2
            size = head + _SHORT.unpack_from(rest, head_size)[0]
            if end < size + 4:
                break
            body = size + 4
            length = _LONG.unpack_from(rest, size)[0]
            if body - at + length > self._largest:
                rest.clear()
                raise WireError(f"a request of {body - at + length} bytes; at most {self._largest} are taken")
            if end < body + length:
                break
            at = body + length
            yield rest[path:head_size].decode(errors="replace"), bytes(rest[head:size]), bytes(rest[body:at])
        del rest[:at]


def request(path: str, headers: bytes, payload: bytes, served: str) -> Request:
    """Read a request.

    Args:
        path: of the endpoint that it is for.
        headers: as they came.
        payload: as it came.
        served: the path of the endpoint that takes it.

    Raises:
        WireError: it is none that can be served here.
    """
    if path != served:
        raise WireError(f"no endpoint {path!r} here; {served!r} is served")
    try:
        first, second, _ = HEAD.unpack_from(payload)
        control = _read_control(payload[HEAD.size : HEAD.size + first])
        if control.request_type != "single_in" or control.connection_info.transport != "tcp_server":
            raise WireError(
                f"a request of type {control.request_type}, to be answered over {control.connection_info.transport}; "
                "single_in and tcp_server are served"
            )
        home = _read_home(control.connection_info.info)
        read = _read_msgpack if control.payload_codec == "msgpack" else _read_json
        body = read(payload[HEAD.size + first : HEAD.size + first + second])
        if not isinstance(body, dict):
            raise WireError(f"a request that is a {type(body).__name__}, not a mapping")
        return Request(control.id, body, home.address, home.subject, _read_headers(headers), control.metadata)
    except (msgspec.MsgspecError, UnicodeDecodeError, struct.error, RecursionError) as error:
        raise WireError(f"an unreadable request: {error}") from error


def acknowledgement(words: str = "") -> bytes:
    """What is said at once to a request: nothing if it is taken, else what is wrong."""
    if not words:
        return _TAKEN
    text = words.encode()
    return _LONG.pack(len(text)) + text


def opening(subject: str) -> bytes:
    """How an answer begins: whose it is, and that there will be one."""
    first = msgspec.json.encode({"subject": subject, "stream_type": "response"})
    return HEAD.pack(len(first), 0, 0) + first + _PROLOGUE


def chunk(chunk: Chunk) -> bytes:
    """One chunk of an answer."""
    body = _encode(chunk)
    return HEAD.pack(0, len(_BEFORE) + len(body) + len(_AFTER), 0) + _BEFORE + body + _AFTER


def fault(error: dict[str, Any]) -> bytes:
    """An error, before the end of the answer; see :meth:`tao_dynamo.shell.failures.DynamoFailures.told`."""
    return _message({"data": {"event": "error", "error": error}, "complete_final": False})


def _message(body: dict[str, Any]) -> bytes:
    text = _encode(body)
    return HEAD.pack(0, len(text), 0) + text


def _control(text: bytes) -> bytes:
    return HEAD.pack(len(text), 0, 0) + text


_PROLOGUE = _control(b'{"error":null}')
ENDING = _message({"complete_final": True}) + _control(SENTINEL)
"""The end of an answer that is whole."""
