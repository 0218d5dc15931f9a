# SPDX-License-Identifier: Apache-2.0
"""Tool events: Dynamo's own record, read and written.

A record is Dynamo's ``dynamo.request.trace.v1``, unchanged for ``tool_start``, ``tool_end`` and
``tool_error``. TAO adds the event type ``tool_progress`` and, inside ``tool``, optional fields that a
reader of Dynamo's own fields skips. On the bus a record is the ``payload`` of Dynamo's usual envelope.

This module is pure: no clock, no socket.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

import msgspec

from tao_dynamo.errors import WireError

SCHEMA = "dynamo.request.trace.v1"
TOPIC = "agent-tool-events"
DEFAULT_NAMESPACE = "dynamo"

MAX_ID_CHARS = 1024
"""Longest id, class or key that a reader takes: what is longer is forged or broken."""
MAX_COMMAND_CHARS = 4096
"""A longer command is cut when it is written: its head is enough to know the program."""

Kind = Literal["tool_start", "tool_progress", "tool_end", "tool_error"]
KINDS: tuple[str, ...] = get_args(Kind)


class ToolEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to one tool call, flat.

    ``*_s`` are seconds, ``fraction`` is the share done in [0, 1], ``event_time_ms`` is the tool host's wall
    clock (never to be compared with another host's). A ``tool_progress`` with neither ``fraction`` nor
    ``remaining_s`` is a heartbeat. ``status`` is Dynamo's: running, succeeded, error or cancelled.
    """

    kind: Kind
    session_id: str
    tool_call_id: str
    tool_class: str
    event_time_ms: int
    tool_key: str | None = None
    command: str | None = None
    declared_s: float | None = None
    timeout_s: float | None = None
    fraction: float | None = None
    remaining_s: float | None = None
    duration_s: float | None = None
    status: str | None = None
    tenant: str | None = None
    parent_session_id: str | None = None
    error_type: str | None = None
    output_bytes: int | None = None


class Frame(NamedTuple):
    """A decoded message: the event, and where it stands in its publisher's sequence (None without
    envelope).
    """

    publisher_id: int | None
    sequence: int | None
    event: ToolEvent


class _AgentContext(msgspec.Struct, omit_defaults=True):
    session_id: str
    parent_session_id: str | None = None


class _Tool(msgspec.Struct, omit_defaults=True):
    tool_call_id: str
    tool_class: str
    started_at_unix_ms: int | None = None
    ended_at_unix_ms: int | None = None
    status: str | None = None
    duration_ms: float | None = None
    output_bytes: int | None = None
    error_type: str | None = None
    tool_key: str | None = None
    command: str | None = None
    declared_s: float | None = None
    timeout_s: float | None = None
    fraction: float | None = None
    remaining_s: float | None = None
    tenant: str | None = None


class _Record(msgspec.Struct, omit_defaults=True):
    schema: str
    event_type: Kind
    event_time_unix_ms: int
    tool: _Tool
    event_source: str | None = None
    agent_context: _AgentContext | None = None
    # The flat form, as a harness pushes it to Dynamo's ZMQ socket.
    session_id: str | None = None
    parent_session_id: str | None = None


class _Envelope(msgspec.Struct):
    publisher_id: int
    sequence: int
    published_at: int
    topic: str
    payload: bytes


class _MaybeEnvelope(msgspec.Struct):
    """Tells an envelope from a bare record, which has none of these."""

    publisher_id: int | None = None
    sequence: int | None = None
    payload: bytes | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode_record = msgspec.msgpack.Decoder(_Record).decode
_decode_envelope = msgspec.msgpack.Decoder(_MaybeEnvelope).decode
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def subject(namespace: str = DEFAULT_NAMESPACE) -> str:
    """The NATS subject of a namespace's tool events."""
    return f"namespace.{namespace}.{TOPIC}"


