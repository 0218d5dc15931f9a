# SPDX-License-Identifier: Apache-2.0
"""The core under random interleavings of every event, cancels, crashes and late plans included."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kv_events.types import NodeId
from solver.front import solve
from tao_dynamo.core.decisions import Admit, AskSolve, Decision, Refuse, WakeAt
from tao_dynamo.core.policy import DEFAULT, PAPER
from tao_dynamo.core.scheduler import Scheduler
from tao_dynamo.core.turn import Turn
from tests.tao_dynamo.fakes import FakeCredit, FakeReadiness

NODES = [NodeId(7, 0), NodeId(7, 1), NodeId(9, 0)]
SESSIONS = [f"s{i}" for i in range(6)]
BOUND = DEFAULT.waiting_bound_s
names = st.sampled_from(SESSIONS)
sizes = st.integers(100, 9000)
PREFIX = tuple(range(1, 65))


class CoreMachine(RuleBasedStateMachine):
    """A little world around the core. It keeps its own account of what the core has been told and has decided."""

    policy = replace(DEFAULT, max_waiting=50)

    def __init__(self) -> None:
        super().__init__()
        self.t = 0.0
        self.credit = FakeCredit()
        self.readiness = FakeReadiness()
        self.core = Scheduler(self.policy, credit=self.credit, readiness=self.readiness)
        self.asked = False
        self.next_request = 0
        self.waiting: dict[str, tuple[str, float]] = {}
        self.running: dict[str, str | None] = {}
        self.over_capacity_is_ours = True
        for node in NODES[:2]:
            self.follow(self.core.node_joined(node, capacity_tokens=10_000, block_size=16, t=0.0))

    def follow(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Admit):
                assert decision.request_id not in self.running, "admitted twice"
                self.waiting.pop(decision.request_id, None)
                self.running[decision.request_id] = decision.session_id
            elif isinstance(decision, Refuse):
                assert decision.request_id not in self.running, "refused while running"
                self.waiting.pop(decision.request_id, None)
            elif isinstance(decision, AskSolve):
                assert not self.asked, "at most one solve in flight"
                self.asked = True
            else:
                assert not isinstance(decision, WakeAt) or decision.at >= 0

    @rule(session=names, tokens=sizes, output=st.integers(1, 900), shared=st.booleans(), priority=st.integers(-1, 1))
    def arrive(self, session: str, tokens: int, output: int, shared: bool, priority: int) -> None:
        request = f"r{self.next_request}"
        self.next_request += 1
        self.waiting[request] = (session, self.t)
        hashes = (PREFIX if shared else ()) + tuple(hash((session, i)) & 0xFFFF_FFFF for i in range(tokens // 160))
        self.follow(self.core.turn_arrived(Turn(request, session, tokens, output, priority, hashes=hashes), self.t))

    @rule(tokens=st.integers(1, 500))
    def guest(self, tokens: int) -> None:
        request = f"g{self.next_request}"
        self.next_request += 1
        self.over_capacity_is_ours = False
        self.follow(self.core.turn_arrived(Turn(request, None, tokens, 50), self.t))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), ok=st.booleans(), produced=st.integers(0, 900))
    def end(self, data: st.DataObject, ok: bool, produced: int) -> None:
        request = data.draw(st.sampled_from(sorted(self.running)))
        if produced > 800:
            self.over_capacity_is_ours = False
        del self.running[request]
        self.follow(self.core.turn_ended(request, t=self.t, output_tokens=produced, ok=ok))
        self.follow(self.core.turn_ended(request, t=self.t, ok=ok))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), n=st.integers(1, 2000))
    def stream(self, data: st.DataObject, n: int) -> None:
        request = data.draw(st.sampled_from(sorted(self.running)))
        self.over_capacity_is_ours = False
        self.follow(self.core.first_token(request, self.t))
        self.follow(self.core.tokens(request, n, self.t))

    @precondition(lambda self: self.running or self.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(sorted([*self.running, *self.waiting])))
        self.running.pop(request, None)
        self.waiting.pop(request, None)
        self.follow(self.core.turn_cancelled(request, self.t))
        self.follow(self.core.turn_cancelled(request, self.t))

    @precondition(lambda self: any(self.running.values()))
    @rule(data=st.data())
    def displace(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(sorted(r for r, s in self.running.items() if s)))
        session = self.running.pop(request)
        assert session is not None
        self.waiting[request] = (session, self.t)
        self.follow(self.core.turn_displaced(request, self.t))

    @rule(session=names, seconds=st.floats(0.1, 40.0))
    def tool_starts(self, session: str, seconds: float) -> None:
        self.readiness.calls[session] = (self.t, self.t + seconds)
        self.follow(self.core.tool_changed(session, self.t))

    @rule(session=names)
    def tool_ends(self, session: str) -> None:
        self.readiness.calls.pop(session, None)
        self.follow(self.core.tool_changed(session, self.t))

    @rule(session=names)
    def session_ends(self, session: str) -> None:
        self.follow(self.core.session_ended(session, self.t))

    @rule(node=st.sampled_from(NODES), capacity=st.sampled_from([8_000, 10_000, 12_000]))
    def node_joins(self, node: NodeId, capacity: int) -> None:
        if any(n.node == node and n.capacity > capacity for n in self.core.statistics(self.t).nodes):
            self.over_capacity_is_ours = False
        self.follow(self.core.node_joined(node, capacity_tokens=capacity, block_size=16, t=self.t))

    @rule(node=st.sampled_from(NODES))
    def node_leaves(self, node: NodeId) -> None:
        self.follow(self.core.node_left(node, self.t))

    @rule(node=st.sampled_from(NODES), stale=st.booleans())
    def node_stale(self, node: NodeId, stale: bool) -> None:
        self.follow(self.core.node_stale(node, stale, self.t))

    @rule(node=st.sampled_from(NODES), used=st.integers(0, 12_000))
    def load(self, node: NodeId, used: int) -> None:
        self.over_capacity_is_ours = False
        self.follow(self.core.node_load(node, used_tokens=used, t=self.t))

    @precondition(lambda self: self.asked)
    @rule(delay=st.floats(0.0, 0.5), crash=st.booleans(), twice=st.booleans(), between=st.sampled_from(SESSIONS))
    def plan(self, delay: float, crash: bool, twice: bool, between: str) -> None:
        self.asked = False
        snapshot = self.core.snapshot(self.t)
        if snapshot is None:
            return
        if delay > 0.4:
            self.follow(self.core.session_ended(between, self.t))
        self.t += delay
        if crash:
            self.follow(self.core.solve_failed(snapshot.id, self.t))
            return
        plan = solve(snapshot.problem, method="bfd")
        self.follow(self.core.plan_returned(snapshot.id, plan, self.t))
        if twice:
            before = self.core.statistics(self.t)
            decisions = self.core.plan_returned(snapshot.id, plan, self.t)
            assert not [d for d in decisions if isinstance(d, Admit)]
            assert self.core.statistics(self.t).nodes == before.nodes

    @rule(seconds=st.floats(0.001, 20.0))
    def time_passes(self, seconds: float) -> None:
        self.t += seconds
        self.answer()
        self.follow(self.core.time_passes(self.t))

    def answer(self) -> None:
        """Answer solves at once, so that only the core can be the reason for a long wait."""
        while self.asked:
            self.asked = False
            snapshot = self.core.snapshot(self.t)
            if snapshot is not None:
                self.follow(self.core.plan_returned(snapshot.id, solve(snapshot.problem, method="bfd"), self.t))

    @invariant()
    def room_is_consistent(self) -> None:
        statistics = self.core.statistics(self.t)
        for node in statistics.nodes:
            assert node.reserved >= 0
            assert node.claimed >= 0
            if self.over_capacity_is_ours:
                assert node.reserved <= node.capacity, "over capacity by our own doing"
        assert statistics.requests == len(self.waiting) + sum(1 for s in self.running.values() if s), "a turn was lost"
        assert statistics.guests == sum(1 for s in self.running.values() if not s)

    @invariant()
    def every_waiting_turn_can_be_explained(self) -> None:
        for session in {session for session, _ in self.waiting.values()}:
            view = self.core.explain(session, self.t)
            if view is not None and view.state.value == "waiting":
                assert view.reason

    def teardown(self) -> None:
        """Whatever happened: once the world calms down, nobody waits and nothing is left over."""
        for node in self.core.statistics(self.t).nodes:
            self.follow(self.core.node_load(node.node, used_tokens=0, t=self.t))
        self.follow(self.core.node_joined(NODES[2], capacity_tokens=12_000, block_size=16, t=self.t))
        for _ in range(400):
            self.answer()
            for request in sorted(self.running):
                self.running.pop(request)
                self.follow(self.core.turn_ended(request, t=self.t, output_tokens=10))
                self.answer()
            if not self.waiting and not self.running:
                break
            self.t += 1.0
            self.follow(self.core.time_passes(self.t))
        assert not self.waiting, {s: self.core.explain(s, self.t) for s, _ in self.waiting.values()}
        for session in [*SESSIONS]:
            self.follow(self.core.session_ended(session, self.t))
            self.answer()
        statistics = self.core.statistics(self.t)
        assert sum(statistics.sessions_by_state.values()) == 0
        assert all(node.reserved == 0 and node.claimed == 0 for node in statistics.nodes)
        assert len(self.core._state.prefixes) == 0


class PaperMachine(CoreMachine):
    """The same, in the paper's mode."""

    policy = replace(PAPER, max_waiting=50)


SETTINGS = settings(
    max_examples=220, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck), derandomize=False
)
TestCore = CoreMachine.TestCase
TestCore.settings = SETTINGS
TestPaper = PaperMachine.TestCase
TestPaper.settings = settings(SETTINGS, max_examples=40)
