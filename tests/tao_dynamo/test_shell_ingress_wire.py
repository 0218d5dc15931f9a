# SPDX-License-Identifier: Apache-2.0
"""Requests as they come to the router, and answers as they leave it; read back by what reads workers' answers."""

from __future__ import annotations

import contextlib
import json
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_dynamo.errors import WireError
from tao_dynamo.shell import ingress_wire, wire
from tests.tao_dynamo.test_shell_wire import ERROR, FIRST, HANDSHAKE, LAST, PROLOGUE, part, read

PATH = "1f/ns/comp/generate"
HEADERS = {"request-id": "r1", "traceparent": "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"}
CONTROL = wire.control("r1", "s1", "192.0.2.2:1", {"tenant": "a"})
BODY = {"token_ids": [1, 2**32], "routing": {"backend_instance_id": 2**64 - 1}, "half": 0.5, "none": None}


def asked(body: object = BODY, path: str = PATH, **control: Any) -> bytes:
    """A request, by what sends requests to workers."""
    return wire.request(wire.Address("192.0.2.1", 2, path), control=CONTROL | control, headers=HEADERS, body=body)


def cut(*pieces: bytes) -> list[tuple[str, bytes, bytes]]:
    requests = ingress_wire.Requests()
    return [parts for piece in pieces for parts in requests.feed(piece)]


def understood(data: bytes) -> ingress_wire.Request:
    (parts,) = cut(data)
    return ingress_wire.request(*parts, served=PATH)


def payload(control: bytes, body: bytes = b"\x80") -> bytes:
    return struct.pack(">QQQ", len(control), len(body), 0) + control + body


def test_a_request_is_read_as_it_was_sent() -> None:
    assert understood(asked()) == ingress_wire.Request(
        id="r1", body=BODY, address="192.0.2.2:1", subject="s1", headers=HEADERS, metadata={"tenant": "a"}
    )


@pytest.mark.parametrize("codec", ["json", None])
def test_a_body_is_json_where_the_control_data_do_not_say_msgpack(codec: str | None) -> None:
    control = {name: value for name, value in CONTROL.items() if name != "payload_codec"}
    first = json.dumps(control | ({"payload_codec": codec} if codec else {})).encode()
    sent = ingress_wire.request(PATH, b"{}", payload(first, json.dumps(BODY).encode()), PATH)
    assert sent.body == BODY
    assert sent.headers == {}


def test_metadata_may_be_left_out_and_more_may_be_there() -> None:
    control = {name: value for name, value in CONTROL.items() if name != "metadata"} | {"new": [1]}
    assert ingress_wire.request(PATH, b"{}", payload(json.dumps(control).encode()), PATH).metadata == {}


@given(
    bodies=st.lists(st.dictionaries(st.text(max_size=5), st.integers(-(2**63), 2**64 - 1), max_size=3), max_size=6),
    sizes=st.lists(st.integers(1, 500), max_size=40),
)
def test_requests_may_come_in_any_pieces(bodies: list[dict[str, int]], sizes: list[int]) -> None:
    rest, pieces = b"".join(asked(body, id=str(number)) for number, body in enumerate(bodies)), []
    for size in sizes:
        pieces.append(rest[:size])
        rest = rest[size:]
    got = [ingress_wire.request(*parts, served=PATH) for parts in cut(*pieces, rest)]
    assert [request.body for request in got] == bodies
    assert [request.id for request in got] == [str(number) for number in range(len(bodies))]


def test_one_byte_at_a_time_and_all_at_once_are_the_same() -> None:
    data = asked() + asked({"n": 2})
    assert cut(*(data[at : at + 1] for at in range(len(data)))) == cut(data)
    assert len(cut(data)) == 2


def test_a_request_too_large_ends_the_connection_and_those_before_it_are_served() -> None:
    first = asked()
    requests = ingress_wire.Requests(largest=len(first))
    got = requests.feed(first + b"\0\1p\0\2{}" + struct.pack(">I", len(first) - 10))  # one byte more
    assert next(got)[0] == PATH
    with pytest.raises(WireError, match=f"a request of {len(first) + 1} bytes; at most {len(first)} are taken"):
        next(got)
    assert list(requests.feed(b"")) == []


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (asked(path="1f/ns/comp/other"), "no endpoint '1f/ns/comp/other' here; '1f/ns/comp/generate' is served"),
        (asked(request_type="many_in"), "type many_in, to be answered over tcp_server"),
        (
            asked(connection_info={"transport": "nats", "info": "{}"}),
            "type single_in, to be answered over nats; single_in and tcp_server are served",
        ),
        (asked(connection_info={"transport": "tcp_server", "info": "{"}), "unreadable"),
        (asked(connection_info={"transport": "tcp_server", "info": "{}"}), "address"),
        (asked(connection_info=None), "connection_info"),
        (asked(id=7), "id"),
        (asked([1, 2]), "a list, not a mapping"),
        (asked(None), "a NoneType, not a mapping"),
        (asked(payload_codec="json"), "unreadable"),
    ],
)
def test_what_cannot_be_served_is_refused_in_words(data: bytes, why: str) -> None:
    with pytest.raises(WireError, match=why):
        understood(data)


