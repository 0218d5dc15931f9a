# SPDX-License-Identifier: Apache-2.0
"""The command: a file or standard input, one line of JSON or words, exit 2 with one line on bad input."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from solver.__main__ import main
from tests.solver.test_json_io import FROM_THE_ISSUE


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "problem.json"
    path.write_text(FROM_THE_ISSUE)
    return str(path)


@pytest.mark.parametrize("method", ["auto", "exact", "dp-cpu", "bfd", "short-first"])
def test_solve_prints_a_plan(file: str, method: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", file, "--method", method, "--budget-ms", "20"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["placements"] == [{"candidate": "s1", "node": "w1/0"}]
    assert plan["optimal"] is True


def test_solve_reads_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(FROM_THE_ISSUE.encode())))
    assert main(["solve"]) == 0
    assert json.loads(capsys.readouterr().out)["value"]["credit"] == 12345


def test_explain_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = {
        "quantum": 10,
        "nodes": [{"id": "a", "capacity": 100}, {"id": "b", "capacity": 60}],
        "candidates": [
            {"id": "home", "cost": 95, "ready": False, "footprint": 90, "credit": {"a": 50}},
            {"id": "moved", "cost": 50, "ready": True, "footprint": 50, "credit": {"a": 40}},
            {"id": "out", "cost": 40, "ready": True, "footprint": 40},
            {"id": "huge", "cost": 500, "ready": True, "footprint": 40},
        ],
    }
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(problem))
    assert main(["explain", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "exact: 2 placed, credit 50, ready 1, footprint 140; no plan is better"
    assert lines[1:3] == ["node a: 100 of 100 tokens used", "node b: 50 of 60 tokens used"]
    assert lines[3] == "home -> a (placed 1st): its credit is greatest there, 50 tokens"
    assert lines[4].startswith("moved -> b (placed 2nd): without credit there; a (40) would be worth more")
    assert lines[5].startswith("out stays out: it needs 40 tokens, the most left on a node is 10")
    assert lines[6] == "huge stays out: it needs 500 tokens and the largest node has 100"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{}", r"solver: error: problem.candidates: got None, want a value: the field is missing\n"),
        (FROM_THE_ISSUE.replace("18200", "-1"), r"solver: error: candidates\[0\].cost: got -1, want .*\n"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    tmp_path: Path, text: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "problem.json"
    path.write_text(text)
    assert main(["solve", str(path)]) == 2
    assert re.fullmatch(line, capsys.readouterr().err)


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "no/such.json"]) == 2
    assert capsys.readouterr().err.startswith("solver: error: FILE: got 'no/such.json', want a file that can be read")


def test_bad_options_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["solve", "--budget-ms", "nan"])
    assert raised.value.code == 2
    assert "argument --budget-ms: got 'nan', want 0 or more milliseconds" in capsys.readouterr().err


def test_help_ends_every_option_in_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["solve", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for default in ("(default: -)", "(default: auto)", "(default: 1000)"):
        assert default in text


def test_a_state_space_too_large_is_no_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    candidates = [{"id": f"s{k}", "cost": 90 + k, "ready": True, "footprint": 1} for k in range(60)]
    nodes = [{"id": f"n{k}", "capacity": 900} for k in range(6)]
    path = tmp_path / "problem.json"
    path.write_text(json.dumps({"quantum": 1, "nodes": nodes, "candidates": candidates}))
    assert main(["solve", str(path), "--method", "dp-cpu"]) == 1
    assert capsys.readouterr().err.startswith("solver: no plan: dp states (layers x states): needs ")
