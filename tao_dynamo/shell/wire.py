# SPDX-License-Identifier: Apache-2.0
"""The bytes of Dynamo 1.6's TCP request plane, as they were seen on the wire.

A request goes over a connection to the worker: path, headers and a two-part message of control data and request; the
worker acknowledges it. The answer comes over a connection that the worker makes to the address in the control data:
two-part messages again, a handshake, a prologue, the chunks, a sentinel. Integers are big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from tao_dynamo.errors import WireError
from tao_dynamo.shell.relay import Chunk, plain

HEAD = struct.Struct(">QQQ")
SENTINEL = b'"sentinel"'
_LARGEST = 1 << 30
LARGEST = 32 << 20
"""Bytes of a request that Dynamo 1.6 takes, unless ``DYN_TCP_MAX_MESSAGE_SIZE`` says otherwise."""
_ONE_TOKEN = b"\xa9token_ids\x91"
"""How a list of one token begins."""
_TOKENS = ((b"\xcd", 2), (b"\xce", 4))
"""What stands before a token of two or of four bytes; smaller ones are rare."""
_WORTH_IT = 8
"""Messages in a run below which the next is taken by itself, where tokens of both sizes alternate."""

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

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}/{self.path}"


def request(address: Address, *, control: Mapping[str, Any], headers: Mapping[str, str], body: object) -> bytes:
    """One request to a worker. ``body`` is sent as msgpack, which ``control`` must say."""
    path, head = address.path.encode(), msgspec.json.encode(headers)
    first, second = msgspec.json.encode(control), msgspec.msgpack.encode(body)
    size = HEAD.size + len(first) + len(second)
    return b"".join(
        (
            struct.pack(">H", len(path)),
            path,
            struct.pack(">H", len(head)),
            head,
            struct.pack(">I", size),
            HEAD.pack(len(first), len(second), 0),
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
    return HEAD.pack(len(text), 0, 0) + text


def largest(env: Mapping[str, str]) -> int:
    """Bytes of the largest request that is taken."""
    return whole(env.get("DYN_TCP_MAX_MESSAGE_SIZE")) or LARGEST


def whole(text: str | None) -> int | None:
    """A whole number as Dynamo reads its variables; None: it cannot, and does without."""
    text = text or ""
    return int(text) if text.isascii() and text.removeprefix("+").isdigit() else None


class Messages:
    """Cuts a stream of bytes into two-part messages."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes, skim: Callable[[bytes, int], int] | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield (header, body) of each message that is complete.

        Args:
            data: what has come.
            skim: takes messages itself from a place in the data on; returns the place of the first that it leaves.

        Raises:
            WireError: a message of an absurd length, which is no such stream.
        """
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        while True:
            if skim is not None:
                at = skim(data, at)
            if end - at < 24:
                break
            header, body, _ = HEAD.unpack_from(data, at)
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


class Plain:
    """The bytes of plain chunks of one token, which differ in that token alone: one seen, others need no decoding.

    A chunk that has the same bytes around its token is the same chunk, whatever stream it is of: the answers of a
    worker share one of these.
    """

    def __init__(self) -> None:
        self._kinds: list[_Kind] = []
        self._like: Chunk = {}

    def learn(self, body: bytes, chunk: Chunk) -> None:
        """See a plain chunk of one token, and its bytes."""
        before, found, after = body.partition(_ONE_TOKEN + msgspec.msgpack.encode(chunk["token_ids"][0]))
        if found:
            before += _ONE_TOKEN
            self._like = dict(chunk)
            self._kinds = [_Kind.of(before + mark, size, after) for mark, size in _TOKENS]

    def chunk(self, tokens: list[int]) -> Chunk:
        """A chunk of these tokens."""
        return {**self._like, "token_ids": tokens}

    def tokens(self, data: bytes, at: int) -> tuple[list[int], int]:
        """The tokens of the plain chunks from ``at`` on, and where these end."""
        tokens: list[int] = []
        many = True
        while True:
            for kind in self._kinds:
                if data.startswith(kind.start, at) and data.startswith(kind.after, at + kind.token + kind.size):
                    break
            else:
                return tokens, at
            if many:
                some, at = kind.run(data, at)
                tokens += some
                many = len(some) > _WORTH_IT
            else:
                tokens.append(int.from_bytes(data[at + kind.token : at + kind.token + kind.size], "big"))
                at += kind.width


class _Kind(NamedTuple):
    """Messages of plain chunks whose token takes so many bytes, ``token`` bytes from their start."""

    start: bytes
    after: bytes
    token: int
    size: int
    width: int

    @classmethod
    def of(cls, before: bytes, size: int, after: bytes) -> _Kind:
        start = HEAD.pack(0, len(before) + size + len(after), 0) + before
        return cls(start, after, len(start), size, len(start) + size + len(after))

    def run(self, data: bytes, at: int) -> tuple[list[int], int]:
        """The tokens of all such messages from ``at`` on, of which there is one, and where these end.

        They are compared all at once, with their tokens blanked: 63 of them in 10 us instead of 40.
        """
        count = (len(data) - at) // self.width
        seen = bytearray(data[at : at + count * self.width])
        tokens = bytearray(count * self.size)
        for byte in range(self.size):
            place = slice(self.token + byte, None, self.width)
            tokens[byte :: self.size] = seen[place]
            seen[place] = bytes(count)
        blank = self.start + bytes(self.size) + self.after
        good, unsure = 1, count
        while good < unsure:
            # The whole first, then halves: what follows a run is the end of its stream, or half a message.
            tried = unsure if unsure == count else (good + unsure + 1) // 2
            if seen.startswith(blank * tried):
                good = tried
            else:
                unsure = tried - 1
        count = good
        letter = "H" if self.size == 2 else "I"
        return list(struct.unpack_from(f">{count}{letter}", tokens)), at + count * self.width


class Answer:
    """Reads the messages of one answer, after its handshake.

    ``complete``: the last chunk has come; ``over``: the worker will send nothing more.

    Args:
        plain: what the worker's plain chunks look like.
    """

    def __init__(self, plain: Plain | None = None) -> None:
        self._prologue = False
        self._plain = plain or Plain()
        self.complete = False
        self.over = False
        self.fault: Fault | None = None

    def read(self, header: bytes, body: bytes, into: list[Chunk]) -> None:
        """Take one message; its chunk, if it has one, is added to ``into``.

        Raises:
            WireError: the message is none of this protocol.
        """
        try:
            if body:
                self._chunk(body, into)
            elif not self._prologue:
                self._prologue = True
                error = _json(header).get("error")
                if error is not None:
                    self.fault = Fault("", "Internal", str(error))
            elif header == SENTINEL:
                self.over = True
            else:
                raise WireError(f"an unknown control message on the response plane: {header[:80]!r}")
        except (msgspec.DecodeError, AttributeError, KeyError, TypeError, RecursionError) as error:
            raise WireError(f"an unreadable message on the response plane: {error}") from error

    def skim(self, data: bytes, at: int, into: list[Chunk]) -> int:
        """Make one chunk of the plain chunks from ``at`` on; returns where they end."""
        tokens, at = self._plain.tokens(data, at)
        if tokens:
            into.append(self._plain.chunk(tokens))
        return at

    def _chunk(self, body: bytes, into: list[Chunk]) -> None:
        message = _msgpack(body)
        if message["complete_final"]:
            self.complete = True
        annotated = message.get("data")
        if annotated is None:
            return
        chunk, error = annotated.get("data"), annotated.get("error")
        failed = error is not None or annotated.get("event") == "error"
        if chunk is not None:
            into.append(chunk)
            if not (failed or self.complete) and plain(chunk) and len(chunk["token_ids"]) == 1:
                self._plain.learn(body, chunk)
        if failed:
            self.fault = _fault(error, annotated.get("comment"))


def handshake(header: bytes) -> str:
    """The subject that a worker's connection is for.

    Raises:
        WireError: it is no handshake.
    """
    try:
        subject = _json(header)["subject"]
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError) as error:
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
