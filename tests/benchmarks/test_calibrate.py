# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import cli
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
    pairs = json.loads(out.read_text())
    for policy, runs in pairs.items():
        for key in ("turn_mean_s", "decode_tokens_per_s", "cache_hit_share", "makespan_s"):
            theirs = sum(dynamo[key] for dynamo, _ in runs)
            ours = sum(sim[key] for _, sim in runs)
            assert ours == pytest.approx(theirs, rel=0.05), (policy, key)
