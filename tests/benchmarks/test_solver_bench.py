# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import cli, solver_bench, solver_runs
from benchmarks.solver_instances import KINDS, SIZES, Size, snapshot
from benchmarks.solver_rivals import Answer, cp_sat, highs
from benchmarks.solver_runs import Limits, Run, proven, run_method
from benchmarks.solver_summary import contradictions, percentile, summarise
from solver import dp_cpu, validate
from solver.problem import Candidate, Node, Plan, Problem, Value
from tao_dynamo.errors import UsageError

SMALL = Size(7, 2)
LIMITS = Limits(budget_ms=50, limit_s=5, threads=1)


def answer(credit: int, ready: int, footprint: int, proven: int, ms: float = 1.0) -> Answer:
    return Answer(Value(credit, ready, footprint), proven, ms / 1e3)


def run(method: str, seed: int, given: Answer, kind: str = "tight-few") -> Run:
    return Run(SMALL, kind, seed, method, given, 100.0, 10.0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_is_what_its_name_says(kind: str) -> None:
    room, homes = kind.split("-")
    made = snapshot(Size(128, 8), kind, 3)
    assert made == snapshot(Size(128, 8), kind, 3)
    assert made != snapshot(Size(128, 8), kind, 4)
    validate(made)
    assert (len(made.candidates), len(made.nodes)) == (128, 8)
    demand, capacity = sum(c.cost for c in made.candidates), sum(n.capacity for n in made.nodes)
    assert (capacity < 0.5 * demand) == (room == "tight")
    most = max(len(c.credit) for c in made.candidates)
    assert most == {"few": 2, "many": 4, "burst": 0, "several": 6}[homes]


def test_sizes_are_read_and_refused() -> None:
    assert [str(size) for size in SIZES][0::6] == ["32x2", "1024x64"]
    for text in ("64", "0x4", "4x", "axb", "-1x2"):
        with pytest.raises(UsageError, match="--sizes"):
            Size.parse(text)


@pytest.mark.parametrize("rival", [cp_sat, highs])
def test_the_general_solvers_find_the_optimum(rival: Any) -> None:
    for kind in KINDS:
        made = snapshot(SMALL, kind, 1)
        made = dataclasses.replace(made, quantum=8192)
        want = dp_cpu.solve(made).value
        got = rival(made, 20.0, 1)
        assert (got.value, got.proven) == (want, 3)


@pytest.mark.parametrize("rival", [cp_sat, highs])
def test_the_general_solvers_take_what_has_nothing_to_place(rival: Any) -> None:
    assert rival(Problem((), ()), 5.0, 1).value == Value()
    full = Problem((Node("a", 10),), (Candidate("s", 20, True, 20),), quantum=1)
    got = rival(full, 5.0, 1)
    assert (got.value, got.proven) == (Value(), 3)


def test_values_too_wide_for_one_objective_are_solved_in_stages() -> None:
    nodes = (Node("a", 10), Node("b", 9))
    candidates = tuple(Candidate(f"s{k}", 3 + k % 3, k % 2 == 0, (1 << 35) + k, {"a": (1 << 33) + k}) for k in range(7))
    made = Problem(nodes, candidates, quantum=1)
    got = cp_sat(made, 20.0, 1)
    assert (got.value, got.proven) == (dp_cpu.solve(made).value, 3)


def test_leading_components_are_what_counts_as_proven() -> None:
    def plan(bound: Value) -> Plan:
        return Plan((), Value(5, 4, 3), bound, bound == Value(5, 4, 3), "m", 0.0)

    bounds = [Value(6, 4, 3), Value(5, 5, 3), Value(5, 4, 4), Value(5, 4, 3)]
    assert [proven(plan(bound)) for bound in bounds] == [0, 1, 2, 3]


def test_rows_hold_shares_and_times() -> None:
    runs = [
        run("a", 1, answer(10, 2, 3, 3, ms=2)),
        run("a", 2, answer(10, 2, 3, 2, ms=4)),
        run("a", 3, Answer(None, 0, 9.0, "killed")),
        run("b", 1, answer(10, 2, 3, 3, ms=1)),
        run("b", 2, answer(5, 9, 9, 0, ms=1)),
        run("b", 3, answer(7, 1, 1, 0, ms=1)),
    ]
    first, second = summarise(runs, by_kind=False)
    assert (first.method, first.snapshots, first.solved) == ("a", 3, 2)
    assert (first.median_ms, first.p95_ms, first.max_ms) == (3.0, 4.0, 4.0)
    assert first.best == pytest.approx(2 / 3)
    assert first.proven == pytest.approx(1 / 3)
    assert first.proven_ready == pytest.approx(2 / 3)
    assert first.credit == 1.0
    assert second.best == pytest.approx(2 / 3)
    assert second.credit == pytest.approx(22 / 27)
    assert [row.kind for row in summarise([*runs, run("a", 1, answer(1, 1, 1, 0), "loose-few")], by_kind=True)] == [
        *("tight-few", "tight-few", "loose-few")
    ]


def test_a_proof_that_another_method_disproves_is_found() -> None:
    good = [run("a", 1, answer(10, 2, 3, 2)), run("b", 1, answer(10, 2, 9, 3))]
    assert contradictions(good) == []
    bad = [run("a", 1, answer(10, 2, 3, 3)), run("b", 1, answer(10, 2, 9, 0))]
    assert len(contradictions(bad)) == 1
    assert "a on 7x2 tight-few #1" in contradictions(bad)[0]


def test_percentiles_are_elements() -> None:
    assert percentile([], 0.95) == 0
    assert percentile([1.0], 0.95) == 1
    assert percentile([float(k) for k in range(1, 101)], 0.95) == 95
    assert percentile([1.0, 2.0, 3.0], 0.5) == 2


def hang_or_die(method: str, limits: Limits) -> Callable[[Problem], Answer]:
    def solve(problem: Problem) -> Answer:
        if problem.seed == 2:
            signal.pause()
        if problem.seed == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer(1, 1, 1, 0)

    return solve


def test_a_method_that_hangs_or_dies_loses_that_snapshot_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver_runs, "GRACE_S", 0.2)
    cases = [("tight-few", seed) for seed in (1, 2, 3, 4)]
    runs = list(run_method("bfd", SMALL, cases, Limits(50, 0.3, 1), hang_or_die))
    assert [each.answer.note for each in runs] == ["", "killed", "its process died", ""]
    assert [each.seed for each in runs] == [1, 2, 3, 4]


