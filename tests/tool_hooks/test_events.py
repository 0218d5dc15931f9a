# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_dynamo.errors import WireError
from tool_hooks.events import (
    MAX_COMMAND_CHARS,
    MAX_ID_CHARS,
    ToolEvent,
    decode,
    decode_frame,
    encode,
    encode_envelope,
    subject,
)

# As Dynamo 1.6.1 published it again on NATS, byte for byte.
DYNAMO_TOOL_END = base64.b64decode(
    "haxwdWJsaXNoZXJfaWTPABK0IYwsLWuoc2VxdWVuY2UBrHB1Ymxpc2hlZF9hdM8AAAGiKgtXM6V0b3BpY7FhZ2VudC10b29sLWV2ZW50c6dwYXlsb2Fk"
    "xQE6hqZzY2hlbWG3ZHluYW1vLnJlcXVlc3QudHJhY2UudjGqZXZlbnRfdHlwZah0b29sX2VuZLJldmVudF90aW1lX3VuaXhfbXPPAAABoioLVzOsZXZl"
    "bnRfc291cmNlp2hhcm5lc3OtYWdlbnRfY29udGV4dIGqc2Vzc2lvbl9pZKZzZXNzLTGkdG9vbImsdG9vbF9jYWxsX2lkpmNhbGwtMap0b29sX2NsYXNz"
    "pGJhc2iyc3RhcnRlZF9hdF91bml4X21zzwAAAaIqC1bOsGVuZGVkX2F0X3VuaXhfbXPPAAABoioLWHKmc3RhdHVzqXN1Y2NlZWRlZKtkdXJhdGlvbl9t"
    "c8tAekgAAAAAAK1vdXRwdXRfdG9rZW5zDKxvdXRwdXRfYnl0ZXNkrnRvb2xfbmFtZV9oYXNooWg="
)
FLAT = {
    "schema": "dynamo.request.trace.v1",
    "event_type": "tool_start",
    "event_time_unix_ms": 5,
    "session_id": "s",
    "tool": {"tool_call_id": "c", "tool_class": "bash"},
}

seconds = st.none() | st.floats(min_value=0, max_value=1e9)
texts = st.text(max_size=50)
events = st.builds(
    ToolEvent,
    kind=st.sampled_from(["tool_start", "tool_progress", "tool_end", "tool_error"]),
    session_id=st.text(min_size=1, max_size=50),
    tool_call_id=texts,
    tool_class=texts,
    event_time_ms=st.integers(0, 2**50),
    tool_key=st.none() | texts,
    command=st.none() | texts,
    declared_s=seconds,
    timeout_s=seconds,
    fraction=st.none() | st.floats(0, 1),
    remaining_s=seconds,
    status=st.none() | st.sampled_from(["running", "succeeded", "error", "cancelled"]),
    tenant=st.none() | texts,
    parent_session_id=st.none() | texts,
    error_type=st.none() | texts,
    output_bytes=st.none() | st.integers(0, 2**40),
)


def flat(**tool: object) -> bytes:
    return msgspec.msgpack.encode({**FLAT, "event_type": "tool_end", "tool": {**FLAT["tool"], **tool}})  # type: ignore[dict-item]


def test_reads_what_dynamo_publishes() -> None:
    frame = decode_frame(DYNAMO_TOOL_END)
    assert (frame.publisher_id, frame.sequence) == (5264605759417707, 1)
    event = frame.event
    assert (event.kind, event.session_id, event.tool_call_id, event.tool_class) == (
        "tool_end",
        "sess-1",
        "call-1",
        "bash",
    )
    assert event.duration_s == pytest.approx(0.4205)
    assert (event.status, event.output_bytes) == ("succeeded", 100)


def test_reads_the_flat_record_of_a_harness() -> None:
    event = decode(msgspec.msgpack.encode(FLAT))
    assert (event.kind, event.session_id, event.tool_call_id) == ("tool_start", "s", "c")


