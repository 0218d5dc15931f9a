# SPDX-License-Identifier: Apache-2.0
"""Where metrics and status take their figures from: one look at everything."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kv_events.index import BlockIndex
from kv_events.reader import EventReader
from solver.planner import Planner
from tao_dynamo.core.views import SessionView, Statistics
from tao_dynamo.shell.bus import Bus
from tao_dynamo.shell.handler import Handler
from tao_dynamo.shell.loop import Driver
from tao_dynamo.shell.workers import Workers
from tool_hooks.predictor import Predictor

Figures = dict[str, "float | Mapping[Any, float]"]


_PLANS = ("plans_applied", "plans_optimal", "plans_ignored", "solves_failed", "solves_skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Everything that can be asked."""

    driver: Driver
    handler: Handler
    bus: Bus
    workers: Workers
    index: BlockIndex
    predictor: Predictor
    planner: Planner
    reader: EventReader | None
    streams: Counter[str] = dataclasses.field(default_factory=Counter)
    started_at: float = dataclasses.field(default_factory=time.time)

    def statistics(self, limit: int = 200) -> Statistics:
        """The core at this moment; of the waiting pool the first ``limit``."""
        return self.driver.scheduler.statistics(self.driver.clock(), limit=limit)

    def explain(self, session_id: str) -> SessionView | None:
        """One session at this moment."""
        return self.driver.scheduler.explain(session_id, self.driver.clock())

    def figures(self) -> Figures:
        """The value of every metric family that is not a distribution, by label where it has any."""
        now = self.statistics(limit=0)
        stats = self.index.stats()
        planner = self.planner.counters
        out: Figures = {
            "sessions": now.sessions_by_state,
            "paused_sessions": now.paused,
            "waiting_turns": {"true": now.overdue_count, "false": now.waiting_count - now.overdue_count},
            "live_turns": self.driver.live_turns,
            "refused_workers": len(self.workers.refused),
            "decisions": now.counters,
            "turns": self.handler.counters,
            "solves": self.driver.solves,
            "plans": {name.partition("_")[2]: now.counters.get(name, 0) for name in _PLANS},
            "plan_entries": {
                "applied": now.counters.get("placements_applied", 0),
                **_after(now.counters, "placement_refused."),
            },
            "refusals": _after(now.counters, "refused."),
            "streams": self.streams,
            "planner_fallbacks": planner.fallbacks,
            "planner_solves": {"cpu": planner.cpu_solves, "gpu": planner.gpu_solves},
            "planner_budget_overruns": planner.budget_overruns,
            "planner_device_faults": planner.device_faults,
            "planner_restarts": planner.restarts,
            "tool_events": self.bus.tool_events,
            "predictor": self.predictor.counters,
            "event_bus_connected": self.bus.connected,
            "event_lag_seconds": self.bus.lag_s,
            "node_events": {
                key.removeprefix("node_"): value for key, value in self.bus.counters.items() if key.startswith("node_")
            },
            "index_blocks": stats.blocks,
            "index_resident_blocks": stats.resident,
            "index_events": dataclasses.asdict(stats.counters),
            "faults": {**self.driver.counters, "discovery": self.workers.faults, "bus": self.bus.counters["faults"]},
        }
        if self.bus.follower is not None:
            out["resyncs"] = self.bus.follower.counters.resyncs
        if self.reader is not None:
            heard = self.reader.counters
            out["event_messages"] = heard.by_topic
            out["event_faults"] = {
                "malformed": heard.malformed + self.bus.counters["tool_events_malformed"],
                "malformed_event": heard.malformed_events,
                "unknown_event": heard.unknown_events,
                "unknown_session": self.bus.counters["tool_events_unknown_session"],
                "foreign_tenant": self.bus.counters["tool_events_foreign_tenant"],
                "dropped": heard.dropped,
                "repeated_tool_event": heard.repeated_tool_events,
                "handler": heard.handler_errors,
            }
        out.update(self._nodes(now))
        return out

    def _nodes(self, now: Statistics) -> Figures:
        table: dict[str, dict[tuple[int, int], float]] = {}
        for view in now.nodes:
            label = (view.node.worker_id, view.node.dp_rank)
            verdict = self.bus.verdicts.get(view.node)
            for name, value in (
                ("node_capacity_tokens", view.capacity),
                ("node_reserved_tokens", view.reserved),
                ("node_foreign_tokens", view.foreign),
                ("node_residual_tokens", view.residual),
                ("node_sessions", view.sessions),
                ("node_stale", view.stale),
                ("node_silent", verdict == "silent"),
                ("node_hash_mismatch_suspected", verdict == "mismatch"),
            ):
                table.setdefault(name, {})[label] = float(value)
        return {**table}


def _after(counters: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): value for name, value in counters.items() if name.startswith(prefix)}
