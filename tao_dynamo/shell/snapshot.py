# SPDX-License-Identifier: Apache-2.0
"""Looks at the whole router without holding it up: the sessions are read a few at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from kv_events.types import NodeId
from solver.problem import Value
from tao_dynamo import __version__
from tao_dynamo.core.session import SessionState
from tao_dynamo.core.solving import PlanRecord
from tao_dynamo.core.views import REFUSAL_WORDS, NodeView, SessionView, Statistics
from tao_dynamo.page.wire import BusHealth, NodeRow, PlanRow, SessionRow, Snapshot, Totals, short_names
from tao_dynamo.shell.sources import Sources

MAX_SESSIONS = 5000
"""Sessions listed; of more, those that wait come first."""
FALLBACKS = 5
"""Plans in a row made by the fallback, after which it is said."""
SLICE = 32
"""Sessions read between two looks at the clock."""
STEP_S = 0.001
"""After this long the event loop gets its turn."""


async def snapshot(sources: Sources, *, limit: int = MAX_SESSIONS) -> Snapshot:
    """Look at everything. Turns that arrive meanwhile are served: no step takes longer than about a millisecond."""
    scheduler, clock = sources.driver.scheduler, sources.driver.clock
    # What it costs is counted in time of the processor: on a busy machine the clock runs on while we do not.
    working = time.thread_time()
    now = scheduler.statistics(clock(), limit=0)
    rows: list[SessionRow] = []
    ids = scheduler.session_ids(limit)
    place, spent = 0, 0.0
    began = clock()
    for start in range(0, len(ids), SLICE):
        t = clock()
        if t - began >= STEP_S:
            spent += time.thread_time() - working
            await asyncio.sleep(0)
            working = time.thread_time()
            began = t = clock()
        for view in scheduler.session_views(ids[start : start + SLICE], t):
            waits = view.state is SessionState.WAITING
            place += waits
            rows.append(_session(sources, view, t, place if waits else 0))
    spent += time.thread_time() - working
    policy = scheduler.policy
    return Snapshot(
        version=__version__,
        at=round(time.time(), 3),
        up_s=round(time.time() - sources.started_at, 1),
        took_ms=round(spent * 1e3, 2),
        policy=now.policy,
        shared_prefixes=now.shared_prefixes,
        admission_mark=now.marks.admission,
        pause_mark=now.marks.pause,
        waiting_bound_s=policy.waiting_bound_s,
        problems=problems(sources, now, rows),
        by_state=now.sessions_by_state,
        nodes=_nodes(sources, now.nodes),
        sessions=rows,
        left_out=max(0, sum(now.sessions_by_state.values()) - len(ids)),
        plans=[_plan(record, now.at) for record in reversed(now.plans)],
        solving=now.solve_in_flight,
        bus=_bus(sources),
        totals=_totals(sources, now.counters),
    )


def problems(sources: Sources, now: Statistics, rows: list[SessionRow]) -> list[str]:
    """What an operator should know, the worst first."""
    bus, found = sources.bus, []
    if not now.nodes:
        found.append("No worker is registered: every turn waits or is refused.")
    if sources.reader is None:
        found.append("No event bus is listened to: credit is guessed, tools are not heard (DYN_EVENT_PLANE=nats).")
    elif not bus.connected:
        found.append("The event bus is not connected: TAO goes on with what it last knew.")
    names = short_names([str(node.node) for node in now.nodes])
    for text, nodes in (
        ("events had a gap; their blocks are being fetched anew", [n.node for n in now.nodes if n.stale]),
        ("publishes no KV events; its credit is guessed from what ran there", _with(bus.verdicts, "silent")),
        ("announces other blocks than those expected; look at its block size", _with(bus.verdicts, "mismatch")),
    ):
        if nodes:
            shown = ", ".join(names.get(str(node), str(node)) for node in nodes[:4])
            more = f" and {len(nodes) - 4} more" if len(nodes) > 4 else ""
            found.append(f"Node {shown}{more}: {text}.")
    found += [f"Worker {worker} is left out: {reason}." for worker, reason in sources.workers.refused.items()]
    overdue = sum(row.overdue for row in rows)
    if overdue:
        bound = sources.driver.scheduler.policy.waiting_bound_s
        verb = "session has" if overdue == 1 else "sessions have"
        found.append(f"{overdue} {verb} waited longer than {bound:g} s.")
    last = list(now.plans)[-FALLBACKS:]
    by_fallback = len(last) == FALLBACKS and all(plan.method == "bfd" for plan in last)
    if by_fallback and sources.driver.scheduler.policy.solver != "bfd":
        why = last[-1].note.partition(";")[0] or "best-fit decreasing"
        found.append(f"The last plans were not made by the planner: {why}.")
    faults = sum(sources.driver.counters.values())
    if faults:
        found.append(f"TAO has survived {faults} faults of its own; its log says which.")
    return found


def _with(verdicts: Mapping[NodeId, str], verdict: str) -> list[NodeId]:
    return [node for node, told in verdicts.items() if told == verdict]


def _session(sources: Sources, view: SessionView, t: float, place: int) -> SessionRow:
    tool: dict[str, Any] = {}
    if view.remaining_s is not None:
        calls = sources.predictor.calls(view.key, t)
        if calls:
            last = max(calls, key=lambda call: call.remaining.seconds)
            tool = {
                "tool": last.key or "tool",
                "calls": len(calls),
                "tool_elapsed_s": round(last.elapsed_s, 2),
                "returns_in_s": round(last.remaining.seconds, 2),
                "source": last.remaining.source,
            }
    return SessionRow(
        id=view.key,
        session=view.session_id if view.session_id != view.key else None,
        state=view.state.value,
        for_s=round(view.for_s, 2),
        place=place,
        waited_s=None if view.waited_s is None else round(view.waited_s, 2),
        overdue=view.overdue,
        reason=view.reason,
        node=None if view.node is None else str(view.node),
        held=view.held,
        footprint=view.footprint,
        cost=view.cost,
        ready=view.ready,
        credits={str(node): tokens for node, tokens in view.credits.items()},
        output=view.output,
        parent=view.parent,
        marked=view.marked,
        **tool,
    )


def _nodes(sources: Sources, nodes: tuple[NodeView, ...]) -> list[NodeRow]:
    names = short_names([str(view.node) for view in nodes])
    rows = []
    for view in nodes:
        stats = sources.index.node_stats(view.node)
        verdict = sources.bus.verdicts.get(view.node)
        rows.append(
            NodeRow(
                node=str(view.node),
                name=names[str(view.node)],
                capacity=view.capacity,
                reserved=view.reserved,
                running=view.running_tokens,
                foreign=view.foreign,
                claimed=view.claimed,
                residual=view.residual,
                used=sources.bus.load(view.node),
                cached=stats.blocks * (stats.block_size or 0) if stats is not None else 0,
                sessions=view.sessions,
                running_sessions=view.running,
                stale=view.stale,
                events=verdict if verdict in ("silent", "mismatch") else "ok",
            )
        )
    return rows


def _plan(record: PlanRecord, at: float) -> PlanRow:
    return PlanRow(
        id=record.snapshot_id,
        ago_s=round(at - record.at, 2),
        method=record.method,
        seconds=round(record.seconds, 6),
        candidates=record.candidates,
        placed=record.placed,
        refused={REFUSAL_WORDS.get(reason, reason): count for reason, count in record.refused.items()},
        optimal=record.optimal,
        value=_triplet(record.value),
        bound=_triplet(record.bound),
        note=record.note,
    )


def _triplet(value: Value) -> tuple[int, int, int]:
    return value.credit, value.ready, value.footprint


def _bus(sources: Sources) -> BusHealth:
    bus, heard = sources.bus, sources.reader.counters if sources.reader is not None else None
    return BusHealth(
        connected=bus.connected,
        listens=sources.reader is not None,
        lag_s=round(bus.lag_s, 4),
        gaps=bus.counters["node_stale"],
        stale_nodes=bus.stale_nodes,
        resyncs=bus.follower.counters.resyncs if bus.follower is not None else 0,
        dropped=heard.dropped if heard else 0,
        malformed=(heard.malformed if heard else 0) + bus.counters["tool_events_malformed"],
        disconnects=heard.disconnects if heard else 0,
        messages=heard.messages if heard else 0,
        tool_events=dict(bus.tool_events),
        blocks=sources.index.stats().blocks,
    )


def _totals(sources: Sources, core: Mapping[str, int]) -> Totals:
    shell, planner = sources.handler.counters, sources.planner.counters
    return Totals(
        live_turns=sources.driver.live_turns,
        turns=shell["session_turns"] + shell["guest_turns"],
        failed=shell["failed_turns"],
        cancelled=shell["cancelled_turns"],
        displaced=shell["displaced_turns"],
        refused=sum(count for key, count in core.items() if key.startswith("refused.")),
        pauses=core.get("pauses", 0),
        restarts=core.get("restarts", 0),
        plans=core.get("plans_applied", 0),
        fallbacks=sum(planner.fallbacks.values()),
        planner_restarts=planner.restarts,
        prompt_tokens=core.get("prompt_tokens", 0),
        cached_tokens=core.get("cached_tokens", 0),
    )
