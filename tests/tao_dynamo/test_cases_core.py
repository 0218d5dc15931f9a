# SPDX-License-Identifier: Apache-2.0
"""Failures that neighbouring systems had (cases C8 to C12, C15, C19), at the layer of the pure core."""

from __future__ import annotations

import random

import pytest

from kv_events.types import NodeId
from solver.problem import Placement, Plan, Value
from tao_dynamo.core.policy import DEFAULT
from tests.tao_dynamo.fakes import PLAIN, A, B, Driver, admitted, paused, refused


def plan(*placements: tuple[str, NodeId]) -> Plan:
    placed = tuple(Placement(candidate, str(node)) for candidate, node in placements)
    return Plan(placed, Value(), Value(), optimal=True, method="test", seconds=0.3)


class TestC8ClientLeavesWhileItsSessionWaits:
    def test_its_placement_falls_out_and_the_room_goes_to_the_next(self) -> None:
        d = Driver(PLAIN, {A: 10_000})
        d.arrive("s0", 8000)
        d.arrive("s1", 5000)
        d.arrive("s2", 5000)
        d.end("s0")
        d.hold_back = True
        d.t = 1.0
        d.run(d.core.session_ended("s0", d.t))
        d.run(d.core.time_passes(d.t + 0.01))
        snapshot = d.core.snapshot(d.t)
        assert snapshot is not None
        d.run(d.core.turn_cancelled("r-s1", d.t))
        d.hold_back = False
        out = d.run(d.core.plan_returned(snapshot.id, plan(("s1", A)), d.t + 0.02))
        assert admitted(out) == [("r-s2", A)], "in the same step or the next solve"
        assert d.core.statistics(d.t).counters["placement_refused.session_gone"] == 1

    def test_everything_returns_to_what_it_was(self) -> None:
        d = Driver(PLAIN, {A: 10_000})
        d.arrive("s0", 8000)
        before = d.core.statistics(d.t)
        for i in range(10_000):
            d.arrive(f"x{i}", 5000)
            d.run(d.core.turn_cancelled(f"r-x{i}", d.t))
            d.t += 0.01
            d.run(d.core.time_passes(d.t))
        after = d.core.statistics(d.t)
        assert after.nodes == before.nodes
        assert after.sessions_by_state == before.sessions_by_state
        assert len(d.core._state.timers) < 25_000, "timers of the gone fall out when due"
        d.advance(61.0, step=1.0)
        assert len(d.core._state.timers) < 10

    def test_a_paused_session_whose_client_leaves_stays_paused(self) -> None:
        d = Driver(PLAIN, {A: 10_000})
        d.arrive("s1", 4000)
        d.end("s1")
        d.start_tool("s1", 50.0)
        d.arrive("s2", 4200)
        d.run(d.core.tokens("r-s2", 2000, d.t))
        assert d.view("s1").state.value == "paused"
        d.arrive("s1", 4300, request="again")
        assert d.view("s1").state.value == "waiting"
        d.run(d.core.turn_cancelled("again", d.t))
        assert d.view("s1").state.value == "paused"


