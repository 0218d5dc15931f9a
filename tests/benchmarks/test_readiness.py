# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import cli
from benchmarks.readiness_score import Baseline, floors, predictors, replay, score, taught_before
from benchmarks.recorded_calls import RecordedCall, load_calls
from tao_dynamo.errors import TraceError
from tool_hooks.estimators import CallFacts, Estimate
from tool_hooks.predictor import Predictor


class Oracle:
    """Says what it is told to, whatever the call: a list of totals, one per call, in order."""

    def __init__(self, *totals: float) -> None:
        self.totals = list(totals)

    def estimate(self, call: CallFacts, elapsed_s: float) -> Estimate:
        left = self.totals[0] - elapsed_s
        return Estimate(left, -left, "history")

    def learn(self, call: CallFacts, duration_s: float) -> None:
        self.totals.pop(0)


def calls(*durations: float, key: str = "k") -> list[RecordedCall]:
    return [RecordedCall(f"s{i % 3}", key, None, d) for i, d in enumerate(durations)]


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return path


def test_a_right_prediction_scores_full_marks() -> None:
    durations = (0.2, 1.5, 7.9, 0.0)
    figures = score(replay(calls(*durations), Predictor(estimator=Oracle(*durations))))
    assert figures["mae_s"] == figures["first_mae_s"] == figures["every_mae_s"] == 0.0
    assert figures["precision"] == figures["recall"] == figures["f1"] == figures["within_0.5s"] == 1.0
    # 1 + 2 + 8 + 1 moments, of which each call's last is an announcement
    assert figures["announcements"] == 4


def test_the_protocol_by_hand() -> None:
    # 3.5 s, foretold as 2 s. Moments at 0, 1, 2, 3 s. Ready at 1 and 2 (left: 1 and 0), both more than 1 s early;
    # at 3 s the call is 1 s overdue, so the first probe opens: a right announcement. It says 0 left, 0.5 are.
    (outcome,) = replay(calls(3.5), Predictor(estimator=Oracle(2.0)))
    assert outcome.moments == 4
    assert outcome.early == 2
    assert outcome.announced
    assert outcome.first_error_s == pytest.approx(1.5)
    assert outcome.final_error_s == pytest.approx(0.5)
    assert outcome.errors_sum_s == pytest.approx(1.5 + 1.5 + 1.5 + 0.5)
    figures = score([outcome])
    assert figures["precision"] == pytest.approx(1 / 3, abs=1e-4)
    assert figures["recall"] == figures["recall_longer_than_1s"] == 1.0


def test_with_shorter_ticks_an_announcement_within_the_horizon_is_right() -> None:
    # Foretold exactly; with ticks of 0.5 s there are two moments in the last second, and both are right.
    (outcome,) = replay(calls(3.0), Predictor(estimator=Oracle(3.0)), tick_s=0.5)
    assert (outcome.moments, outcome.early, outcome.announced) == (6, 0, True)


def test_long_calls_teach_but_are_not_scored() -> None:
    predictor = Predictor(estimator=Baseline(lambda w: w.last))
    outcomes = replay(calls(100.0, 2.0), predictor, max_s=30.0)
    assert [o.call.duration_s for o in outcomes] == [2.0]
    assert outcomes[0].first_error_s == pytest.approx(98.0)


@pytest.mark.parametrize("name", predictors())
def test_no_predictor_knows_the_future(name: str) -> None:
    past = [0.3, 4.0, 0.1, 12.0, 0.3, 5.0, 2.0, 2.0, 7.0]
    make = predictors()[name]
    one = replay(calls(*past, 9.0), make())
    other = replay(calls(*past, 0.01), make())
    assert one[:-1] == other[:-1]
    # What is said at the start of the last call is the same, too: one total explains both errors.
    (a, b) = (one[-1].first_error_s, other[-1].first_error_s)
    assert any(abs(total - 0.01) == pytest.approx(b) for total in (9.0 + a, 9.0 - a))


def test_ours_beats_the_papers_on_tools_of_two_speeds() -> None:
    two_speeds = calls(*[0.1, 0.1, 20.0] * 60)
    ours = score(replay(two_speeds, Predictor()))
    paper = score(replay(two_speeds, Predictor("paper")))
    assert (ours["f1"] or 0.0) > 0.95 > (paper["f1"] or 0.0)


