# SPDX-License-Identifier: Apache-2.0
"""The report: what its tables say of given data, and that a folder of data becomes pages and plots."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import cli, grid
from benchmarks.report import tables
from benchmarks.report.command import blocks
from benchmarks.report.data import BASELINES, Cell, Data
from benchmarks.report.pages import fill, table
from tao_dynamo.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def line(policy: str, latency: list[float], decode: list[float], *, at_once: int = 64, host: int = 0) -> dict[str, Any]:
    cell: dict[str, Any] = {"setup": "qwen3-32b", "workload": "swe", "concurrency": at_once, "host_tokens": host}
    figures: dict[str, Any] = {key: [1.0, 1.0] for key in grid.KEPT}
    return cell | {"policy": policy} | figures | {"latency_mean_s": latency, "decode_tokens_per_s": decode}


def write(folder: Path, name: str, lines: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(one) + "\n" for one in lines))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    slow = [line(name, [200.0, 220.0], [50.0, 40.0]) for name in BASELINES if name != "thunderagent"]
    best = line("thunderagent", [100.0, 110.0], [100.0, 100.0])
    write(data, "grid-a.jsonl", [line("tao", [90.0, 100.0], [90.0, 94.0]), best, *slow])
    write(data, "grid-b.jsonl", [line("tao-bfd", [99.0, 110.0], [90.0, 94.0])])
    write(
        data,
        "host-a.jsonl",
        [line("tao", [50.0, 60.0], [1.0, 1.0], host=7), line("dynamo-kv", [100.0, 120.0], [1.0, 1.0], host=7)],
    )
    counted = {"snapshots": 30, "several": 20, "worse": {"bfd": 5}, "optimal_share": 1.0}
    timed = {"solve_cpu_ms": 2.0, "makespan_s": 100.0}
    write(data, "snapshots.jsonl", [{"setup": "a", "workload": "b", "concurrency": 8, **counted, **timed}])
    write(
        data,
        "calibration-live.jsonl",
        [{"against": "x", "policy": "tao", "metric": "ttft_mean_s", "theirs": [2.0, 2.0], "ours": [2.2, 2.2]}],
    )
    row = {"t": [0.0, 60.0, 120.0], "running": [0, 4, 2], "between": [4, 0, 1], "waiting": [0, 4, 0]}
    write(data, "timelines.jsonl", [{"policy": name, "concurrency": 8, **row} for name in ("tao", "dynamo-kv")])
    return tmp_path


def test_a_change_is_against_the_best_baseline_and_positive_where_worse(folder: Path) -> None:
    (cell,) = Data(folder / "data").cells
    faster = cell.change("latency_mean_s")
    assert faster is not None
    assert faster.best == "thunderagent"
    # 90/100 - 1 and 100/110 - 1
    assert faster.worse.mean == pytest.approx((-0.1 - 1 / 11) / 2)
    slower = cell.change("decode_tokens_per_s")
    assert slower is not None
    assert slower.worse.mean == pytest.approx(0.08)
    assert cell.change("pauses") is None
    assert Cell("a", "b", 1).change("latency_mean_s") is None


def test_losses_are_listed_and_counted(folder: Path) -> None:
    data = Data(folder / "data")
    lost = tables.losses(data).splitlines()[2:]
    assert len(lost) == 1
    assert lost[0].startswith("| decode | qwen3-32b swe 64 | thunderagent | 92.0")
    assert "+8.0 ± 25.4 %" in lost[0]
    assert "| no |" in lost[0]
    by_metric = {row.split(" | ")[0]: row for row in tables.summary(data).splitlines()}
    assert by_metric["| latency"].startswith("| latency | 1 | 0 | 0 (0) |")
    assert by_metric["| decode"].startswith("| decode | 0 | 0 | 1 (0) |")
    assert by_metric["| makespan"].startswith("| makespan | 0 | 1 | 0 (0) |")


def test_an_ablation_is_set_against_whole_tao(folder: Path) -> None:
    (row,) = tables.ablations(Data(folder / "data")).splitlines()[2:]
    # 99/90 and 110/100, two seeds of one cell.
    assert row.startswith("| bfd | 1 | +10.0 %")


def test_a_folder_becomes_pages_and_plots(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = list(blocks(Data(folder / "data")))
    marks = "".join(f"<!-- begin {name} -->\nold\n<!-- end -->\n" for name in names)
    (folder / "README.md").write_text(f"# By hand\n\n{marks}")
    assert cli.main(["report", "--out", str(folder), "--policies", str(folder / "policies")]) == 0
    page = (folder / "README.md").read_text()
    assert page.startswith("# By hand\n")
    assert "old" not in page
    assert "| a b 8 | 30 | 20 | 5 (25 %) |" in page
    # 30 plans of 2 ms in 100 s
    assert "| a b 8 | 30 | 2.00 | 100.0 % | 0.0600 % |" in page
    assert "+10.0 ± 0.0 %" in page
    for name in ("qwen3-32b.png", "timelines.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
        assert str(folder / name) in capsys.readouterr().out or name != "qwen3-32b.png"
    before = (folder / "qwen3-32b.png").read_bytes()
    assert cli.main(["report", "--out", str(folder), "--policies", str(folder / "policies")]) == 0
    assert (folder / "README.md").read_text() == page
    assert (folder / "qwen3-32b.png").read_bytes() == before


def test_bad_data_and_pages_are_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "--out", str(tmp_path / "no")]) == 2
    assert "--out" in capsys.readouterr().err
    assert cli.main(["report", "--out", str(tmp_path)]) == 2
    assert "grid-*.jsonl" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="nobody"):
        fill("<!-- begin nobody -->\n<!-- end -->", {})


def test_a_table_is_markdown() -> None:
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | ---: |\n| 1 | 2 |"
