# SPDX-License-Identifier: Apache-2.0
"""``tao-bench simulate`` and ``compare``, from their command lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from benchmarks import cli, compare
from benchmarks.intervals import interval, relative_change
from benchmarks.mixes import mix
from benchmarks.traces import EXTRACT
from tao_dynamo.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ["--sessions", "6", "--concurrency", "6", "--max-turns", "4", "--setup", "mocker:2:2048"]


def test_simulate_prints_flat_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "some.jsonl").write_text(EXTRACT.read_text())
    args = ["simulate", "--traces", str(folder), "--policy", "round-robin", "--seed", "4", *SMALL, "--json"]
    assert cli.main(args) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["turns_done"], first["turns_failed"], first["sessions_done"]) == (24, 0, 6)
    keys = "latency_mean_s ttft_mean_s decode_tokens_per_s cache_hit_share pause_wait_mean_s wait_max_s solves"
    assert set(keys.split()) | {"optimal_share"} <= set(first)
    assert cli.main(args) == 0
    again = json.loads(capsys.readouterr().out)
    for run in (first, again):
        del run["simulated_in_s"]
    assert first == again


def test_compare_sets_the_first_against_the_best_of_the_rest(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "all.json"
    policies = "tao,round-robin,dynamo-kv"
    assert cli.main(["compare", *SMALL, "--policies", policies, "--seeds", "2", "--json", str(out)]) == 0
    runs = json.loads(out.read_text())
    assert list(runs) == policies.split(",")
    assert [[run["seed"] for run in some] for some in runs.values()] == [[0, 1]] * 3
    shown = capsys.readouterr().out
    assert "tao vs best other" in shown
    assert "latency_mean_s" in shown


def test_best_other_is_by_the_metrics_own_direction() -> None:
    runs = {
        "us": [{"latency_mean_s": 9.0, "decode_tokens_per_s": 9.0}],
        "a": [{"latency_mean_s": 10.0, "decode_tokens_per_s": 10.0}],
        "b": [{"latency_mean_s": 12.0, "decode_tokens_per_s": 12.0}],
    }
    best = compare.best_other(runs, "latency_mean_s")
    assert best is not None
    assert (best[0], best[1].mean) == ("a", pytest.approx(-0.1))
    best = compare.best_other(runs, "decode_tokens_per_s")
    assert best is not None
    assert (best[0], best[1].mean) == ("b", pytest.approx(-0.25))
    assert compare.best_other(runs, "pauses") is None


def test_intervals() -> None:
    found = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found is not None
    # s = 1.5811, t(4) = 2.776
    assert (found.mean, found.half) == (3.0, pytest.approx(1.9629, abs=1e-3))
    assert interval([]) is None
    single = interval([7.0])
    assert single is not None
    assert single.half is None
    change = relative_change([1.1, 2.2], [1.0, 2.0])
    assert change is not None
    assert (change.mean, change.half) == (pytest.approx(0.1), pytest.approx(0.0, abs=1e-9))
    assert relative_change([1.0], [0.0]) is None


def test_a_workload_that_the_folder_lacks(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mini_swe_agent_gemini3\.jsonl"):
        mix(tmp_path, "swe", count=1, seed=0, max_turns=None, max_pause_s=None)


def test_bad_usage_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for args, text in (
        (["simulate", "--policy", "best"], "--policy: got 'best'"),
        (["simulate", "--setup", "h100"], "--setup: got 'h100'"),
        (["compare", "--policies", "tao,none"], "--policy: got 'none'"),
    ):
        assert cli.main(args) == 2
        error = capsys.readouterr().err
        assert text in error
        assert error.count("\n") == 1
