# SPDX-License-Identifier: Apache-2.0
"""Messages as they lie on the bus, for the tests of ``tao-events``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kv_events.recording import Message
from kv_events.wire import KvEvent
from tests.kv_events.events import message

WORKERS = "namespace.w.component.backend.endpoint.generate."
TOOLS = "namespace.tao.agent-tool-events"


def kv(events: Sequence[KvEvent], sequence: int, *, t: float = 0.0, publisher: int = 1, ms: int = 0) -> Message:
    return Message(t, WORKERS + "kv-events", message(events, sequence, publisher=publisher, published_at=ms))


def wrapped(topic: str, payload: object, sequence: int, *, t: float = 0.0, publisher: int = 50, ms: int = 0) -> Message:
    envelope = {"publisher_id": publisher, "sequence": sequence, "published_at": ms, "topic": topic}
    data = msgspec.msgpack.encode(envelope | {"payload": msgspec.msgpack.encode(payload)})
    return Message(t, (WORKERS + topic) if topic != "agent-tool-events" else TOOLS, data)


def load(worker: int, used: int, sequence: int, *, t: float = 0.0) -> Message:
    return wrapped("kv_metrics", {"worker_id": worker, "dp_rank": 0, "kv_used_blocks": used}, sequence, t=t)


def forward(worker: int, prefilled: int, sequence: int, *, t: float = 0.0, publisher: int = 60) -> Message:
    payload = {
        "worker_id": str(worker),
        "dp_rank": 0,
        "scheduled_requests": {"num_prefill_requests": 1, "sum_prefill_tokens": prefilled, "num_decode_requests": 2},
        "queued_requests": {"num_prefill_requests": 3},
    }
    return wrapped("forward-pass-metrics", payload, sequence, t=t, publisher=publisher)


def tool(kind: str, sequence: int, *, t: float, session: str = "s", call: str = "c", **more: Any) -> Message:
    record = {
        "event_type": kind,
        "event_time_unix_ms": round(1e6 + 1e3 * t),
        "agent_context": {"session_id": session},
        "tool": {"tool_call_id": call, "tool_class": "bash", **more},
    }
    return wrapped("agent-tool-events", record, sequence, t=t, publisher=70)
