# SPDX-License-Identifier: Apache-2.0
"""Every Prometheus name of TAO. No label is ever a session or a request.

Counters of the core, the index and the reader are read when Prometheus asks; only distributions are recorded on the
way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from tao_dynamo.shell.sources import Sources

PREFIX = "dynamo_component_tao_router_"

_WAITS = (0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
_SOLVES = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5)
_TOKENS = (0, 256, 1024, 4096, 8192, 16384, 32768, 65536, 131072, 262144)

# name without prefix: (kind, help, labels)
FAMILIES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "sessions": ("gauge", "Sessions, by state", ("state",)),
    "paused_sessions": ("gauge", "Sessions that gave up their room and have no turn yet", ()),
    "waiting_turns": ("gauge", "Sessions with a turn waiting for room, by whether they are overdue", ("overdue",)),
    "live_turns": ("gauge", "Turns that wait or run", ()),
    "node_capacity_tokens": ("gauge", "KV room of a node", ("worker_id", "dp_rank")),
    "node_reserved_tokens": ("gauge", "KV room of a node that TAO has given away", ("worker_id", "dp_rank")),
    "node_foreign_tokens": ("gauge", "KV room of a node used by what is not TAO's", ("worker_id", "dp_rank")),
    "node_residual_tokens": (
        "gauge",
        "KV room of a node that may still be given, up to the mark",
        ("worker_id", "dp_rank"),
    ),
    "node_sessions": ("gauge", "Sessions that hold room on a node", ("worker_id", "dp_rank")),
    "node_stale": ("gauge", "1 while the node's state is not known for certain", ("worker_id", "dp_rank")),
    "node_silent": ("gauge", "1 while the node publishes no KV events", ("worker_id", "dp_rank")),
    "node_hash_mismatch_suspected": ("gauge", "1 while no expected block is announced", ("worker_id", "dp_rank")),
    "refused_workers": ("gauge", "Workers that are left out, by reason in the status", ()),
    "decisions": ("counter", "What the core did, by kind", ("kind",)),
    "turns": ("counter", "Turns as the shell saw them, by outcome", ("outcome",)),
    "solves": ("counter", "Plans, by the method that made them", ("method",)),
    "plans": ("counter", "Solves asked for, by what became of them", ("outcome",)),
    "plan_entries": ("counter", "Placements in plans: applied, or refused by reason", ("outcome",)),
    "refusals": ("counter", "Turns refused, by reason", ("reason",)),
    "streams": ("counter", "Turns forwarded, by the way their answer came", ("way",)),
    "planner_fallbacks": ("counter", "Plans that best-fit decreasing made instead, by reason", ("reason",)),
    "planner_solves": ("counter", "Solves by device", ("device",)),
    "planner_budget_overruns": ("counter", "Solves over their time budget", ()),
    "planner_device_faults": ("counter", "Faults of the GPU or of the way to it", ()),
    "planner_restarts": ("counter", "Times the planner process was replaced", ()),
    "tool_events": ("counter", "Tool events heard, by kind", ("kind",)),
    "predictor": ("counter", "What the predictor took and dropped, by reason", ("reason",)),
    "event_bus_connected": ("gauge", "1 while the event bus is there", ()),
    "event_lag_seconds": ("gauge", "Age of the last KV event when it arrived, by the publisher's clock", ()),
    "event_messages": ("counter", "Messages heard, by topic", ("topic",)),
    "event_faults": ("counter", "Messages malformed, unknown, dropped or failed, by reason", ("reason",)),
    "node_events": ("counter", "What happened to nodes' event streams, by kind", ("kind",)),
    "index_blocks": ("gauge", "Distinct KV blocks in the index", ()),
    "index_resident_blocks": ("gauge", "KV blocks in the index, each node's counted", ()),
    "index_events": ("counter", "What the index did, in blocks, by kind", ("kind",)),
    "resyncs": ("counter", "Nodes whose state was fetched anew", ()),
    "faults": ("counter", "Faults of TAO that it survived, by place", ("place",)),
}
HISTOGRAMS: dict[str, tuple[str, Iterable[float]]] = {
    "turn_wait_seconds": ("Time a turn waited for room", _WAITS),
    "pause_seconds": ("Time between a session's pause and its restart", _WAITS),
    "solve_seconds": ("Time from snapshot to plan", _SOLVES),
    "credit_predicted_tokens": ("Credit on the node that a turn was given", _TOKENS),
    "credit_confirmed_tokens": ("Prompt tokens that the engine took from its cache", _TOKENS),
    "eta_error_seconds": ("How far the return of a tool was from its prediction", _WAITS),
}


class Metrics:
    """The registry.

    Args:
        sources: where the figures come from.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._histograms = {
            name: Histogram(PREFIX + name, text, buckets=tuple(buckets), registry=self._registry)
            for name, (text, buckets) in HISTOGRAMS.items()
        }

    def observe(self, name: str) -> Callable[[float], None]:
        """Return what records a value of the histogram of that name."""
        return self._histograms[name].observe

    def expose(self) -> str:
        """Prometheus' text."""
        return generate_latest(self._registry).decode()

    def describe(self) -> list[Metric]:
        """Nothing: the families are known when they are collected."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Read all figures."""
        values = self._sources.figures()
        for name, (kind, text, labels) in FAMILIES.items():
            family: Any = (CounterMetricFamily if kind == "counter" else GaugeMetricFamily)(
                PREFIX + name, text, labels=labels
            )
            found = values.get(name, {})
            if not labels:
                family.add_metric([], float(found if isinstance(found, (int, float)) else 0))
            elif isinstance(found, Mapping):
                for label, value in found.items():
                    family.add_metric(
                        [str(part) for part in (label if isinstance(label, tuple) else (label,))], float(value)
                    )
            yield family
