# SPDX-License-Identifier: Apache-2.0
"""``tao-bench grid``, and arrivals at a rate of one's own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from benchmarks import cli, grid
from benchmarks.mixes import Mix, mix, paced
from benchmarks.traces import EXTRACT, Arrival
from tao_dynamo.errors import ConfigError, TraceError

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ["--setups", "mocker:2:4096", "--workloads", "all", "--concurrency", "8", "--seeds", "2", "--max-pause", "5"]


def test_a_stopped_grid_goes_on_where_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "grid.jsonl"
    assert cli.main(["grid", *SMALL, "--policies", "round-robin", "--out", str(out)]) == 0
    first = out.read_text()
    assert cli.main(["grid", *SMALL, "--policies", "round-robin,dynamo-kv", "--out", str(out)]) == 0
    assert out.read_text().startswith(first)
    cells = list(grid.read(out))
    assert [cell["policy"] for cell in cells] == ["round-robin", "dynamo-kv"]
    assert all(len(cell["latency_mean_s"]) == 2 and cell["turns_failed"] == [0, 0] for cell in cells)
    by_seed = grid.rows(cells[0])
    assert [run["latency_mean_s"] for run in by_seed] == cells[0]["latency_mean_s"]


def test_what_is_no_cell_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "grid.jsonl"
    out.write_text(json.dumps({"setup": "x"}) + "\n")
    with pytest.raises(TraceError, match=r"grid\.jsonl:1"):
        list(grid.read(out))
    assert cli.main(["grid", *SMALL, "--workloads", "nothing", "--out", str(tmp_path / "new")]) == 2
    assert "--workloads" in capsys.readouterr().err


def test_a_rate_stretches_the_gaps_evenly() -> None:
    recorded = [Arrival(10.0, 5, 1), Arrival(11.0, 6, 2), Arrival(14.0, 7, 3)]
    assert paced(recorded, None) == recorded
    twice = paced(recorded, 1.0)
    assert [a.t_s for a in twice] == [0.0, 0.5, 2.0]
    assert [(a.prompt_tokens, a.output_tokens) for a in twice] == [(5, 1), (6, 2), (7, 3)]


def test_open_arrivals(tmp_path: Path) -> None:
    file = tmp_path / "arrivals_x.jsonl"
    file.write_text('{"source": "x", "format": []}\n[0, 100, 1]\n[1, 200, 2]\n[4, 300, 3]\n')

    def drawn(**more: object) -> Mix:
        limits = {"count": 5, "seed": 0, "max_turns": 1, "max_pause_s": 1.0}
        return mix(EXTRACT, "all", arrivals=file, **limits, **more)  # type: ignore[arg-type]

    closed = drawn(rate=2.0)
    assert closed.starts == ()
    assert [a.t_s for a in closed.arrivals] == [0.0, 0.25, 1.0]
    opened = drawn(session_rate=1.0)
    assert opened.arrivals == ()
    # The file's rhythm, again from its start after one mean gap.
    assert opened.starts == (0.0, 0.5, 2.0, 3.0, 3.5)
    with pytest.raises(ConfigError, match="--rate"):
        mix(EXTRACT, "all", count=1, seed=0, max_turns=1, max_pause_s=1.0, rate=1.0)


def test_an_open_loop_is_bounded_by_nothing_but_its_rate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "arrivals_x.jsonl"
    file.write_text('{"source": "x", "format": []}\n' + "".join(f"[{t}, 100, 1]\n" for t in range(3)))
    args = ["simulate", "--policy", "round-robin", "--sessions", "6", "--concurrency", "1", "--max-turns", "1"]
    assert cli.main([*args, "--arrivals", str(file), "--session-rate", "100", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["sessions_done"], result["concurrency"]) == (6, None)
    # Six sessions that begin within 60 ms and run side by side take little more than one of them.
    assert result["makespan_s"] < 2 * result["latency_mean_s"]
