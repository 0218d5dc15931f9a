# SPDX-License-Identifier: Apache-2.0
"""Board and alerts: every expression can be read, and every name in them is in the scrape of a running router."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import promql_parser
import pytest
import yaml

from launch.monitoring import ALERTS, alert_groups, board_text
from launch.stack import Stack
from tao_dynamo.shell.metrics import FAMILIES, HISTOGRAMS, PREFIX

PROMTOOL = next((path for path in (".tools/promtool", shutil.which("promtool")) if path and Path(path).is_file()), None)
"""Prometheus' own checker, where there is one (``make promtool``); the expressions are parsed anyway."""
LABELS_OF_THE_SCRAPE = {"namespace", "pod", "le"}


def board_expressions() -> list[str]:
    board = json.loads(board_text())
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]


def alert_expressions() -> list[str]:
    return [rule["expr"] for group in alert_groups() for rule in group["rules"]]


def plain(expression: str) -> str:
    """A board's expression with Grafana's variables filled in."""
    return expression.replace("$__rate_interval", "5m").replace("$namespace", ".*")


EVERY = [plain(expression) for expression in board_expressions() + alert_expressions()]


def names(expression: str) -> set[str]:
    return set(re.findall(rf"{PREFIX}\w+", expression))


def family(name: str) -> str:
    """The name without prefix and without what Prometheus' text puts behind it."""
    short = name.removeprefix(PREFIX)
    return short if short in FAMILIES else re.sub(r"_(total|bucket|sum|count)$", "", short)


@pytest.mark.parametrize("expression", EVERY)
def test_expressions_can_be_read_and_name_labels_that_are_there(expression: str) -> None:
    promql_parser.parse(expression)
    for name, inside in re.findall(rf"({PREFIX}\w+)\{{([^}}]*)\}}", expression):
        known = set(FAMILIES[family(name)][2]) if family(name) in FAMILIES else set()
        used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inside))
        assert used <= known | LABELS_OF_THE_SCRAPE, (name, used - known)
    for grouped in re.findall(r"by \(([^)]*)\)", expression):
        known = {label for name in names(expression) if family(name) in FAMILIES for label in FAMILIES[family(name)][2]}
        assert {label.strip() for label in grouped.split(",")} <= known | LABELS_OF_THE_SCRAPE


def test_every_family_is_on_the_board_or_in_an_alert_or_derived() -> None:
    shown = {family(name) for expression in EVERY for name in names(expression)}
    assert shown <= set(FAMILIES) | set(HISTOGRAMS)
    # Counted on the page and in the status; a board would only repeat them.
    elsewhere = {"paused_sessions", "node_sessions", "planner_solves", "predictor", "index_events", "streams"}
    assert (set(FAMILIES) | set(HISTOGRAMS)) - shown <= elsewhere


@pytest.fixture(scope="module")
def scrape(operated: Stack) -> str:
    ask = {"model": operated.model_name, "prompt": "Hello", "max_tokens": 2}
    headers = {"x-dynamo-session-id": "s"}
    assert httpx.post(f"{operated.url}/v1/completions", json=ask, headers=headers, timeout=60).status_code == 200
    return httpx.get(f"http://127.0.0.1:{operated.system_port('tao-router')}/metrics", timeout=30).text


@pytest.mark.dynamo
def test_every_name_is_in_the_scrape_of_a_running_router(scrape: str) -> None:
    there = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", scrape, re.MULTILINE):
        there |= {name} | ({f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else set())
    used = {name for expression in EVERY for name in names(expression)}
    assert len(used) > 25
    assert used <= there, used - there


@pytest.mark.dynamo
def test_what_dynamo_adds_to_the_scrape_is_read_by_prometheus(scrape: str) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    ours = [found for found in text_string_to_metric_families(scrape) if found.name.startswith(PREFIX)]
    assert {found.name.removeprefix(PREFIX) for found in ours} >= set(FAMILIES)
    assert all(found.documentation for found in ours)


def test_the_board_is_one_that_grafana_takes() -> None:
    board = json.loads(board_text())
    assert (board["uid"], board["schemaVersion"]) == ("tao-router", 39)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    places = [panel["gridPos"] for panel in board["panels"]]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(cells) == len(set(cells)), "panels lie on each other"
    assert max(x for x, _ in cells) < 24
    for panel in board["panels"]:
        assert panel["title"]
        for target in panel.get("targets", []):
            assert target["datasource"]["uid"] == "${datasource}"


def test_every_alert_says_what_to_do_and_stands_in_the_runbook() -> None:
    runbook = Path("docs/runbook.md").read_text(encoding="utf-8")
    for group in alert_groups():
        for rule in group["rules"]:
            assert set(rule["annotations"]) == {"summary", "action"}
            assert rule["labels"]["severity"] in ("critical", "warning", "info")
            assert f"### {rule['alert']}\n" in runbook


def test_promtool_agrees(tmp_path: Path) -> None:
    """Rules, the board's expressions as rules, and that alerts fire when they should; else YAML and parser only."""
    rules: list[dict[str, Any]] = [{"record": f"board:panel{n}", "expr": e} for n, e in enumerate(EVERY)]
    as_rules = tmp_path / "board.yaml"
    as_rules.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    cases = tmp_path / "cases.yaml"
    cases.write_text(Path(__file__).with_name("alerts_test.yaml").read_text().replace("RULES", str(ALERTS.resolve())))
    assert yaml.safe_load(cases.read_text())["tests"]
    if PROMTOOL is None:
        return
    for words in (["check", "rules", str(ALERTS), str(as_rules)], ["test", "rules", str(cases)]):
        done = subprocess.run([PROMTOOL, *words], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
