# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import calibrate_live, cli
from benchmarks.calibrate import BLOCK_SIZE, mooncake_rows, without_answers
from benchmarks.traces import EXTRACT, load
from benchmarks.workload import choose


def test_block_ids_say_what_a_prompt_shares_with_the_one_before() -> None:
    sessions = [without_answers(s) for s in choose(load(EXTRACT), count=3, seed=0, max_turns=6).sessions]
    rows = mooncake_rows(sessions)
    assert len(rows) == sum(len(s.turns) for s in sessions)
    shared = sessions[0].shared_tokens // BLOCK_SIZE
    assert len({tuple(row["hash_ids"][:shared]) for row in rows}) == 1
    row = iter(rows)
    for session in sessions:
        before: list[int] = []
        for turn in session.turns:
            ids = next(row)["hash_ids"]
            assert len(ids) == -(-turn.prompt_tokens // BLOCK_SIZE)
            kept = turn.kept_tokens // BLOCK_SIZE
            assert ids[:kept] == before[:kept]
            assert not set(ids[max(kept, shared) :]) & set(before)
            before = ids


@pytest.mark.dynamo
def test_means_agree_with_dynamos_own_replay(tmp_path: Path) -> None:
    out = tmp_path / "pairs.json"
    words = ["--sessions", "24", "--concurrency", "12", "--max-turns", "12", "--seeds", "3", "--json", str(out)]
    assert cli.main(["calibrate", *words]) == 0
    for row in map(json.loads, out.read_text().splitlines()):
        if row["metric"] in ("turn_mean_s", "decode_tokens_per_s", "cache_hit_share", "makespan_s"):
            assert sum(row["ours"]) == pytest.approx(sum(row["theirs"]), rel=0.05), row


def test_live_runs_are_brought_to_the_recorded_speed_and_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run: dict[str, Any] = {"policy": "round-robin", "engine": "mocker", "timing": None, "speed": 4.0, "workers": 2}
    run |= {"blocks": 4096, "block_size": 16, "sessions": 4, "concurrency": 4, "seed": 0, "source": EXTRACT.stem}
    run |= {"max_turns": 3, "max_prompt_tokens": None, "max_pause": 5.0}
    chosen = choose(load(EXTRACT), count=4, seed=0, max_turns=3, max_pause_s=5.0)
    truth = calibrate_live.simulate(run, chosen.sessions)
    for key in calibrate_live.TIMES:
        run[key] = float(truth[key] or 0.0) / 4
    for key in calibrate_live.RATES:
        run[key] = float(truth[key] or 0.0) * 4
    run["cache_hit_share"] = truth["cache_hit_share"]
    file, out = tmp_path / "live.jsonl", tmp_path / "rows.jsonl"
    file.write_text(json.dumps(run) + "\n" + json.dumps(run | {"engine": "vllm-cpu"}) + "\n")
    assert cli.main(["calibrate", "--live", str(file), "--json", str(out)]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {row["metric"] for row in rows} >= {"latency_mean_s", "cache_hit_share"}
    for row in rows:
        assert row["ours"] == pytest.approx(row["theirs"], rel=1e-4)
    assert "live runs" in capsys.readouterr().out
    file.write_text("{}\n")
    assert cli.main(["calibrate", "--live", str(file)]) == 2
    assert "live.jsonl:1" in capsys.readouterr().err
