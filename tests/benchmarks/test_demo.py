# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from benchmarks import demo
from benchmarks.traces import EXTRACT, load
from benchmarks.workload import choose, room_blocks

FIGURES: dict[str, Any] = {
    "sessions": 16,
    "turns_done": 500,
    "turns_failed": 0,
    "pauses": 12,
    "restarts": 12,
    "tool_events_sent": 900,
    "tool_events_received": 900,
    "plans_applied": 40,
}
STATUS: dict[str, Any] = {"counters": {"turns_with_credit": 300}, "policy": "default"}


def failed(figures: dict[str, Any], status: dict[str, Any]) -> list[str]:
    return [check.what for check in demo.judge(figures, status) if not check.passed]


def test_a_good_run_passes_every_check() -> None:
    assert failed(FIGURES, STATUS) == []


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"turns_failed": 1}, "0 failed turns"),
        ({"turns_done": 0}, "0 failed turns"),
        ({"restarts": 11}, "every paused session was restarted"),
        ({"restarts": 13}, "every paused session was restarted"),
        ({"tool_events_received": 899}, "tool events received = sent"),
        ({"tool_events_received": 0, "tool_events_sent": 0}, "tool events received = sent"),
        ({"plans_applied": 0}, "plans were applied"),
    ],
)
def test_each_thing_that_was_not_seen_is_named(changes: dict[str, int], complaint: str) -> None:
    assert failed({**FIGURES, **changes}, STATUS) == [complaint]


def test_no_credit_is_named_as_is_a_status_without_figures() -> None:
    assert failed(FIGURES, {"counters": {"turns_with_credit": 16}}) == ["returning sessions had credit"]
    without = {key: value for key, value in FIGURES.items() if key not in ("pauses", "restarts", "plans_applied")}
    assert failed({**without, "pauses": None}, {}) == [
        "sessions were paused",
        "every paused session was restarted",
        "returning sessions had credit",
        "plans were applied",
    ]


def test_the_room_holds_about_half_of_the_sessions() -> None:
    chosen = choose(load(EXTRACT), count=16, seed=1)
    room = 2 * room_blocks(chosen, len(chosen.sessions), 2, 16) * 16
    full = sum(session.longest_prompt for session in chosen.sessions)
    assert 0.45 * full < room < 0.55 * full
    assert room // 2 > max(session.longest_prompt for session in chosen.sessions)
