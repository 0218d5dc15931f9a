# SPDX-License-Identifier: Apache-2.0
"""The page of metrics says what the router serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tao_dynamo.shell.metrics import FAMILIES, HISTOGRAMS
from tao_dynamo.shell.metrics_page import page

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_page_is_what_the_table_gives() -> None:
    assert PAGE.read_text() == page(), "python -m tao_dynamo.shell.metrics_page > docs/metrics.md"


def test_every_name_that_the_page_sends_readers_to_exists() -> None:
    head = page().partition("## Gauges")[0]
    named = {word.split("{")[0] for word in head.split("`")[1::2] if word.replace("_", "").split("{")[0].isalpha()}
    unknown = {name for name in named if "_" in name and name not in FAMILIES and name not in HISTOGRAMS}
    assert unknown <= {"_total", "dynamo_component_tao_router_", "DYN_SYSTEM_PORT"}


@pytest.mark.parametrize(
    "asked",
    [
        {"sessions", "waiting_turns", "pause_seconds", "turn_wait_seconds"},
        {"solve_seconds", "solves", "plans", "plan_entries", "planner_solves", "planner_fallbacks"},
        {"planner_budget_overruns", "credit_predicted_tokens", "credit_confirmed_tokens", "eta_error_seconds"},
        {"tool_events", "event_lag_seconds", "node_events", "node_stale", "node_silent", "event_bus_connected"},
    ],
)
def test_what_operators_asked_for_is_there(asked: set[str]) -> None:
    assert asked <= set(FAMILIES) | set(HISTOGRAMS)