@given(events)
def test_what_is_written_is_read_again(event: ToolEvent) -> None:
    message = encode_envelope(encode(event), publisher_id=2**63 + 1, sequence=7, published_at=1)
    assert decode_frame(message) == (2**63 + 1, 7, event)
    assert decode(encode(event)) == event


def test_an_event_without_our_fields_is_dynamos_record_and_nothing_else() -> None:
    event = ToolEvent(
        kind="tool_end",
        session_id="s",
        tool_call_id="c",
        tool_class="bash",
        event_time_ms=1500,
        duration_s=0.5,
        status="succeeded",
    )
    assert msgspec.msgpack.decode(encode(event)) == {
        "schema": "dynamo.request.trace.v1",
        "event_type": "tool_end",
        "event_time_unix_ms": 1500,
        "event_source": "harness",
        "agent_context": {"session_id": "s"},
        "tool": {
            "tool_call_id": "c",
            "tool_class": "bash",
            "started_at_unix_ms": 1000,
            "ended_at_unix_ms": 1500,
            "status": "succeeded",
            "duration_ms": 500.0,
        },
    }


def test_subject_is_dynamos() -> None:
    assert subject("tao") == "namespace.tao.agent-tool-events"


def test_duration_comes_from_one_clock_only() -> None:
    ahead = 1_796_001_716_000 + 90_000
    assert decode(flat(started_at_unix_ms=ahead, ended_at_unix_ms=ahead + 250)).duration_s == 0.25
    assert decode(flat(started_at_unix_ms=ahead, ended_at_unix_ms=ahead - 1)).duration_s == 0.0
    assert decode(flat(ended_at_unix_ms=ahead)).duration_s is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("field", ["duration_ms", "declared_s", "timeout_s", "fraction", "remaining_s"])
def test_numbers_out_of_bounds_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(WireError, match=field):
        decode(flat(**{field: value}))


def test_a_fraction_above_one_is_one() -> None:
    assert decode(flat(fraction=1.2)).fraction == 1.0


@pytest.mark.parametrize("field", ["tool_call_id", "tool_class", "tool_key", "status", "tenant"])
def test_long_names_are_refused(field: str) -> None:
    with pytest.raises(WireError, match=field):
        decode(flat(**{field: "x" * (MAX_ID_CHARS + 1)}))


def test_a_long_command_is_cut_on_both_sides() -> None:
    event = decode(flat(command="x" * 10_000))
    assert event.command is not None
    assert len(event.command) == MAX_COMMAND_CHARS
    assert len(encode(msgspec.structs.replace(event, command="y" * 3_000_000))) < 5000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not msgpack at all",
        b"\xc1",
        msgspec.msgpack.encode([1, 2]),
        msgspec.msgpack.encode({**FLAT, "schema": "dynamo.request.trace.v2"}),
        msgspec.msgpack.encode({**FLAT, "event_type": "request_end"}),
        msgspec.msgpack.encode({**FLAT, "session_id": ""}),
        msgspec.msgpack.encode({**FLAT, "tool": None}),
        msgspec.msgpack.encode({**FLAT, "event_time_unix_ms": "now"}),
        b"\x81\xa1x" + b"\x91" * 100_000 + b"\xc0",
    ],
)
def test_garbage_is_a_wire_error(data: bytes) -> None:
    with pytest.raises(WireError):
        decode(data)


@given(st.binary(max_size=200))
def test_random_bytes_are_an_event_or_a_wire_error(data: bytes) -> None:
    with pytest.raises(WireError):
        decode(data)


@given(st.integers(0, len(DYNAMO_TOOL_END) - 1), st.integers(0, 255))
def test_a_damaged_message_never_breaks_the_reader(at: int, byte: int) -> None:
    damaged = DYNAMO_TOOL_END[:at] + bytes([byte]) + DYNAMO_TOOL_END[at + 1 :]
    try:
        event = decode(damaged)
    except WireError:
        return
    assert event.session_id
