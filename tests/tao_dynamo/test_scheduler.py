# SPDX-License-Identifier: Apache-2.0
"""The core's everyday behaviour, by way of its public methods only."""

from __future__ import annotations

from dataclasses import replace

from tao_dynamo.core.policy import DEFAULT, PAPER
from tests.tao_dynamo.fakes import PLAIN, A, B, Driver, admitted, paused, refused, restarted


def test_an_unloaded_system_admits_at_once_without_a_solve() -> None:
    d = Driver(nodes={A: 10_000, B: 10_000})
    assert admitted(d.arrive("s1", 1000)) == [("r-s1", A)]
    assert admitted(d.arrive("s2", 1000)) == [("r-s2", B)], "balance: the node with more room"
    assert d.asked == 0


def test_a_session_that_holds_room_runs_at_once_on_its_node() -> None:
    d = Driver(nodes={A: 10_000, B: 10_000})
    d.arrive("s1", 1000)
    d.end("s1")
    d.start_tool("s1", 2.0)
    d.t = 2.0
    d.end_tool("s1")
    d.arrive("s2", 5000)
    assert admitted(d.arrive("s1", 1200, request="r2")) == [("r2", A)]
    assert d.used(A) == 1300


def test_credit_goes_before_balance() -> None:
    d = Driver(nodes={A: 10_000, B: 10_000})
    d.arrive("s0", 4000)
    d.credit.table["s1"] = {A: 64}
    assert admitted(d.arrive("s1", 1000)) == [("r-s1", A)]


def test_room_is_given_only_up_to_the_admission_mark() -> None:
    d = Driver(PLAIN, nodes={A: 10_000})
    assert admitted(d.arrive("s1", 8000, output=400))
    assert admitted(d.arrive("s2", 200, output=50)) == []
    assert admitted(d.end("s1", output=400)) == []
    d.run(d.core.session_ended("s1", d.t))
    assert d.used(A) == 250, "the end of a session is a restart opportunity"


def test_pausing_starts_at_the_pause_mark_and_stops_at_the_target() -> None:
    d = Driver(replace(DEFAULT, long_tool_factor=1.0), nodes={A: 10_000})
    for i in range(4):
        d.arrive(f"s{i}", 1900, output=100)
        d.end(f"s{i}")
        d.start_tool(f"s{i}", 100.0)
    d.credit.table["s2"] = {A: 0}
    # 8,000 are held. A turn that grows s3 past the pause mark (9,500) brings the node down to 8,000.
    out = d.arrive("s3", 3500, request="big", output=100)
    assert admitted(out) == [("big", A)]
    assert paused(out) == ["s2"], "the least credit goes first, and only as many as it takes"
    assert d.used(A) == 7600


def test_not_ready_is_paused_before_ready_whatever_the_credit() -> None:
    d = Driver(replace(DEFAULT, long_tool_factor=1.0), nodes={A: 10_000})
    for i in range(4):
        d.arrive(f"s{i}", 1900, output=100)
        d.end(f"s{i}")
        d.start_tool(f"s{i}", 0.5 if i == 0 else 100.0)
    d.credit.table["s0"] = {}
    out = d.arrive("s3", 3500, request="big", output=100)
    assert paused(out) == ["s1"]


def test_running_sessions_are_never_cut_off_but_pause_at_their_boundary() -> None:
    d = Driver(nodes={A: 10_000})
    d.arrive("s1", 4000)
    d.arrive("s2", 4000)
    out = d.run(d.core.tokens("r-s1", 2000, d.t))
    assert paused(out) == []
    d.t = 1.0
    assert paused(d.end("s2")) == ["s2"], "marked while running, paused when its turn ended"


def test_a_paused_session_comes_back_before_its_tool_returns() -> None:
    d = Driver(replace(DEFAULT, long_tool_factor=1.0), nodes={A: 10_000})
    d.arrive("s1", 4000)
    d.end("s1")
    d.start_tool("s1", 10.0)
    d.arrive("s2", 4200)
    d.run(d.core.tokens("r-s2", 2000, d.t))
    assert d.view("s1").state.value == "paused"
    d.end("s2", output=2100)
    d.run(d.core.session_ended("s2", d.t))
    assert d.view("s1").state.value == "paused", "nobody needs the room, but the tool is far from returning"
    out = d.advance(9.5)
    assert restarted(out) == ["s1"]
    assert admitted(out) == []
    d.end_tool("s1")
    assert admitted(d.arrive("s1", 4200, request="next")) == [("next", A)]


def test_a_reservation_whose_tool_does_not_come_back_is_given_up_when_others_wait() -> None:
    d = Driver(replace(DEFAULT, long_tool_factor=1.0), nodes={A: 10_000})
    d.arrive("s1", 4000)
    d.end("s1")
    d.start_tool("s1", 10.0)
    d.arrive("s2", 4200)
    d.run(d.core.tokens("r-s2", 2000, d.t))
    d.end("s2", output=2100)
    d.run(d.core.session_ended("s2", d.t))
    assert restarted(d.advance(9.5)) == ["s1"]
    d.arrive("s3", 7000)
    out = d.advance(20.0)
    assert paused(out) == ["s1"]
    assert admitted(out) == [("r-s3", A)]