def encode(event: ToolEvent) -> bytes:
    """Write one event as the record that Dynamo itself would publish (no envelope)."""
    ended = event.kind in ("tool_end", "tool_error")
    duration_ms = None if event.duration_s is None else event.duration_s * 1000.0
    tool = _Tool(
        tool_call_id=event.tool_call_id,
        tool_class=event.tool_class,
        started_at_unix_ms=_started_at(event),
        ended_at_unix_ms=event.event_time_ms if ended else None,
        status=event.status,
        duration_ms=duration_ms,
        output_bytes=event.output_bytes,
        error_type=event.error_type,
        tool_key=event.tool_key,
        command=None if event.command is None else event.command[:MAX_COMMAND_CHARS],
        declared_s=event.declared_s,
        timeout_s=event.timeout_s,
        fraction=None if event.fraction is None else min(1.0, max(0.0, event.fraction)),
        remaining_s=event.remaining_s,
        tenant=event.tenant,
    )
    record = _Record(
        schema=SCHEMA,
        event_type=event.kind,
        event_time_unix_ms=event.event_time_ms,
        event_source="harness",
        agent_context=_AgentContext(event.session_id, event.parent_session_id),
        tool=tool,
    )
    return _encode(record)


def _started_at(event: ToolEvent) -> int | None:
    if event.kind == "tool_start":
        return event.event_time_ms
    return None if event.duration_s is None else event.event_time_ms - round(event.duration_s * 1000.0)


def encode_envelope(payload: bytes, *, publisher_id: int, sequence: int, published_at: int) -> bytes:
    """Put a record into Dynamo's envelope. ``published_at`` is in milliseconds of the Unix clock."""
    return _encode(_Envelope(publisher_id, sequence, published_at, TOPIC, payload))


def decode(data: bytes) -> ToolEvent:
    """Read a message: an envelope with a record in it, or a record alone, nested or flat.

    Raises:
        WireError: the bytes are no tool event, or a field is out of all bounds.
    """
    return decode_frame(data).event


def decode_frame(data: bytes) -> Frame:
    """Like :func:`decode`, with the publisher's id and sequence number, for spotting gaps and repeats."""
    try:
        envelope = _decode_envelope(data)
        record = _decode_record(data if envelope.payload is None else envelope.payload)
    except _BROKEN as error:
        raise WireError(f"tool event of {len(data)} bytes: {error}") from error
    return Frame(envelope.publisher_id, envelope.sequence, _flatten(record))


def _flatten(record: _Record) -> ToolEvent:
    if record.schema != SCHEMA:
        raise WireError(f"tool event: schema is {record.schema[:80]!r}, want {SCHEMA!r}")
    context, tool = record.agent_context, record.tool
    session_id = context.session_id if context else record.session_id
    if not session_id:
        raise WireError("tool event: no session_id, neither in agent_context nor beside it")
    fraction = _number("fraction", tool.fraction)
    return ToolEvent(
        kind=record.event_type,
        session_id=_text("session_id", session_id),
        tool_call_id=_text("tool_call_id", tool.tool_call_id),
        tool_class=_text("tool_class", tool.tool_class),
        event_time_ms=record.event_time_unix_ms,
        tool_key=None if tool.tool_key is None else _text("tool_key", tool.tool_key),
        command=None if tool.command is None else tool.command[:MAX_COMMAND_CHARS],
        declared_s=_number("declared_s", tool.declared_s),
        timeout_s=_number("timeout_s", tool.timeout_s),
        fraction=None if fraction is None else min(1.0, fraction),
        remaining_s=_number("remaining_s", tool.remaining_s),
        duration_s=_duration_s(tool),
        status=None if tool.status is None else _text("status", tool.status),
        tenant=None if tool.tenant is None else _text("tenant", tool.tenant),
        parent_session_id=context.parent_session_id if context else record.parent_session_id,
        error_type=None if tool.error_type is None else tool.error_type[:MAX_ID_CHARS],
        output_bytes=tool.output_bytes,
    )


def _duration_s(tool: _Tool) -> float | None:
    """The tool host's own measure; its two time stamps are of one clock, and no other host's enters."""
    if tool.duration_ms is not None:
        duration_ms = _number("duration_ms", tool.duration_ms)
        return None if duration_ms is None else duration_ms / 1000.0
    if tool.started_at_unix_ms is None or tool.ended_at_unix_ms is None:
        return None
    return max(0, tool.ended_at_unix_ms - tool.started_at_unix_ms) / 1000.0


def _text(field: str, value: str) -> str:
    if len(value) > MAX_ID_CHARS:
        raise WireError(f"tool event: {field} has {len(value)} characters, at most {MAX_ID_CHARS} are taken")
    return value


def _number(field: str, value: float | None) -> float | None:
    if value is not None and not (math.isfinite(value) and value >= 0.0):
        raise WireError(f"tool event: {field} is {value!r}, want a finite number not below 0")
    return value
