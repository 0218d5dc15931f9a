# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from kv_events.inspection import toolboard as module
from kv_events.inspection.toolboard import ToolBoard
from kv_events.recording import Message
from tests.kv_events.inspection.bus import TOOLS, tool


def board_of(*messages: Message) -> ToolBoard:
    board = ToolBoard()
    for message in messages:
        board.take(message)
    return board


def test_a_call_runs_from_its_start_to_its_end() -> None:
    board = board_of(tool("tool_start", 0, t=1.0), tool("tool_start", 1, t=2.0, call="d"))
    assert board.sessions["s"].calls["c"].started == 1.0
    assert board.running == 2
    board.take(tool("tool_end", 2, t=5.0))
    board.take(tool("tool_error", 3, t=5.0, call="d"))
    assert (board.running, board.sessions["s"].ended, board.sessions["s"].failed) == (0, 2, 1)


@pytest.mark.parametrize(
    ("more", "back", "why"),
    [
        ({"declared_s": 30.0}, 31.0, "declared"),
        ({"remaining_s": 4.0}, 5.0, "remaining"),
        ({}, None, ""),
        ({"declared_s": "soon"}, None, ""),
    ],
)
def test_when_it_is_expected_back(more: dict[str, object], back: float | None, why: str) -> None:
    call = board_of(tool("tool_start", 0, t=1.0, **more)).sessions["s"].calls["c"]
    assert (call.back, call.why) == (back, why)


def test_progress_moves_the_expected_end_and_history_gives_one() -> None:
    board = board_of(
        tool("tool_start", 0, t=0.0), tool("tool_end", 1, t=4.0), tool("tool_start", 2, t=10.0, call="second")
    )
    call = board.sessions["s"].calls["second"]
    assert (call.back, call.why) == (14.0, "mean of 1")
    board.take(tool("tool_progress", 3, t=12.0, call="second", fraction=0.25))
    assert (call.back, call.why) == (18.0, "fraction")


def test_a_start_that_was_not_heard_is_told_by_the_tools_own_host() -> None:
    board = board_of(tool("tool_progress", 0, t=9.0, started_at_unix_ms=1_002_000, remaining_s=1.0))
    assert board.sessions["s"].calls["c"].started == 2.0
    board.take(tool("tool_end", 1, t=9.5, call="never heard of"))
    assert board.unmatched == 1


def test_repeats_and_rubbish() -> None:
    start = tool("tool_start", 0, t=1.0)
    board = board_of(start, start, Message(1.0, TOOLS, b"\xc1"), tool("tool_start", 1, t=1.0, tool_call_id=7))
    assert (board.repeats, board.unreadable, board.running) == (1, 2, 1)


def test_sessions_and_calls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_SESSIONS", 3)
    monkeypatch.setattr(module, "_MAX_CALLS", 4)
    board = ToolBoard()
    for at in range(60):
        board.take(tool("tool_start", at, t=float(at), session=f"s{at % 6}", call=f"c{at}"))
    assert len(board.sessions) == 3
    assert board.running <= 12
