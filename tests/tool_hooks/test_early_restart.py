# SPDX-License-Identifier: Apache-2.0
"""The example of an early restart, run as its reader would run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "early_restart.py"


@pytest.mark.dynamo
@pytest.mark.timeout(180)
def test_a_paused_session_is_restarted_before_its_tool_returns_because_progress_says_so() -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE), "--json"], check=False, capture_output=True, text=True, timeout=170
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    seen = json.loads(ran.stdout)
    moments = seen["moments"]
    paused = next(m["at"] for m in moments if m["facts"].get("state") == "paused")
    restarted = next(m for m in moments if m["at"] > paused and m["facts"].get("node"))
    ended = next(m["at"] for m in moments if m["facts"].get("kind") == "tool_end")
    next_turn = next(m["at"] for m in moments if m["what"] == "turn 2 first token")
    assert restarted["facts"]["source"] == "progress"
    assert restarted["facts"]["ready"]
    assert paused < restarted["at"] < ended < next_turn
    counts = seen["counts"]
    assert counts["restarts_early"] >= 1
    assert counts["tool_events"]["tool_start"] == counts["tool_events"]["tool_end"] == 7
    assert not counts["faults"]