def test_the_floor_is_the_best_constant_per_key() -> None:
    found = floors([*calls(1.0, 2.0, 9.0, key="a"), *calls(5.0, 40.0, key="b")])
    assert found["calls"] == 4
    assert found["per_key_mae_s"] == pytest.approx(2.0)
    assert found["per_key_groups"] == 2


def test_taught_before_peeks() -> None:
    some = [RecordedCall(f"s{i}", f"k{i}", None, 3.0 + i) for i in range(5)]
    assert (
        (score(taught_before(some))["first_mae_s"] or 0.0)
        < 1.0
        < (score(replay(some, Predictor()))["first_mae_s"] or 0.0)
    )


def test_calls_are_read_with_keys_and_rebuilt_sleeps(tmp_path: Path) -> None:
    write(
        tmp_path / "tool_durations.jsonl",
        {"session_id": "a", "name": "bash", "programs": ["cd", "pip install"], "sleep_s": None, "duration_s": 3},
        {
            "session_id": "a",
            "name": "bash",
            "programs": ["pkill", "sleep", "x"],
            "sleep_s": [2.0, 3.0],
            "duration_s": -0.1,
        },
        {"session_id": "b", "name": "read", "programs": None, "sleep_s": None, "duration_s": 0.5},
    )
    assert load_calls(tmp_path) == [
        RecordedCall("a", "pip install", "cd ; pip install", 3.0),
        RecordedCall("a", "x", "pkill ; sleep 2.0 ; x ; sleep 3.0", 0.0),
        RecordedCall("b", "read", None, 0.5),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "at least one recorded call"),
        ("{}\n", "calls.jsonl:1: duration_s"),
        ('{"duration_s": 1}\n{"duration_s": NaN}\n', "calls.jsonl:2: duration_s"),
        ('{"duration_s": true}\n', "calls.jsonl:1: duration_s"),
        ("[1]\n", "calls.jsonl:1"),
        ("nonsense\n", "calls.jsonl:1"),
    ],
)
def test_bad_calls_are_refused_by_line(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "calls.jsonl"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(TraceError, match=told):
        load_calls(file)


def recorded(folder: Path) -> Path:
    durations = [0.1, 0.2, 0.1, 6.0, 0.1, 31.0, 6.1, 0.1]
    write(
        folder / "tool_durations.jsonl",
        *(
            {"session_id": f"s{i // 2}", "name": "bash", "programs": ["make"], "duration_s": d}
            for i, d in enumerate(durations)
        ),
    )
    return folder


def test_the_command_writes_json_tables_and_a_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, plot = tmp_path / "out.json", tmp_path / "plot.png"
    assert cli.main(["readiness", "--traces", str(recorded(tmp_path)), "--json", str(out), "--plot", str(plot)]) == 0
    shown = capsys.readouterr().out
    assert "precision" in shown
    assert "held-out half" in shown
    figures = json.loads(out.read_text(encoding="utf-8"))
    assert {"default", "paper", "last_value", "mean", "median", "tokencake"} <= set(figures["predictors"])
    for each in figures["predictors"].values():
        assert {"mae_s", "within_0.5s", "precision", "recall"} <= set(each)
        assert each["calls"] == 7
    assert figures["calls"] == 8
    assert sum(group["calls"] for group in figures["lengths"]["paper"].values()) == 7
    assert sum(group["calls"] for group in figures["classes"]["paper"].values()) == 7
    assert sum(half["calls"] for half in figures["halves"]["paper"].values()) == 7
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_json_alone_goes_to_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["readiness", "--traces", str(recorded(tmp_path)), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["predictors"]["default"]["calls"] == 7


def test_bad_options_end_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["readiness", "--traces", str(tmp_path / "nowhere")]) == 2
    assert "--traces" in capsys.readouterr().err
    recorded(tmp_path)
    assert cli.main(["readiness", "--traces", str(tmp_path), "--plot", str(tmp_path / "no" / "a.png")]) == 2
    assert "--plot" in capsys.readouterr().err
