# SPDX-License-Identifier: Apache-2.0
"""A little world around the core for property tests: every event there is, and an account of its own beside it.

An interleaving is a string of bytes, which :class:`Dice` reads as choices. So one draw makes a whole interleaving, and
a failing one shrinks to a short one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from kv_events.types import NodeId
from solver.front import solve
from tao_dynamo.core import admission
from tao_dynamo.core.decisions import Admit, AskSolve, Decision, Refuse, RefuseReason, WakeAt
from tao_dynamo.core.policy import Policy
from tao_dynamo.core.scheduler import Scheduler
from tao_dynamo.core.turn import Turn
from tests.tao_dynamo.fakes import FakeCredit, FakeReadiness

NODES = [NodeId(7, 0), NodeId(7, 1), NodeId(9, 0)]
SESSIONS = [f"s{i}" for i in range(6)]
PREFIX = tuple(range(1, 65))
LONG_PREFIX = tuple(range(1001, 1401))
T = TypeVar("T")


class Dice:
    """Choices out of bytes; zeros when they are used up."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def byte(self) -> int:
        """The next one."""
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def pick(self, among: Sequence[T]) -> T:
        """One of a few."""
        return among[self.byte() % len(among)]

    def scale(self, low: float, high: float) -> float:
        """A number between two."""
        return low + (high - low) * self.byte() / 255


