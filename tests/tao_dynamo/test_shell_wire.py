# SPDX-License-Identifier: Apache-2.0
"""Dynamo's TCP request plane against bytes that Dynamo 1.6.1 itself sent."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_dynamo.errors import WireError
from tao_dynamo.shell import wire


def part(header: bytes = b"", body: bytes = b"") -> bytes:
    return len(header).to_bytes(8, "big") + len(body).to_bytes(8, "big") + bytes(8) + header + body


FIRST = (
    b"\x82\xa4data\x81\xa4data\x8a\xa9token_ids\x91\xcd\x04\x8c\xa6tokens\xc0\xa4text\xc0\xaboutput_type\xa4text"
    b"\xadcum_log_probs\xc0\xa9log_probs\xc0\xactop_logprobs\xc0\xadfinish_reason\xc0\xa5index\xc0\xb0completion_usage"
    b"\x84\xadprompt_tokens\x03\xb1completion_tokens\x01\xactotal_tokens\x04\xb5prompt_tokens_details\x82"
    b"\xacaudio_tokens\xc0\xadcached_tokens\x00\xaecomplete_final\xc2"
)
SECOND = (
    b"\x82\xa4data\x81\xa4data\x89\xa9token_ids\x91\xcd\x05_\xa6tokens\xc0\xa4text\xc0\xaboutput_type\xa4text"
    b"\xadcum_log_probs\xc0\xa9log_probs\xc0\xactop_logprobs\xc0\xadfinish_reason\xc0\xa5index\xc0\xaecomplete_final\xc2"
)
ERROR = (
    b"\x82\xa4data\x82\xa5event\xa5error\xa5error\x85\xaaerror_type\x81\xa7Backend\xaeEngineShutdown\xa5class"
    b"\xabUnavailable\xa6reason\xb7backend.engine_shutdown\xa7message\xb4engine shutting down\xaadiagnostic"
    b"\xb4engine shutting down\xaecomplete_final\xc2"
)
LAST = b"\x81\xaecomplete_final\xc3"
HANDSHAKE = b'{"subject":"b52933a7-7554-4097-b2ee-7627f3382cbf","stream_type":"response"}'
PROLOGUE = b'{"error":null}'
ANSWER = part(HANDSHAKE) + part(PROLOGUE) + part(b"", FIRST) + part(b"", SECOND) + part(b"", LAST) + part(b'"sentinel"')


def read(*pieces: bytes) -> tuple[str, list[dict[str, object]], wire.Answer]:
    messages, answer, chunks, subject = wire.Messages(), wire.Answer(), [], ""  # type: ignore[var-annotated]
    for piece in pieces:
        for header, body in messages.feed(piece):
            if subject:
                answer.read(header, body, chunks)
            else:
                subject = wire.handshake(header)
    return subject, chunks, answer


def test_an_answer_of_dynamos_mock_worker() -> None:
    subject, chunks, answer = read(ANSWER)
    assert subject == "b52933a7-7554-4097-b2ee-7627f3382cbf"
    assert [chunk["token_ids"] for chunk in chunks] == [[1164], [1375]]
    assert chunks[0]["completion_usage"]["prompt_tokens_details"] == {"audio_tokens": None, "cached_tokens": 0}  # type: ignore[index]
    assert answer.complete
    assert answer.over
    assert answer.fault is None


@given(st.lists(st.integers(1, 200), max_size=20))
def test_it_may_come_in_any_pieces(sizes: list[int]) -> None:
    pieces, rest = [], ANSWER
    for size in sizes:
        pieces.append(rest[:size])
        rest = rest[size:]
    _, chunks, answer = read(*pieces, rest)
    assert [chunk["token_ids"] for chunk in chunks] == [[1164], [1375]]
    assert answer.over


def plain_chunk(token: int) -> bytes:
    return part(b"", SECOND.replace(b"\xcd\x05_", msgspec.msgpack.encode(token)))


@given(
    st.lists(st.one_of(st.integers(0, 2**32 - 1), st.just(None)), max_size=40),
    st.lists(st.integers(1, 400), max_size=30),
)
def test_plain_chunks_are_joined_undecoded_and_no_token_is_lost(tokens: list[int | None], sizes: list[int]) -> None:
    """None stands for a chunk with a usage, which stays one of its own."""
    usage = FIRST.replace(b"\xcd\x04\x8c", b"\x07")
    rest = b"".join(part(b"", usage) if token is None else plain_chunk(token) for token in tokens) + part(b"", LAST)
    messages, answer, got = wire.Messages(), wire.Answer(), []  # type: ignore[var-annotated]
    answer.read(PROLOGUE, b"", [])
    for size in [*sizes, len(rest)]:
        into: list[dict[str, object]] = []
        for header, body in messages.feed(rest[:size], lambda data, at, into=into: answer.skim(data, at, into)):  # type: ignore[misc]
            answer.read(header, body, into)
        rest = rest[size:]
        got += into
    assert [t for chunk in got for t in chunk["token_ids"]] == [7 if t is None else t for t in tokens]
    assert all(chunk["token_ids"] == [7] for chunk in got if "completion_usage" in chunk)
    assert sum("completion_usage" in chunk for chunk in got) == tokens.count(None)
    assert answer.complete


def test_a_run_of_plain_chunks_is_one_chunk_with_all_the_others_fields() -> None:
    data = b"".join(plain_chunk(token) for token in (1000, 70_000, 2000, 2**31))
    messages, answer, into = wire.Messages(), wire.Answer(), []  # type: ignore[var-annotated]
    answer.read(PROLOGUE, b"", into)
    for header, body in messages.feed(data, lambda data, at: answer.skim(data, at, into)):
        answer.read(header, body, into)
    first, run = into
    assert first["token_ids"] == [1000]
    assert run == first | {"token_ids": [70_000, 2000, 2**31]}


def test_an_error_comes_with_its_kind_and_words() -> None:
    _, chunks, answer = read(part(HANDSHAKE) + part(PROLOGUE) + part(b"", ERROR))
    assert chunks == []
    assert answer.fault == wire.Fault("EngineShutdown", "Unavailable", "engine shutting down")


def test_a_worker_that_cannot_begin_says_so_in_the_prologue() -> None:
    _, _, answer = read(part(HANDSHAKE) + part(b'{"error":"no such engine"}'))
    assert answer.fault == wire.Fault("", "Internal", "no such engine")


@pytest.mark.parametrize(
    "nonsense",
    [
        *(part(b"", b"\xc1"), part(b"", b"\x01"), part(b'"hello"'), part(b"{"), part(b"[]"), part(b"", b"\x80")),
        *(part(b"", b"\x91" * 5000 + b"\x01"), part(b"[" * 5000)),
    ],
)
def test_what_is_not_this_protocol_is_refused(nonsense: bytes) -> None:
    with pytest.raises(WireError):
        read(part(HANDSHAKE) + part(PROLOGUE) + nonsense)


@pytest.mark.parametrize(
    "nonsense", [part(b"GET / HTTP/1.1"), part(b"[" * 5000), b"GET / HTTP/1.1\r\nhost: here\r\n\r\n" + bytes(30)]
)
def test_a_stranger_on_the_answers_port_is_refused(nonsense: bytes) -> None:
    with pytest.raises(WireError):
        read(nonsense)


def test_a_request_has_the_form_that_dynamo_sends() -> None:
    address = wire.Address.parse("192.0.2.2:43957/b34da6c12efd8fb9/workers/backend/generate")
    assert (address.host, address.port) == ("192.0.2.2", 43957)
    control = wire.control("r1", "s1", "192.0.2.2:1", {"foo": "bar"})
    body = {"token_ids": [1, 2], "routing": {"backend_instance_id": 2**63 + 5}}
    frame = wire.request(address, control=control, headers={"request-id": "r1"}, body=body)
    assert frame.startswith(b'\x00\x29b34da6c12efd8fb9/workers/backend/generate\x00\x13{"request-id":"r1"}')
    after = frame.index(b'{"request-id":"r1"}') + len(b'{"request-id":"r1"}')
    assert int.from_bytes(frame[after : after + 4], "big") == len(frame) - after - 4
    ((header, data),) = wire.Messages().feed(frame[after + 4 :])
    sent = msgspec.json.decode(header)
    assert list(sent) == ["id", "request_type", "response_type", "payload_codec", "connection_info", "metadata"]
    assert msgspec.json.decode(sent["connection_info"]["info"]) == {
        "address": "192.0.2.2:1",
        "subject": "s1",
        "context": "r1",
        "stream_type": "response",
    }
    assert msgspec.msgpack.decode(data) == body


@pytest.mark.parametrize("text", ["", "nats.subject", "host/path", "host:/path", "host:80", "host:x/path", "host:80/"])
def test_an_address_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(WireError, match="host:port/path"):
        wire.Address.parse(text)


def test_acknowledgements_come_in_any_pieces() -> None:
    raw = bytes(4) + (5).to_bytes(4, "big") + b"hello" + bytes(4)
    for cut in range(len(raw)):
        acks = wire.Acknowledgements()
        assert [*acks.feed(raw[:cut]), *acks.feed(raw[cut:])] == [b"", b"hello", b""]


def test_a_chunk_that_ends_its_answer_teaches_nothing_to_the_next_one() -> None:
    ends = SECOND.replace(b"complete_final\xc2", b"complete_final\xc3")
    plain = wire.Plain()
    for _ in range(2):
        answer, into = wire.Answer(plain), []  # type: ignore[var-annotated]
        answer.read(PROLOGUE, b"", into)
        for header, body in wire.Messages().feed(
            part(b"", ends), lambda data, at, a=answer, i=into: a.skim(data, at, i)
        ):  # type: ignore[misc]
            answer.read(header, body, into)
        assert [chunk["token_ids"] for chunk in into] == [[1375]]
        assert answer.complete