def note_what_was_solved(method: str, limits: Limits) -> Callable[[Problem], Answer]:
    seen: list[Problem] = []

    def solve(problem: Problem) -> Answer:
        seen.append(problem)
        once = sum(each == problem for each in seen) == 1
        return dataclasses.replace(answer(1, 1, 1, 0), note=f"{len(seen) - 1} {once}")

    return solve


def test_a_method_is_at_work_before_it_is_timed_or_asleep_but_never_on_what_is_timed() -> None:
    cases = [("tight-few", 1), ("tight-few", 2)]
    awake = list(run_method("bfd", SMALL, cases, Limits(50, 5, 1), note_what_was_solved))
    before = [int(each.answer.note.split()[0]) for each in awake]
    assert before[0] > 1
    assert before[1] > before[0] + 1
    cold = list(run_method("bfd", SMALL, cases, Limits(50, 5, 1, cold=True), note_what_was_solved))
    assert [each.answer.note for each in cold] == ["1 True", "2 True"]
    assert all(each.answer.note.endswith("True") for each in awake)


def test_the_command_prints_a_table_and_writes_json_and_plot(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "runs.json"
    line = ["solver", "--sizes", "7x2", "--kinds", "tight-few,loose-burst", "--methods", "dense-dp,bfd,highs"]
    line += ["--repeat", "2", "--json", str(file), "--out", str(tmp_path / "out")]
    assert cli.main(line) == 0
    table = capfd.readouterr().out
    assert "dense-dp" in table
    assert "HiGHS" not in table
    result = json.loads(file.read_text(encoding="utf-8"))
    rows = {row["method"]: row for row in result["rows"]}
    assert set(rows) == {"dense-dp", "bfd", "highs"}
    assert rows["dense-dp"]["proven"] == rows["dense-dp"]["best"] == rows["highs"]["best"] == 1.0
    assert rows["bfd"]["peak_mb"] > 1
    assert len(result["runs"]) == 12
    assert (tmp_path / "out" / solver_bench.PLOT_NAME).read_bytes().startswith(b"\x89PNG")


def test_earlier_runs_come_into_the_table_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    line = ["solver", "--kinds", "tight-few", "--repeat", "1"]
    assert cli.main([*line, "--sizes", "7x2", "--methods", "dense-dp", "--json", str(first)]) == 0
    capsys.readouterr()
    line += ["--sizes", "9x2", "--methods", "bfd", "--add", str(first), "--json", str(second)]
    assert cli.main(line) == 0
    table = capsys.readouterr().out
    assert "7x2" in table
    assert "9x2" in table
    assert json.loads(second.read_text())["runs"][0] == json.loads(first.read_text())["runs"][0]
    assert solver_runs.read_runs(first)[0].answer.proven == 3


def test_the_way_to_the_planner_and_back_is_timed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["solver", "--planner", "--sizes", "7x2"]) == 0
    assert "planner 7x2: there and back" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (["--methods", "bfd,guess"], "guess"),
        (["--kinds", ""], "--kinds"),
        (["--sizes", "12"], "--sizes"),
        (["--json", "/no/such/folder/x.json"], "--json"),
        (["--add", "/no/such/folder/x.json"], "--add"),
    ],
)
def test_bad_options_are_refused_by_name(line: list[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["solver", *line]) == 2
    assert word in capsys.readouterr().err


def test_help_ends_every_option_in_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["solver", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert text.count("(default: ") >= 12