def test_a_long_tool_counts_in_part_only() -> None:
    d = Driver(nodes={A: 10_000})
    d.arrive("s1", 5000, output=0)
    d.end("s1", output=0)
    d.start_tool("s1", 2.0)
    assert d.used(A) == 5000
    d.start_tool("s1", 60.0)
    assert d.used(A) == 3500
    d.end_tool("s1")
    d.arrive("s1", 5100, request="r2")
    assert d.used(A) == 5200


def test_a_tool_that_has_run_for_long_becomes_long() -> None:
    d = Driver(nodes={A: 10_000})
    d.arrive("s1", 5000, output=0)
    d.end("s1", output=0)
    d.start_tool("s1", 2.5)
    d.readiness.horizon_s = -1.0
    d.advance(3.5)
    assert d.used(A) == 3500


def test_requests_without_a_session_never_wait_and_their_room_is_released() -> None:
    d = Driver(nodes={A: 10_000, B: 10_000})
    d.arrive("s1", 8000)
    out = d.arrive(None, 1000, request="g1", overlap={B: 0})
    assert admitted(out) == [("g1", B)]
    assert admitted(d.arrive(None, 1000, request="g2", overlap={A: 512})) == [("g2", A)]
    d.run(d.core.turn_ended("g1", t=d.t))
    d.run(d.core.turn_cancelled("g2", d.t))
    assert d.used(B) == 0
    assert d.used(A) == 8100


def test_foreign_load_is_seen_in_the_residual_room() -> None:
    d = Driver(PLAIN, nodes={A: 10_000})
    d.run(d.core.node_load(A, used_tokens=6000, t=0.0))
    assert admitted(d.arrive("s1", 3000)) == []
    d.t = 1.0
    assert admitted(d.run(d.core.node_load(A, used_tokens=500, t=1.0))) == [("r-s1", A)]


def test_priority_is_a_class_above_the_value() -> None:
    d = Driver(nodes={A: 10_000})
    d.arrive("s0", 8000)
    d.arrive("low", 5000, priority=1)
    d.arrive("missing", 5000)
    d.arrive("high", 5000, priority=10)
    d.arrive("negative", 5000, priority=-3)
    order = []
    for name in ("s0", "high", "low", "missing"):
        d.t += 1.0
        d.end(name)
        out = d.run(d.core.session_ended(name, d.t))
        order += [r for r, _ in admitted(out)]
    assert order == ["r-high", "r-low", "r-missing", "r-negative"]


def test_a_session_is_as_urgent_as_the_most_urgent_of_its_turns() -> None:
    d = Driver(PLAIN, nodes={A: 10_000})
    d.arrive("s0", 8000)
    d.arrive("s1", 3000, priority=10)
    d.arrive("s1", 1000, request="beside", priority=0)
    d.arrive("s2", 5000, priority=5)
    d.t = 1.0
    out = d.end("s0") + d.run(d.core.session_ended("s0", d.t))
    assert [request for request, _ in admitted(out)] == ["r-s1", "beside"]


def test_a_session_that_never_waited_has_the_class_of_its_turn() -> None:
    d = Driver(PLAIN, nodes={A: 10_000})
    d.arrive("s1", 6000, priority=5)
    d.end("s1")
    d.arrive("s2", 6000, priority=1)
    d.run(d.core.node_left(A, d.t))
    assert d.core._state.sessions["s1"].tier == 5


def test_overdue_sessions_go_by_class_and_then_by_age() -> None:
    d = Driver(replace(PLAIN, waiting_bound_s=10.0), nodes={A: 10_000})
    d.arrive("s0", 9000)
    d.arrive("low", 8000)
    d.arrive("high", 8000, priority=10)
    d.advance(12.0)
    out = d.end("s0") + d.run(d.core.session_ended("s0", d.t)) + d.advance(5.0)
    assert [request for request, _ in admitted(out)] == ["r-high"]


def test_no_nodes_yet_means_waiting_not_failing() -> None:
    d = Driver(nodes={})
    assert d.arrive("s1", 100) == []
    assert "no worker" in d.view("s1").reason
    assert admitted(d.run(d.core.node_joined(A, capacity_tokens=1000, block_size=16, t=1.0))) == [("r-s1", A)]


def test_overload_past_the_queue_is_refused() -> None:
    d = Driver(replace(DEFAULT, max_waiting=1), nodes={A: 1000})
    d.arrive("s1", 700)
    d.arrive("s2", 700)
    assert refused(d.arrive("s3", 700)) == ["overload"]