GOOD = msgspec.json.encode(CONTROL)


@pytest.mark.parametrize(
    ("headers", "data"),
    [
        *((b"{}", data) for data in (b"", bytes(23), bytes(24), payload(b"{"), payload(b"[]"), payload(b"\xff" * 9))),
        *((b"{}", payload(GOOD, body)) for body in (b"", b"\xc1", b"\x81", b"\x91" * 5000 + b"\x01", b"\x81\x80\x01")),
        *((b"{}", payload(GOOD, body)) for body in (b"\x81\xa1\xff\x01", b"\xa1x", payload(GOOD)[:-1])),
        (b"{}", payload(b'{"id":"' + b"[" * 5000)),
        (b"{}", struct.pack(">QQQ", 2**64 - 1, 2**64 - 1, 0) + GOOD),
        *((headers, payload(GOOD)) for headers in (b"", b"{", b"[]", b"\xff", b'"a"', b"[" * 5000)),
    ],
)
def test_what_cannot_be_read_is_refused(headers: bytes, data: bytes) -> None:
    with pytest.raises(WireError):
        ingress_wire.request(PATH, headers, data, PATH)


@given(st.binary(max_size=200), st.binary(max_size=60))
def test_no_bytes_raise_anything_else(body: bytes, noise: bytes) -> None:
    for data in (body, payload(noise, body), payload(GOOD, body)):
        with contextlib.suppress(WireError):
            assert isinstance(ingress_wire.request(PATH, noise or b"{}", data, PATH), ingress_wire.Request)


@given(st.binary(max_size=300), st.lists(st.integers(1, 50), max_size=10))
def test_no_stream_of_bytes_is_more_than_refused(data: bytes, sizes: list[int]) -> None:
    requests = ingress_wire.Requests()
    for size in [*sizes, len(data)]:
        piece, data = data[:size], data[size:]
        with contextlib.suppress(WireError):
            assert all(isinstance(headers, bytes) for _, headers, _ in requests.feed(piece))


def test_acknowledgements_are_read_by_who_asks_workers() -> None:
    said = ["", "no endpoint 'ü' here", "", "x" * 300]
    data = b"".join(map(ingress_wire.acknowledgement, said))
    assert [words.decode() for words in wire.Acknowledgements().feed(data)] == said


ODD: list[dict[str, Any]] = [
    {"token_ids": [0, 127, 128, 65_536, 2**32, 2**64 - 1], "index": 0, "finish_reason": None},
    {"log_probs": [-0.1, 1e300], "text": "ü\U0001f600", "deep": {"a": [[{}]], "": None}, "raw": b"\x00\xff"},
    {"token_ids": [], "finish_reason": "stop", "completion_usage": {"prompt_tokens": 3}},
]


def test_an_answer_is_read_by_what_reads_workers_answers() -> None:
    sent = ingress_wire.opening("s1") + b"".join(map(ingress_wire.chunk, ODD)) + ingress_wire.ENDING
    subject, chunks, answer = read(sent)
    assert subject == "s1"
    assert chunks == ODD
    assert (answer.complete, answer.over, answer.fault) == (True, True, None)
    assert read(*(sent[at : at + 1] for at in range(len(sent))))[1] == ODD


def test_it_has_the_bytes_that_a_worker_of_dynamos_sent() -> None:
    subject = json.loads(HANDSHAKE)["subject"]
    assert ingress_wire.opening(subject) == part(HANDSHAKE) + part(PROLOGUE)
    assert part(b"", LAST) + part(b'"sentinel"') == ingress_wire.ENDING
    assert ingress_wire.chunk(msgspec.msgpack.decode(FIRST)["data"]["data"]) == part(b"", FIRST)
    assert ingress_wire.fault(msgspec.msgpack.decode(ERROR)["data"]["error"]) == part(b"", ERROR)


def test_an_error_comes_before_the_end_and_keeps_its_public_words() -> None:
    error = {"error_type": {"Backend": "InvalidArgument"}, "class": "InvalidRequest", "message": "ü", "public": {}}
    _, chunks, answer = read(
        ingress_wire.opening("s1") + ingress_wire.chunk(ODD[0]) + ingress_wire.fault(error) + ingress_wire.ENDING
    )
    assert chunks == ODD[:1]
    assert answer.fault == wire.Fault("InvalidArgument", "InvalidRequest", "ü", public=True)
    assert answer.over
