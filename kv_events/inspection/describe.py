# SPDX-License-Identifier: Apache-2.0
"""Messages as flat records for people and scripts, and which of them somebody asked for. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kv_events import wire
from kv_events.recording import Message

MAX_SHOWN: Final = 200
"""Hashes of one event that a record lists, so that a line stays a line; ``count`` says how many there are."""
_BAD = (msgspec.DecodeError, KeyError, TypeError, AttributeError, UnicodeDecodeError, StopIteration, ValueError)


@dataclass(frozen=True)
class Filter:
    """What to show; None: everything."""

    topic: str | None = None
    worker: str | None = None
    session: str | None = None
    kind: str | None = None

    def may_match(self, message: Message) -> bool:
        """Whether the message can hold what is asked for, told by its bytes alone: cheap, and never wrongly no."""
        if self.topic is not None and message.topic != self.topic:
            return False
        data = message.data
        if self.session is not None and self.session.encode() not in data:
            return False
        if self.kind is not None and self.kind != "unreadable" and self.kind.encode() not in data:
            return False
        return self.worker is None or _names_worker(data, self.worker)

    def matches(self, record: dict[str, Any]) -> bool:
        """Whether a record is what is asked for."""
        return (
            (self.topic is None or record["topic"] == self.topic)
            and (self.worker is None or str(record.get("node", "")).split("/")[0] == self.worker)
            and (self.session is None or record.get("session") == self.session)
            and (self.kind is None or record.get("kind") == self.kind)
        )


def describe(message: Message) -> list[dict[str, Any]]:
    """Decode a message into one flat record per event. What cannot be read becomes a record that says so."""
    topic = message.topic
    base: dict[str, Any] = {"t": round(message.t, 3), "topic": topic}
    try:
        envelope = msgspec.msgpack.decode(message.data)
        payload = msgspec.msgpack.decode(envelope["payload"])
        base["sequence"] = envelope.get("sequence")
        if topic == wire.KV_EVENTS:
            return [base | _kv_event(event) for event in payload]
        if topic == wire.TOOL_EVENTS:
            return [base | tool_record(payload)]
        node = f"{payload.get('worker_id')}/{payload.get('dp_rank', 0)}"
        return [base | {"node": node} | {k: v for k, v in payload.items() if k not in ("worker_id", "dp_rank")}]
    except _BAD as error:
        return [base | {"kind": "unreadable", "bytes": len(message.data), "error": str(error)[:80]}]


def tool_record(event: dict[str, Any]) -> dict[str, Any]:
    """Return the flat form of a tool event, nested or flat: ``kind``, ``session``, and the fields of ``tool``."""
    session = (event.get("agent_context") or event).get("session_id")
    record = {"kind": event.get("event_type"), "session": session} | dict(event.get("tool") or {})
    if isinstance(event.get("event_time_unix_ms"), int):
        record["event_time_unix_ms"] = event["event_time_unix_ms"]
    return record


def text(record: dict[str, Any]) -> str:
    """Return a record as one line."""
    parts = [f"{record['t']:9.3f}", f"{record['topic']:<20}"]
    for key, value in record.items():
        if key in ("t", "topic", "blocks") or value is None:
            continue
        if isinstance(value, dict):
            value = ",".join(f"{name}:{part}" for name, part in value.items() if part) or "none"  # noqa: PLW2901 - shorter
        parts.append(str(value) if key in ("kind", "node") else f"{key}={value}")
    return plain(" ".join(parts))


def plain(words: str) -> str:
    """Return what others wrote without anything that would steer a terminal or begin a new line."""
    return words if words.isprintable() else words.encode("unicode_escape").decode()


def _kv_event(item: dict[str, Any]) -> dict[str, Any]:
    event = item["event"]
    data = event["data"]
    record = {
        "node": f"{item['worker_id']}/{event.get('dp_rank', 0)}",
        "event_id": event["event_id"],
        "tier": item.get("storage_tier", wire.DEVICE),
    }
    if isinstance(data, str):
        return record | {"kind": data}
    kind, body = next(iter(data.items()))
    record["kind"] = kind
    if kind == "stored":
        hashes = [block["block_hash"] for block in body["blocks"]]
        return record | {"parent": body.get("parent_hash"), "count": len(hashes), "blocks": hashes[:MAX_SHOWN]}
    if kind == "removed":
        hashes = body["block_hashes"]
        return record | {"count": len(hashes), "blocks": hashes[:MAX_SHOWN]}
    return record


def _names_worker(data: bytes, worker: str) -> bool:
    """Forward-pass metrics name the worker in digits, everything else as a msgpack number."""
    if worker.encode() in data:
        return True
    try:
        return msgspec.msgpack.encode(int(worker)) in data
    except (ValueError, OverflowError, msgspec.EncodeError):
        return False