class TestC9ClientLeavesInMidStream:
    @pytest.mark.parametrize("first", ["before the first token", "in mid-decode", "after the end"])
    def test_released_once_and_idle(self, first: str) -> None:
        d = Driver(PLAIN, {A: 10_000})
        d.arrive("s1", 7900)
        if first != "before the first token":
            d.run(d.core.first_token("r-s1", d.t))
            d.run(d.core.tokens("r-s1", 5, d.t))
        if first == "after the end":
            d.end("s1")
        d.run(d.core.turn_cancelled("r-s1", d.t))
        d.run(d.core.turn_cancelled("r-s1", d.t))
        d.run(d.core.turn_ended("r-s1", t=d.t))
        view = d.view("s1")
        assert view.state.value == "idle"
        assert 7900 <= d.used(A) <= 8000
        d.run(d.core.session_ended("s1", d.t))
        assert d.used(A) == 0

    @pytest.mark.parametrize("first", ["the client leaves", "the worker dies"])
    def test_client_and_worker_go_in_the_same_instant(self, first: str) -> None:
        d = Driver(PLAIN, {A: 10_000, B: 10_000})
        d.arrive("s1", 7900)
        if first == "the client leaves":
            d.run(d.core.turn_cancelled("r-s1", d.t))
            assert d.used(A) == 7900
        d.run(d.core.node_left(A, d.t))
        d.run(d.core.turn_cancelled("r-s1", d.t))
        d.run(d.core.turn_ended("r-s1", t=d.t, ok=False))
        statistics = d.core.statistics(d.t)
        assert statistics.requests == 0
        assert [(n.node, n.reserved) for n in statistics.nodes] == [(B, 0)]
        assert d.view("s1").state.value == "paused", "its context is known, and it has no room"
        assert admitted(d.arrive("s1", 8000, request="next")) == [("next", B)]

    def test_credit_stays_since_the_blocks_are_still_there(self) -> None:
        d = Driver(PLAIN, {A: 10_000})
        d.arrive("s1", 1000)
        d.run(d.core.first_token("r-s1", d.t))
        d.run(d.core.turn_cancelled("r-s1", d.t))
        assert d.view("s1").credits == {A: 1000}

    def test_random_interleavings_leave_nothing_in_flight(self) -> None:
        rng = random.Random(9)
        for _ in range(1000):
            d = Driver(PLAIN, {A: 50_000})
            events = []
            for i in range(4):
                d.arrive(f"s{i}", 5000)
                events += [(i, "first"), (i, "tokens"), (i, "cancel"), (i, "end"), (i, "end")]
            events.append((0, "dies"))
            rng.shuffle(events)
            for i, kind in events:
                if kind == "first":
                    d.run(d.core.first_token(f"r-s{i}", d.t))
                elif kind == "tokens":
                    d.run(d.core.tokens(f"r-s{i}", 3, d.t))
                elif kind == "cancel":
                    d.run(d.core.turn_cancelled(f"r-s{i}", d.t))
                elif kind == "end":
                    d.end(f"s{i}")
                else:
                    d.run(d.core.node_left(A, d.t))
            statistics = d.core.statistics(d.t)
            assert statistics.requests == 0
            assert statistics.nodes == ()

    def test_a_slow_live_request_is_never_counted_as_gone(self) -> None:
        d = Driver(PLAIN, {A: 10_000})
        d.arrive("s1", 5000)
        d.advance(2 * DEFAULT.session_expiry_s, step=10.0)
        assert d.view("s1").state.value == "running"
        assert d.used(A) == 5100


class TestC10TwoRequestsOfOneSession:
    def test_the_first_goes_on_when_the_second_ends(self) -> None:
        d = Driver(PLAIN, {A: 50_000})
        d.arrive("s1", 12_000, request="R1")
        assert admitted(d.arrive("s1", 3000, request="R2")) == [("R2", A)]
        assert d.used(A) == 15_200
        d.end("s1", request="R2")
        assert d.view("s1").state.value == "running"
        assert d.used(A) == 12_100

    def test_a_reused_request_id_is_refused_and_the_first_undisturbed(self) -> None:
        d = Driver(PLAIN, {A: 50_000})
        d.arrive("s1", 12_000, request="R1")
        assert refused(d.arrive("s2", 1000, request="R1")) == ["duplicate_request"]
        assert d.view("s1").state.value == "running"
        assert d.view("s2") is None

    def test_a_parallel_turn_that_does_not_fit_waits_on_its_own(self) -> None:
        d = Driver(PLAIN, {A: 10_000})
        d.arrive("s1", 8000, request="R1")
        assert admitted(d.arrive("s1", 7000, request="R2")) == []
        d.end("s1", request="R1")
        out = d.run(d.core.node_joined(B, capacity_tokens=10_000, block_size=1, t=d.t))
        assert admitted(out) == [("R2", B)]
        d.end("s1", request="R2")
        assert (d.used(A), d.used(B)) == (8100, 0)

    def test_2048_such_sessions_do_not_deadlock(self) -> None:
        d = Driver(PLAIN, {A: 1_200_000, B: 1_200_000})
        live: list[tuple[str, str]] = []
        done = 0

        def note(out: list[object]) -> None:
            live.extend(("", r) for r, _ in admitted(out))

        for i in range(2048):
            note(d.arrive(f"s{i}", 1200, request=f"a{i}"))
            note(d.arrive(f"s{i}", 300, request=f"b{i}"))
        ended: set[str] = set()
        while live:
            _, request = live.pop(0)
            done += 1
            d.t += 0.01
            note(d.run(d.core.turn_ended(request, t=d.t, output_tokens=100)))
            session = f"s{request[1:]}"
            other = ("b" if request[0] == "a" else "a") + request[1:]
            if other in ended:
                note(d.run(d.core.session_ended(session, d.t)))
            ended.add(request)
        assert done == 4096
        assert d.core.statistics(d.t).requests == 0
        assert d.used(A) == d.used(B) == 0


