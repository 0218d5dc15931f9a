# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmarks import cli

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_rivals_are_tried_on_snapshots_with_several_candidates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "snapshots.jsonl"
    args = ["--sessions", "40", "--concurrency", "40", "--max-turns", "8", "--setups", "mocker:2:3000"]
    assert cli.main(["snapshots", *args, "--json", str(out)]) == 0
    (row,) = [json.loads(text) for text in out.read_text().splitlines()]
    assert 0 < row["several"] <= row["snapshots"]
    assert set(row["worse"]) == {"short-first", "bfd"}
    assert all(0 <= count <= row["several"] for count in row["worse"].values())
    assert "short-first worse" in capsys.readouterr().out
