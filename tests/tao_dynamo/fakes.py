# SPDX-License-Identifier: Apache-2.0
"""Hand-written stand-ins for the core's two signals, and a driver that solves on the spot."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kv_events.types import NodeId
from solver.front import solve
from tao_dynamo.core.decisions import Admit, AskSolve, Decision, Pause, Refuse, Restart, WakeAt
from tao_dynamo.core.policy import DEFAULT, Policy
from tao_dynamo.core.scheduler import Scheduler
from tao_dynamo.core.turn import Turn

A = NodeId(7, 0)
B = NodeId(8, 0)

PLAIN = replace(DEFAULT, long_tool_factor=1.0, crowded_at=0.0, work_conserving=False)
"""The default with one admission mark, no discount for long tools and no way made: held is what was asked for."""


@dataclass
class FakeCredit:
    """Credit as told by the test; nothing decays but what ``aged`` gives instead."""

    table: dict[str, dict[NodeId, int]] = field(default_factory=dict)
    aged: dict[str, dict[NodeId, int]] = field(default_factory=dict)

    def credits(self, session_id: str, t: float) -> dict[NodeId, int]:
        return self.aged.get(session_id) or self.table.get(session_id, {})

    def resident(self, session_id: str) -> dict[NodeId, int]:
        return self.table.get(session_id, {})

    def ran_on(self, session_id: str, node: NodeId, tokens: int, t: float) -> None:
        self.table[session_id] = {node: tokens}

    def forget(self, session_id: str) -> None:
        self.table.pop(session_id, None)

    def forget_node(self, node: NodeId) -> None:
        for nodes in self.table.values():
            nodes.pop(node, None)


@dataclass
class FakeRemaining:
    seconds: float
    elapsed_s: float


@dataclass
class FakeReadiness:
    """Tools whose return time the test knows: session id -> (started at, returns at)."""

    calls: dict[str, tuple[float, float]] = field(default_factory=dict)
    horizon_s: float = 1.0

    def running(self, session_id: str) -> bool:
        return session_id in self.calls

    def remaining(self, session_id: str, t: float) -> FakeRemaining | None:
        if session_id not in self.calls:
            return None
        start, end = self.calls[session_id]
        return FakeRemaining(max(0.0, end - t), t - start)

    def ready(self, session_id: str, t: float) -> bool:
        remaining = self.remaining(session_id, t)
        return remaining is None or remaining.seconds <= self.horizon_s

    def next_change(self, session_id: str, t: float) -> float | None:
        if session_id not in self.calls:
            return None
        at = self.calls[session_id][1] - self.horizon_s
        return at if at > t else None

    def forget(self, session_id: str) -> None:
        self.calls.pop(session_id, None)


class Driver:
    """The core with fakes around it, every asked solve answered at once, by best-fit decreasing, unless held back.

    Blocks of one token keep the sums plain; tests of rounding say another size.
    """

    def __init__(self, policy: Policy = DEFAULT, nodes: dict[NodeId, int] | None = None, block_size: int = 1) -> None:
        self.credit = FakeCredit()
        self.readiness = FakeReadiness()
        self.core = Scheduler(policy, credit=self.credit, readiness=self.readiness)
        self.hold_back = False
        self.asked = 0
        self.t = 0.0
        self.wake: float | None = None
        for node, capacity in (nodes if nodes is not None else {A: 100_000}).items():
            self.run(self.core.node_joined(node, capacity_tokens=capacity, block_size=block_size, t=self.t))

    def run(self, decisions: list[Decision]) -> list[Decision]:
        """Follow the decisions, solves included; returns all but the questions."""
        out: list[Decision] = []
        todo = list(decisions)
        while True:
            if not todo:
                if self.wake is None or self.wake - self.t > 0.01:
                    break
                self.t = max(self.t, self.wake)  # a solve put off by a few ms: let them pass
                self.wake = None
                todo += self.core.time_passes(self.t)
                continue
            decision = todo.pop(0)
            if isinstance(decision, WakeAt):
                self.wake = decision.at
                continue
            if not isinstance(decision, AskSolve):
                out.append(decision)
                continue
            self.asked += 1
            if self.hold_back:
                continue
            snapshot = self.core.snapshot(self.t)
            if snapshot is not None:
                todo += self.core.plan_returned(snapshot.id, solve(snapshot.problem, method="bfd"), self.t)
        return out

    def arrive(
        self,
        session: str | None,
        tokens: int,
        *,
        request: str | None = None,
        output: int = 100,
        hashes: tuple[int, ...] = (),
        **extra: object,
    ) -> list[Decision]:
        turn = Turn(request or f"r-{session}", session, tokens, output, hashes=hashes, **extra)  # type: ignore[arg-type]
        return self.run(self.core.turn_arrived(turn, self.t))

    def end(self, session: str, *, request: str | None = None, output: int = 100, ok: bool = True) -> list[Decision]:
        return self.run(self.core.turn_ended(request or f"r-{session}", t=self.t, output_tokens=output, ok=ok))

    def start_tool(self, session: str, seconds: float) -> list[Decision]:
        self.readiness.calls[session] = (self.t, self.t + seconds)
        return self.run(self.core.tool_changed(session, self.t))

    def end_tool(self, session: str) -> list[Decision]:
        self.readiness.calls.pop(session, None)
        return self.run(self.core.tool_changed(session, self.t))

    def advance(self, seconds: float, step: float = 0.25) -> list[Decision]:
        """Let time pass in steps, firing timers."""
        out: list[Decision] = []
        until = self.t + seconds
        while self.t < until:
            self.t = min(until, self.t + step)
            self.wake = None
            out += self.run(self.core.time_passes(self.t))
        return out

    def view(self, session: str) -> object:
        return self.core.explain(session, self.t)

    def used(self, node: NodeId) -> int:
        return next(n.reserved for n in self.core.statistics(self.t).nodes if n.node == node)


def admitted(decisions: list[Decision]) -> list[tuple[str, NodeId]]:
    return [(d.request_id, d.node) for d in decisions if isinstance(d, Admit)]


def paused(decisions: list[Decision]) -> list[str]:
    return [d.session_id for d in decisions if isinstance(d, Pause)]


def restarted(decisions: list[Decision]) -> list[str]:
    return [d.session_id for d in decisions if isinstance(d, Restart)]


def refused(decisions: list[Decision]) -> list[str]:
    return [d.reason.value for d in decisions if isinstance(d, Refuse)]