def test_a_session_that_holds_room_is_served_under_overload() -> None:
    d = Driver(replace(DEFAULT, max_waiting=1), nodes={A: 10_000})
    d.arrive("s1", 7000)
    d.end("s1")
    d.arrive("s2", 7000)
    assert admitted(d.arrive("s1", 7200, request="next")) == [("next", A)]
    assert refused(d.arrive("s1", 2900, request="beside")) == ["overload"], "it would have to wait"


def test_a_session_that_ends_takes_its_branches_along() -> None:
    d = Driver(nodes={A: 10_000})
    d.arrive("s1", 6000)
    assert not d.arrive("s1", 6000, request="branch")
    assert refused(d.run(d.core.session_ended("s1", 1.0))) == ["session_ended"]
    d.end("s1")
    assert not d.core.statistics(1.0).sessions_by_state["waiting"]


def test_expected_output_comes_from_the_hint_then_the_session_then_the_default() -> None:
    d = Driver(nodes={A: 100_000})
    d.arrive("s1", 1000, output=50)
    assert d.used(A) == 1050
    d.end("s1", output=400)
    d.run(d.core.turn_arrived(replace(_turn("s1", 1400), expected_output=None), d.t))
    assert d.used(A) == 1800
    d.run(d.core.turn_arrived(replace(_turn("s2", 1000), expected_output=None), d.t))
    assert d.used(A) == 1800 + 1000 + DEFAULT.default_output_tokens


def test_silent_sessions_expire_and_tables_are_bounded() -> None:
    d = Driver(replace(DEFAULT, session_expiry_s=5.0, max_sessions=3), nodes={A: 100_000})
    for i in range(5):
        d.arrive(f"s{i}", 1000)
        d.end(f"s{i}")
    assert sum(d.core.statistics(d.t).sessions_by_state.values()) == 3
    d.advance(8.0)
    assert sum(d.core.statistics(d.t).sessions_by_state.values()) == 0
    assert d.used(A) == 0


def test_the_paper_mode_is_one_mark_and_all_candidates() -> None:
    d = Driver(PAPER, nodes={A: 10_000})
    assert admitted(d.arrive("s1", 9000))
    d.end("s1")
    d.start_tool("s1", 50.0)
    assert admitted(d.arrive("s2", 300))
    d.run(d.core.tokens("r-s2", 1000, d.t))
    assert d.view("s1").state.value == "paused"
    d.t = 1.0
    d.end("s2", output=1000)
    out = d.run(d.core.session_ended("s2", d.t))
    assert restarted(out) == ["s1"], "the paper places paused sessions whose tool still runs"


def _turn(session: str, tokens: int):
    from tao_dynamo.core.turn import Turn

    return Turn(f"r-{session}-{tokens}", session, tokens)


def test_a_crowd_too_big_for_the_admission_mark_gets_idle_nodes_one_each() -> None:
    # 866 tokens are 55 blocks, 880 tokens: over the mark (870) by the rounding only.
    d = Driver(nodes={A: 1024, B: 1024}, block_size=16)
    d.arrive("first", 900, output=100)
    d.arrive("second", 900, output=100)
    for name in ("s1", "s2", "s3"):
        assert admitted(d.arrive(name, 816, output=50)) == []
    d.run([*d.core.session_ended("first", d.t), *d.core.session_ended("second", d.t)])
    d.end("first")
    d.end("second")
    d.t += 0.1
    d.run(d.core.time_passes(d.t))
    assert d.used(A) == d.used(B) == 880, "one each, at once and not when it is overdue"
    assert [d.core.explain(name, d.t).state.value for name in ("s1", "s2", "s3")].count("waiting") == 1


def test_a_session_over_the_mark_by_its_last_block_only_may_have_an_idle_node() -> None:
    d = Driver(nodes={A: 1024}, block_size=16)
    assert admitted(d.arrive("s1", 816, output=50)) == [("r-s1", A)]
    assert d.used(A) == 880


def test_a_long_tool_about_to_return_weighs_whole_again_and_its_node_is_kept_within_its_room() -> None:
    d = Driver(replace(DEFAULT, long_tool_factor=0.7), nodes={A: 10_000})
    d.arrive("long", 7900, output=100)
    d.end("long")
    d.start_tool("long", 4.0)
    assert d.used(A) == 5600
    assert admitted(d.arrive("s1", 2050, output=100)) == [("r-s1", A)]
    d.advance(3.5)
    assert d.used(A) <= 10_000, "it makes way itself, since the other one runs"
    assert d.core.explain("long", d.t).state.value == "paused"


def test_a_session_that_has_shrunk_fits_nodes_that_have() -> None:
    d = Driver(nodes={A: 10_000})
    d.arrive("s1", 9000)
    d.end("s1")
    d.run(d.core.node_left(A, d.t))
    d.run(d.core.node_joined(B, capacity_tokens=5000, block_size=1, t=d.t))
    assert admitted(d.arrive("s1", 3000, request="r2")) == [("r2", B)], "not the 9,100 that it once had"
    assert d.used(B) == 3100
