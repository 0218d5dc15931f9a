# SPDX-License-Identifier: Apache-2.0
"""``tao-bench core`` on a small world."""

from __future__ import annotations

import gc
import json
from pathlib import Path

from benchmarks import core_bench


def test_every_kind_of_event_is_timed_and_memory_is_looked_at(tmp_path: Path) -> None:
    before = gc.get_threshold()
    out = tmp_path / "core.json"
    sizes = ["--sessions", "60", "--nodes", "4", "--node-tokens", "66000"]
    assert (
        core_bench.main([*sizes, "--warm-up", "1500", "--events", "3000", "--every", "1500", "--json", str(out)]) == 0
    )
    result = json.loads(out.read_text())
    assert result["events"]["count"] == 3000
    assert {"turn_arrived", "turn_ended", "tool_changed", "snapshot", "plan_returned"} <= set(result["kinds"])
    assert 0 < result["kinds"]["turn_arrived"]["p50"] <= result["kinds"]["turn_arrived"]["max"]
    assert [events for events, _ in result["memory_mb"]][-1] >= 4500
    assert gc.get_threshold() == before
