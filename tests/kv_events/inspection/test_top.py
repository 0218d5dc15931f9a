# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import json
from typing import Any

import pytest

from kv_events.inspection.discovery import Card
from kv_events.inspection.meters import Meters
from kv_events.inspection.toolboard import ToolBoard
from kv_events.inspection.top import Bus, render, snapshot
from kv_events.types import NodeId
from tests.kv_events.events import A, B, C, removed, stored
from tests.kv_events.inspection.bus import forward, kv, load, tool

CARDS = {A: Card(A, 16, 200, True), C: Card(C, 32, 200, True)}


def shown(bus: Bus | None = None, router: dict[NodeId, str] | None = None, block_size: int | None = None) -> Any:
    meters, board = Meters(), ToolBoard()
    meters.mark(0.0)
    meters.take(kv([stored(range(40)), stored([1], node=B)], 0, t=1.0, ms=5000), 5.5)
    meters.take(kv([removed(range(30, 40), at=2)], 1, t=1.0), 5.5)
    meters.take(load(7, 50, 0, t=1.0), 5.5)
    meters.take(forward(7, 10, 0, t=1.0), 5.5)
    meters.mark(2.0)
    for at, session in enumerate(("old", "new", "done")):
        board.take(tool("tool_start", at, t=float(at), session=session, declared_s=0.5 if at == 0 else 60.0))
    board.take(tool("tool_end", 3, t=2.0, session="done"))
    return snapshot(40.0 if bus else 2.0, bus or Bus(), meters, board, CARDS, block_size, router or {})


def test_a_row_per_node_and_per_session() -> None:
    now = shown(block_size=8)
    a, b, c = now["nodes"]
    assert (a["node"], a["blocks"], a["tokens"], a["used_blocks"], a["kv_use"]) == ("7/0", 30, 480, 50, 0.25)
    assert (a["stored_per_s"], a["removed_per_s"], a["running"], a["queued"], a["view"]) == (20.0, 5.0, 3, 3, "whole")
    assert (b["node"], b["blocks"], b["tokens"], b["kv_use"]) == ("7/1", 1, 8, None)
    assert (c["node"], c["view"]) == ("9/0", "silent")
    assert [(row["session"], row["for_s"], row["back_in_s"]) for row in now["sessions"]] == [
        ("old", 2.0, -1.5),
        ("new", 1.0, 59.0),
        ("done", None, None),
    ]
    assert (now["running_tools"], now["sessions"][2]["ended"]) == (2, 1)
    json.dumps(now)


def test_what_is_sampled_is_scaled_up_and_no_blocks_are_claimed() -> None:
    now = shown(Bus(share=0.25, whole=False))
    assert (now["nodes"][0]["stored_per_s"], now["nodes"][0]["blocks"], now["nodes"][0]["tokens"]) == (80.0, None, None)
    assert now["nodes"][0]["view"] == "gone"
    assert "sampled: 25.0% of the workers' messages were decoded" in text(now)


def text(now: Any, sessions: int = 40) -> str:
    rich = pytest.importorskip("rich.console")
    console = rich.Console(file=io.StringIO(), width=200)
    console.print(render(now, "title", sessions))
    return str(console.file.getvalue())


def test_the_tables_hold_it() -> None:
    lines = text(shown(router={A: "stale"}), sessions=2).splitlines()
    (row,) = [line.split() for line in lines if line.strip().startswith("7/0")]
    assert row == ["7/0", "30", "480", "0", "50", "25%", "3", "3", "20.0", "5.0", "0.0", "0", "0", "whole", "stale"]
    (row,) = [line.split() for line in lines if line.strip().startswith("old")]
    assert row == ["old", "bash", "2.0", "late", "1.5", "declared", "0", "0", "2.0"]
    assert "… and 1 more" in "\n".join(lines)


def test_what_others_wrote_neither_steers_the_terminal_nor_the_table() -> None:
    board = ToolBoard()
    board.take(tool("tool_start", 0, t=0.0, session="[red]a\x1b[2J\nb"))
    said = text(snapshot(1.0, Bus(), Meters(), board, {}, None, {}))
    assert "[red]a\\x1b[2J\\nb" in said
    assert "\x1b" not in said


def test_what_is_odd_is_said() -> None:
    said = text(shown(Bus(connected=False, outages=2, dropped=1234)))
    assert "THE BUS IS AWAY" in said
    assert "odd: outages 2, dropped 1,234" in said