class CoreWorld:
    """The core under one interleaving. ``seen`` counts the events of each kind."""

    def __init__(self, policy: Policy, data: bytes, seen: Counter[str]) -> None:
        self.policy = policy
        self.seen = seen
        self.dice = Dice(data)
        self.t = 0.0
        self.credit = FakeCredit()
        self.readiness = FakeReadiness()
        self.core = Scheduler(policy, credit=self.credit, readiness=self.readiness)
        self.asked = False
        self.asked_at = 0.0
        self.requests = 0
        self.waiting: dict[str, str] = {}
        self.running: dict[str, str | None] = {}
        self.alive: dict[str, float] = {}
        self.over_capacity_is_ours = True

    def run(self) -> None:
        """Let it all happen, and check after every event."""
        for node in NODES[:2]:
            self.follow(self.core.node_joined(node, capacity_tokens=10_000, block_size=16, t=0.0))
        while self.dice:
            kind, event = self.dice.pick(EVENTS if self.requests >= 3 else EVENTS[:1])
            if event(self) is not False:
                self.seen[kind] += 1
                self.check()
        self.calm_down()

    def follow(self, decisions: list[Decision]) -> None:
        """Do what the core decides, and hold it against what it was told."""
        for decision in decisions:
            if isinstance(decision, Admit):
                assert decision.request_id not in self.running, "admitted twice"
                self.waiting.pop(decision.request_id, None)
                self.running[decision.request_id] = decision.session_id
            elif isinstance(decision, Refuse):
                assert decision.request_id not in self.running, "refused while running"
                session = self.waiting.pop(decision.request_id, None)
                if decision.reason is RefuseReason.NEVER_FITS and session is not None:
                    self.alive.pop(session, None)
            elif isinstance(decision, AskSolve):
                given_up = self.t - self.asked_at >= self.policy.solve_timeout_s
                assert not self.asked or given_up, "at most one solve in flight"
                self.asked, self.asked_at = True, self.t
            else:
                assert not isinstance(decision, WakeAt) or decision.at >= 0

    # --- turns

    def arrive(self) -> None:
        dice, session = self.dice, self.dice.pick(SESSIONS)
        request = f"r{self.requests}"
        self.requests += 1
        self.waiting[request] = session
        flags = dice.byte()
        tokens, output = int(dice.scale(100, 9000)), int(dice.scale(1, 900))
        final = flags & 7 == 7
        if final:
            self.alive.pop(session, None)
        shared = LONG_PREFIX if flags & 2 and tokens > 16 * len(LONG_PREFIX) else PREFIX
        first = 10_000 * (1 + SESSIONS.index(session))
        own = tuple(range(first, first + tokens // 160))
        turn = Turn(
            request,
            session,
            tokens,
            output if flags & 8 else None,
            priority=(flags >> 4 & 3) - 1,
            hashes=(shared if flags & 64 else ()) + own,
            parent_session_id=dice.pick(SESSIONS) if flags & 128 else None,
            final=final,
        )
        self.follow(self.core.turn_arrived(turn, self.t))

    def guest(self) -> None:
        request = f"g{self.requests}"
        self.requests += 1
        self.over_capacity_is_ours = False
        self.follow(self.core.turn_arrived(Turn(request, None, int(self.dice.scale(1, 500)), 50), self.t))

    def end(self) -> bool | None:
        return self._end(ok=True)

    def fail(self) -> bool | None:
        return self._end(ok=False)

    def _end(self, *, ok: bool) -> bool | None:
        if not self.running:
            return False
        request, produced = self.dice.pick(sorted(self.running)), int(self.dice.scale(0, 900))
        if produced > 250:  # more than some turns were expected to produce
            self.over_capacity_is_ours = False
        self.finish(request, ok=ok, produced=produced)
        self.follow(self.core.turn_ended(request, t=self.t, ok=ok))
        return None

    def finish(self, request: str, *, ok: bool, produced: int) -> None:
        """A running turn ends."""
        session = self.running.pop(request)
        known = self.core._state.sessions.get(session) if session is not None else None
        final = known is None or known.final
        self.follow(self.core.turn_ended(request, t=self.t, output_tokens=produced, cached_tokens=0, ok=ok))
        after = self.core._state.sessions.get(session) if session is not None else None
        if after is not None and not final and after.footprint:
            self.alive[after.id] = self.t

    def stream(self) -> bool | None:
        if not self.running:
            return False
        request = self.dice.pick(sorted(self.running))
        self.over_capacity_is_ours = False
        self.follow(self.core.first_token(request, self.t))
        self.follow(self.core.tokens(request, int(self.dice.scale(1, 2000)), self.t))
        return None

    def cancel(self) -> bool | None:
        if not (self.running or self.waiting):
            return False
        request = self.dice.pick(sorted([*self.running, *self.waiting]))
        self.running.pop(request, None)
        self.waiting.pop(request, None)
        self.follow(self.core.turn_cancelled(request, self.t))
        self.follow(self.core.turn_cancelled(request, self.t))
        return None

    def displace(self) -> bool | None:
        ours = sorted(r for r, s in self.running.items() if s)
        if not ours:
            return False
        request = self.dice.pick(ours)
        self.waiting[request] = str(self.running.pop(request))
        self.follow(self.core.turn_displaced(request, self.t))
        return None

    # --- tools and sessions

    def tool_starts(self) -> None:
        session = self.dice.pick(SESSIONS)
        self.readiness.calls[session] = (self.t, self.t + self.dice.scale(0.1, 40.0))
        self.follow(self.core.tool_changed(session, self.t))

    def tool_progresses(self) -> bool | None:
        if not self.readiness.calls:
            return False
        session = self.dice.pick(sorted(self.readiness.calls))
        self.readiness.calls[session] = (self.readiness.calls[session][0], self.t + self.dice.scale(0.0, 40.0))
        self.follow(self.core.tool_changed(session, self.t))
        return None

    def tool_ends(self) -> None:
        session = self.dice.pick(SESSIONS)
        self.readiness.calls.pop(session, None)
        self.follow(self.core.tool_changed(session, self.t))

    def session_ends(self) -> None:
        session = self.dice.pick(SESSIONS)
        self.alive.pop(session, None)
        self.follow(self.core.session_ended(session, self.t))

    # --- nodes

    def node_joins(self) -> None:
        node, capacity = self.dice.pick(NODES), self.dice.pick([8_000, 10_000, 12_000])
        host = self.dice.pick([0, 0, 20_000])
        known = self.core._state.rooms.get(node)
        if host or (known is not None and known.capacity > capacity):
            self.over_capacity_is_ours = False
        joined = self.core.node_joined(node, capacity_tokens=capacity, block_size=16, t=self.t, host_tokens=host)
        self.follow(joined)

    def node_leaves(self) -> None:
        self.follow(self.core.node_left(self.dice.pick(NODES), self.t))

    def node_stale(self) -> None:
        self.follow(self.core.node_stale(self.dice.pick(NODES), self.dice.byte() % 2 == 1, self.t))

    def load(self) -> None:
        self.over_capacity_is_ours = False
        used = int(self.dice.scale(0, 12_000))
        self.follow(self.core.node_load(self.dice.pick(NODES), used_tokens=used, t=self.t))

    # --- plans and time

    def plan(self) -> bool | None:
        return self._plan(twice=False)

    def plan_twice(self) -> bool | None:
        return self._plan(twice=True)

    def _plan(self, *, twice: bool) -> bool | None:
        """A plan comes back, late, after something else may have happened."""
        snapshot = self._snapshot()
        if snapshot is None:
            return False
        self.t += self.dice.scale(0.0, 0.5)
        plan = solve(snapshot.problem, method="bfd")
        if twice:  # an entry twice in one plan, and the plan twice
            plan = replace(plan, placements=plan.placements * 2)
        between = self.dice.byte()
        if between & 1:
            self.session_ends()
        if between & 2:
            self.node_leaves()
        if between & 4:
            self.cancel()
        self.follow(self.core.plan_returned(snapshot.id, plan, self.t))
        if twice:
            before = self.core.statistics(self.t)
            decisions = self.core.plan_returned(snapshot.id, plan, self.t)
            assert not [d for d in decisions if isinstance(d, Admit)]
            after = self.core.statistics(self.t)
            assert (after.nodes, after.sessions_by_state) == (before.nodes, before.sessions_by_state)
        return None

    def solve_fails(self) -> bool | None:
        snapshot = self._snapshot()
        if snapshot is None:
            return False
        self.follow(self.core.solve_failed(snapshot.id, self.t))
        return None

    def planner_dies(self) -> bool | None:
        return None if self._snapshot() is not None else False

    def _snapshot(self):
        if not self.asked:
            return None
        self.asked = False
        return self.core.snapshot(self.t)

    def time_passes(self) -> None:
        self.t += self.dice.pick([0.002, 0.006, 0.3, 1.0, 3.0, 7.0, 15.0, 30.0])
        self.follow(self.core.time_passes(self.t))

    def long_silence(self) -> None:
        self.answer()
        self.t += self.policy.session_expiry_s
        self.follow(self.core.time_passes(self.t))

    def answer(self) -> None:
        """Answer solves at once, so that only the core can be the reason for a long wait."""
        while self.asked:
            snapshot = self._snapshot()
            if snapshot is not None:
                self.follow(self.core.plan_returned(snapshot.id, solve(snapshot.problem, method="bfd"), self.t))
                refused = self.core.statistics(self.t).plans[-1].refused
                assert "capacity" not in refused, "a plan of what is true now fits"

    def nothing_happens(self) -> None:
        """For a while only plans come back, at once: then nobody waits for whom a node has room."""
        for _ in range(5 + int(self.policy.solve_timeout_s)):
            self.answer()
            self.t += 1.001
            self.follow(self.core.time_passes(self.t))
            self.answer()
            state = self.core._state
            passed_over = [s.id for s in state.waiting.values() if s.claimed is None and admission.fitting(state, s)]
            if not passed_over:
                return
        raise AssertionError(f"a node has room for {passed_over}, which wait")

    # --- what must hold

    def check(self) -> None:
        """After every event: nothing is lost, and what is kept up to date by steps equals what is counted anew."""
        state = self.core._state
        assert len(state.requests) == len(self.waiting) + sum(1 for s in self.running.values() if s), "a turn was lost"
        assert len(state.guests) == sum(1 for s in self.running.values() if not s)
        if not state.counters["sessions_evicted"]:  # the table was never full
            for session, heard in self.alive.items():
                assert session in state.sessions or self.t - heard >= self.policy.session_expiry_s, "a session was lost"
        for room in state.rooms.values():
            assert room.reserved >= 0
            assert room.claimed >= 0
            if self.over_capacity_is_ours:
                assert room.reserved <= room.capacity, "over capacity by our own doing"
            holdings = room._holdings
            assert room._own == sum(h.own for h in holdings.values())
            assert room._shared == sum({h.prefix.key: h.prefix.tokens for h in holdings.values() if h.prefix}.values())
            assert all(h not in state.sessions or state.sessions[h].node == room.node for h in holdings)
            assert room._live == {h for h in holdings if h not in state.sessions or state.sessions[h].turns}
        for s in state.sessions.values():
            assert s.node is None or s.id in state.rooms[s.node].holders, "held exactly once"
            assert (s.id in state.waiting) == (s.node is None and bool(s.pending)), "who waits is in the pool"
            children = (state.sessions[c].node for c in s.children)
            assert dict(Counter(node for node in children if node is not None)) == s.children_on
        assert state.contexts == sum(s.footprint for s in state.sessions.values())
        assert {s.id for s in state.pressing} <= set(state.waiting)
        assert [s.pressing[0] for s in state.pressing] == sorted(-s.tier for s in state.pressing)
        since = [s.waiting_since for s in state.pool()]
        assert since == sorted(since), "the pool is in order of age"
        residuals = [room.residual(state.rooms.mark) for room in state.rooms.values()]
        assert [r for r, _ in state.rooms.by_residual()] == sorted(residuals, reverse=True)
        assert {r.node for r in state.rooms.at_rest(99)} == {r.node for r in state.rooms.values() if r.at_rest}

    def calm_down(self) -> None:
        """At last every turn ends at once: nobody then waits for longer than the bound, and nothing is left over."""
        for room in list(self.core._state.rooms.values()):
            self.follow(self.core.node_load(room.node, used_tokens=0, t=self.t))
        self.follow(self.core.node_joined(NODES[2], capacity_tokens=12_000, block_size=16, t=self.t))
        calm = self.t
        while self.waiting or self.running:
            assert self.t - calm <= self.policy.waiting_bound_s + 20.0, [
                self.core.explain(s, self.t) for s in self.waiting.values()
            ]
            for session in self.waiting.values():
                view = self.core.explain(session, self.t)
                assert view is None or view.state.value != "waiting" or view.reason
            self.answer()
            for request in sorted(self.running):
                self.finish(request, ok=True, produced=10)
                self.answer()
            self.t += 1.0
            self.follow(self.core.time_passes(self.t))
        for session in SESSIONS:
            self.follow(self.core.session_ended(session, self.t))
            self.answer()
        statistics = self.core.statistics(self.t)
        assert sum(statistics.sessions_by_state.values()) == 0
        assert all(node.reserved == 0 and node.claimed == 0 for node in statistics.nodes)
        assert len(self.core._state.prefixes) == 0
        assert self.core._state.contexts == 0


_WEIGHTED: list[tuple[int, str, Callable[[CoreWorld], bool | None]]] = [
    (10, "turn arrives", CoreWorld.arrive),
    (1, "guest arrives", CoreWorld.guest),
    (5, "turn ends", CoreWorld.end),
    (1, "turn fails", CoreWorld.fail),
    (2, "tokens", CoreWorld.stream),
    (2, "client leaves", CoreWorld.cancel),
    (1, "turn displaced", CoreWorld.displace),
    (3, "tool starts", CoreWorld.tool_starts),
    (1, "tool progresses", CoreWorld.tool_progresses),
    (2, "tool ends", CoreWorld.tool_ends),
    (1, "session ends", CoreWorld.session_ends),
    (2, "node joins or changes", CoreWorld.node_joins),
    (1, "node leaves", CoreWorld.node_leaves),
    (1, "node goes stale or is whole again", CoreWorld.node_stale),
    (2, "node tells its load", CoreWorld.load),
    (8, "plan returns", CoreWorld.plan),
    (6, "plan returns twice", CoreWorld.plan_twice),
    (1, "solve fails", CoreWorld.solve_fails),
    (1, "planner dies", CoreWorld.planner_dies),
    (6, "time passes", CoreWorld.time_passes),
    (1, "long silence", CoreWorld.long_silence),
    (2, "nothing happens", CoreWorld.nothing_happens),
]
EVENTS = [(kind, event) for weight, kind, event in _WEIGHTED for _ in range(weight)]
KINDS = {kind for kind, _ in EVENTS}