class TestC11EndOfSession:
    def test_twice_and_unknown_change_nothing(self) -> None:
        d = Driver(PLAIN, {A: 10_000})
        d.arrive("s1", 1000)
        d.end("s1")
        d.run(d.core.session_ended("s1", d.t))
        before = d.core.statistics(d.t)
        assert d.run(d.core.session_ended("s1", d.t)) == []
        assert d.run(d.core.session_ended("never seen", d.t)) == []
        assert d.core.statistics(d.t) == before

    def test_a_final_turn_is_served_then_the_session_closes(self) -> None:
        d = Driver(PLAIN, {A: 10_000})
        assert admitted(d.arrive("s1", 1000, final=True))
        assert d.view("s1") is not None
        d.end("s1")
        assert d.view("s1") is None
        assert d.used(A) == 0
        assert d.credit.table == {}

    def test_a_waiter_is_answered_at_once(self) -> None:
        d = Driver(PLAIN, {A: 10_000})
        d.arrive("s0", 8000)
        d.arrive("s1", 5000)
        assert refused(d.run(d.core.session_ended("s1", d.t))) == ["session_ended"]
        assert d.view("s1") is None

    def test_after_the_end_nothing_is_kept_for_it(self) -> None:
        d = Driver(PLAIN, {A: 10_000})
        d.arrive("s1", 1000, hashes=tuple(range(40)))
        d.end("s1")
        d.start_tool("s1", 5.0)
        d.run(d.core.session_ended("s1", d.t))
        assert d.credit.table == {}
        assert d.readiness.calls == {}
        assert d.advance(DEFAULT.waiting_bound_s + 1.0, step=1.0) == [], "no timer of it does anything"
        state = d.core._state
        assert (len(state.timers), len(state.prefixes), state.contexts) == (0, 0, 0)

    def test_only_the_child_closes(self) -> None:
        d = Driver(PLAIN, {A: 10_000})
        d.arrive("parent", 1000)
        d.end("parent")
        d.arrive("child", 1000, parent_session_id="parent")
        assert d.view("parent").ready is False, "a parent that waits for children is in a tool call"
        d.end("child")
        d.run(d.core.session_ended("child", d.t))
        assert d.view("child") is None
        assert d.view("parent").ready is True


class TestC12TheWorkerIsReplaced:
    def test_its_sessions_are_placed_elsewhere_within_one_solve(self) -> None:
        old, new = NodeId(7, 0), NodeId(12, 0)
        d = Driver(PLAIN, {old: 10_000})
        d.arrive("s1", 2000)
        d.end("s1")
        d.start_tool("s1", 5.0)
        assert d.view("s1").credits == {old: 2100}
        d.run(d.core.node_left(old, 1.0))
        d.run(d.core.node_joined(new, capacity_tokens=10_000, block_size=16, t=1.5))
        assert d.view("s1").credits == {}
        d.t = 5.0
        d.end_tool("s1")
        assert [n for _, n in admitted(d.arrive("s1", 2300, request="next"))] == [new]
        assert [n.node for n in d.core.statistics(d.t).nodes] == [new]

    def test_a_turn_that_could_not_be_forwarded_goes_back_with_its_wait(self) -> None:
        d = Driver(PLAIN, {A: 10_000, B: 10_000})
        d.arrive("s1", 2000)
        d.t = 3.0
        d.run(d.core.node_left(A, d.t))
        out = d.run(d.core.turn_displaced("r-s1", d.t))
        assert admitted(out) == [("r-s1", B)]
        assert next(x for x in out if hasattr(x, "waited_s")).waited_s == pytest.approx(3.0, abs=0.02)


