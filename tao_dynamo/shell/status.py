# SPDX-License-Identifier: Apache-2.0
"""The status: who waits, since when, why, and how everything else is. Plain JSON values."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from enum import Enum
from typing import Any

from kv_events.types import NodeId
from tao_dynamo import __version__
from tao_dynamo.core.views import SessionView
from tao_dynamo.shell.sources import Sources


def status(sources: Sources) -> dict[str, Any]:
    """Everything but the single sessions that do not wait."""
    now = sources.statistics()
    plans = [_plain(plan) | {"ago_s": round(now.at - plan.at, 3)} for plan in reversed(now.plans)]
    solves = sources.driver.solves
    total = sum(solves.values())
    core = now.counters
    stats = sources.index.stats()
    follower = sources.bus.follower
    return {
        "version": __version__,
        "up_s": round(time.time() - sources.started_at, 1),
        "policy": now.policy,
        "shared_prefixes": "counted once" if now.shared_prefixes else "simple sum",
        "host_tier": "holds whoever waits" if now.host_tier else "not counted on",
        "marks": _plain(now.marks),
        "nodes": [_plain(node) | {"events": sources.bus.verdicts.get(node.node, "ok")} for node in now.nodes],
        "refused_workers": {str(worker): reason for worker, reason in sources.workers.refused.items()},
        "sessions": now.sessions_by_state,
        "waiting": [waiting(view) for view in now.waiting],
        "waiting_not_listed": now.waiting_count - len(now.waiting),
        "paused_without_turn": now.paused,
        "turns": dict(sources.handler.counters) | {"live": sources.driver.live_turns},
        "pauses": core.get("pauses", 0),
        "restarts": core.get("restarts", 0),
        "plans": plans,
        "plans_applied": core.get("plans_applied", 0),
        "solve_in_flight": now.solve_in_flight,
        "solves": {"by_method": dict(solves), "total": total, "warm": sources.planner.pid is not None}
        | _plain(sources.planner.counters),
        "credit": {
            "cached_tokens": core.get("cached_tokens", 0),
            "prompt_tokens": core.get("prompt_tokens", 0),
            "predicted_tokens": sources.handler.counters["credit_predicted_tokens"],
            "confirmed_tokens": sources.handler.counters["credit_confirmed_tokens"],
            "turns_with_credit": sources.handler.counters["turns_with_credit"],
        },
        "tool_events": dict(sources.bus.tool_events),
        "bus": {
            "connected": sources.bus.connected,
            "lag_s": round(sources.bus.lag_s, 4),
            "stale_nodes": sources.bus.stale_nodes,
            "counters": dict(sources.bus.counters),
            "reader": _plain(sources.reader.counters) if sources.reader is not None else None,
            "resyncs": follower.counters.resyncs if follower is not None else 0,
        },
        "index": _plain(stats),
        "core": core,
        "faults": dict(sources.driver.counters),
    }


def waiting(view: SessionView) -> dict[str, Any]:
    """One line of the waiting pool, in words."""
    overdue = " (overdue)" if view.overdue else ""
    says = f"session {view.session_id} has waited {view.waited_s or 0.0:.1f} s: {view.reason}{overdue}"
    return {"says": says, **_plain(view)}


def explain(sources: Sources, body: object) -> dict[str, Any]:
    """One session: ``{"session": id}``. The body is whatever JSON somebody sent."""
    session_id = body.get("session") if isinstance(body, Mapping) else None
    if not isinstance(session_id, str) or not session_id:
        return {"error": 'send {"session": "<id>"}'}
    view = sources.explain(session_id)
    if view is None:
        return {"error": f"session {session_id} is not known: it has ended, expired, or had no turn yet"}
    calls = sources.predictor.calls(session_id, sources.driver.clock())
    choices = sources.driver.scheduler.choices(session_id, sources.driver.clock())
    return {
        **_plain(view),
        "tool_calls": [_plain(call) for call in calls],
        "nodes": [_plain(choice) for choice in choices],
    }


def _plain(value: Any) -> Any:
    """JSON of dataclasses, node ids and enums. Worker ids become text: they are too large for JSON's readers."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, NodeId):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else str(value)
    return value