class TestC15TheWorldChangesWhileTheSolverThinks:
    def prepared(self) -> tuple[Driver, int]:
        d = Driver(PLAIN, {A: 10_000, B: 10_000})
        d.arrive("fill-a", 8400, output=50)
        d.arrive("fill-b", 8400, output=50)
        for name in ("S1", "S2", "S3", "S4"):
            d.arrive(name, 1900)
        for name in ("fill-a", "fill-b"):
            d.hold_back = True
            d.end(name, output=50)
            d.t += 0.1
            d.run(d.core.session_ended(name, d.t))
        d.t += 0.1
        d.run(d.core.time_passes(d.t))
        snapshot = d.core.snapshot(d.t)
        assert snapshot is not None
        assert {c.id for c in snapshot.problem.candidates} == {"S1", "S2", "S3", "S4"}
        return d, snapshot.id

    def test_each_refused_item_is_counted_by_reason_and_waits_on(self) -> None:
        d, snapshot = self.prepared()
        d.run(d.core.turn_cancelled("r-S1", d.t))
        d.run(d.core.node_load(A, used_tokens=8000, t=d.t))
        d.run(d.core.node_left(B, d.t))
        d.run(d.core.turn_cancelled("r-S4", d.t))
        d.arrive("S4", 1950, request="newer")
        d.arrive("S5", 100)
        waited = d.view("S2").waited_s
        out = d.run(d.core.plan_returned(snapshot, plan(("S1", A), ("S2", A), ("S3", B), ("S4", B)), d.t + 0.3))
        assert admitted(out) == []
        counters = d.core.statistics(d.t).counters
        assert counters["placement_refused.session_gone"] == 1
        assert counters["placement_refused.capacity"] == 1
        assert counters["placement_refused.node_gone"] == 1
        assert counters["placement_refused.epoch"] == 1
        assert d.view("S2").waited_s >= waited
        d.hold_back = False
        d.t += 1.0
        d.run(d.core.time_passes(d.t))
        d.hold_back = True
        d.run(d.core.node_load(A, used_tokens=0, t=d.t))
        d.t += 0.1
        d.run(d.core.time_passes(d.t))
        assert "S5" in {c.id for c in d.core.snapshot(d.t).problem.candidates}

    def test_capacity_is_checked_added_up(self) -> None:
        d, snapshot = self.prepared()
        d.run(d.core.node_load(A, used_tokens=5000, t=d.t))
        out = d.run(d.core.plan_returned(snapshot, plan(("S1", A), ("S2", A)), d.t))
        assert admitted(out) == [("r-S1", A)]
        assert d.core.statistics(d.t).counters["placement_refused.capacity"] == 1

    def test_applying_twice_changes_nothing(self) -> None:
        d, snapshot = self.prepared()
        first = d.run(d.core.plan_returned(snapshot, plan(("S1", A), ("S2", B)), d.t))
        assert len(admitted(first)) == 2
        used = d.used(A), d.used(B)
        assert admitted(d.run(d.core.plan_returned(snapshot, plan(("S1", A), ("S2", B)), d.t))) == []
        assert (d.used(A), d.used(B)) == used

    def test_a_node_whose_events_had_a_gap_is_refused(self) -> None:
        d, snapshot = self.prepared()
        d.run(d.core.node_stale(A, True, d.t))
        d.run(d.core.plan_returned(snapshot, plan(("S1", A)), d.t))
        assert d.core.statistics(d.t).counters["placement_refused.node_stale"] == 1

    def test_after_twenty_failing_solves_the_next_good_one_still_works(self) -> None:
        d, snapshot = self.prepared()
        for _ in range(20):
            d.run(d.core.solve_failed(snapshot, d.t))
            d.t += 0.1
            d.run(d.core.time_passes(d.t))
            taken = d.core.snapshot(d.t)
            assert taken is not None
            snapshot = taken.id
        out = d.run(d.core.plan_returned(snapshot, plan(("S1", A), ("S2", A), ("S3", B), ("S4", B)), d.t))
        assert len(admitted(out)) == 4

    def test_a_solve_that_never_answers_is_given_up(self) -> None:
        d, _ = self.prepared()
        d.hold_back = False
        out = d.advance(6.0)
        assert len(admitted(out)) == 4


def test_c19_negative_and_missing_priorities_are_defined() -> None:
    d = Driver(PLAIN, {A: 10_000})
    d.arrive("s0", 8000)
    d.arrive("none", 8000)
    d.arrive("one", 8000, priority=1)
    d.arrive("ten", 8000, priority=10)
    d.end("s0")
    d.t = 1.0
    assert admitted(d.run(d.core.session_ended("s0", d.t))) == [("r-ten", A)]


def test_c19_strict_priority_is_a_class_above_priority() -> None:
    d = Driver(PLAIN, {A: 10_000})
    d.arrive("s0", 8000)
    d.arrive("urgent", 8000, priority=1_000_000)
    d.arrive("strict", 8000, strict_priority=1, priority=-5)
    d.end("s0")
    d.t = 1.0
    assert admitted(d.run(d.core.session_ended("s0", d.t))) == [("r-strict", A)]


def test_nobody_starves_beyond_the_bound_while_others_keep_their_room() -> None:
    d = Driver(PLAIN, {A: 10_000})
    for i in range(4):
        d.arrive(f"s{i}", 2000, output=100)
        d.end(f"s{i}")
        d.start_tool(f"s{i}", 1000.0)
    d.arrive("late", 900, output=50)
    out = d.advance(61.0, step=0.5)
    assert admitted(out) == [("r-late", A)]
    assert len(paused(out)) <= 1
