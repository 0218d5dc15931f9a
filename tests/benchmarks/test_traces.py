# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.traces import CHARS_PER_TOKEN, EXTRACT, load, load_arrivals
from tao_dynamo.errors import TraceError

if TYPE_CHECKING:
    from pathlib import Path


def write(folder: Path, *records: Any, name: str = "some.jsonl") -> Path:
    file = folder / name
    file.write_text("".join(json.dumps(r) + "\n" for r in records))
    return file


def session(*turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"session_id": "s", "agent": "a", "turns": list(turns)} | more


def test_the_extract_that_comes_along_is_whole() -> None:
    sessions = load(EXTRACT)
    assert len(sessions) == 48
    assert len({s.session_id for s in sessions}) == 48
    assert {s.shared_tokens for s in sessions} == {1020}
    for s in sessions:
        context = 0
        for turn in s.turns:
            assert s.shared_tokens < turn.prompt_tokens
            assert 0 <= turn.kept_tokens <= min(turn.prompt_tokens, context)
            assert turn.tool is None or (turn.tool.command is None and turn.tool.duration_s >= 0)
            context = turn.prompt_tokens + turn.output_tokens


def test_a_prompt_that_covers_the_context_keeps_all_of_it(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        session(
            {"input_tokens": 1000, "output_tokens": 50},
            {"input_tokens": 1200, "output_tokens": 300},
            {"input_tokens": 1300, "output_tokens": 10},
            {"input_tokens": 900, "output_tokens": 10},
            {"input_tokens": 2000, "output_tokens": 10, "prefix_tokens": 256},
            system_tokens=300,
        ),
    )
    kept = [t.kept_tokens for t in load(file)[0].turns]
    # Grown; answer dropped; rewritten without and with a recorded prefix (never less than the shared prompt).
    assert kept == [0, 1050, 1200, 300, 300]


def test_characters_become_tokens(tmp_path: Path) -> None:
    turn = load(write(tmp_path, session({"input_chars": 3600, "output_chars": 0})))[0].turns[0]
    assert (turn.prompt_tokens, turn.output_tokens) == (3600 / CHARS_PER_TOKEN, 1)


def test_tool_times_follow_the_rules(tmp_path: Path) -> None:
    def turn(**tool: Any) -> dict[str, Any]:
        return {"input_tokens": 10, "output_tokens": 1, "period_s": 4, "tool": tool}

    turns = load(
        write(
            tmp_path,
            session(
                turn(name="bash", duration_s=9.5),
                turn(name="bash", duration_s=None, shell_sleep_s=2),
                turn(name="bash", programs=["pip install"]),
                turn(name="find_booking"),
                turn(name=None),
                turn(name="bash", duration_s=-2.4, programs=["ls"]),
            ),
        )
    )[0].turns
    tools = [t.tool for t in turns]
    assert [t.recorded for t in tools if t] == [True, False, False, False, False, False]
    seconds = [t.duration_s for t in tools if t]
    assert seconds[:2] == [9.5, 2.0]
    assert 0 <= seconds[2] <= 4  # a draw never exceeds the turn's period
    assert 0.05 <= seconds[3] <= 1
    assert seconds[4] == 4.0  # the session's median call, 9.5 s, cut to the period
    assert seconds[5] >= 0


def test_think_times(tmp_path: Path) -> None:
    one = {"input_tokens": 10, "output_tokens": 100}
    turns = load(
        write(
            tmp_path,
            session(
                one | {"waits_for": "user"},
                one,
                one | {"think_time_s": 7},
                one | {"think_time_s": -1},
                one | {"arrival_gap_s": 5},
                one | {"tool": {"name": "x", "duration_s": 1}},
                one | {"arrival_gap_s": 5},
            ),
        )
    )[0].turns
    assert [t.think_s for t in turns] == [0, 3, 7, 0, 3, 0, 0]


def test_a_folder_reads_sessions_only(tmp_path: Path) -> None:
    write(tmp_path, session({"input_tokens": 10, "output_tokens": 1}), name="b.jsonl")
    write(tmp_path, {"source": "x", "format": []}, [0, 1, 1], name="arrivals_x.jsonl")
    write(tmp_path, {"session_id": "s", "name": "bash", "duration_s": 1.0}, name="tool_durations.jsonl")
    assert [s.source for s in load(tmp_path)] == ["b"]
    assert [a.prompt_tokens for a in load_arrivals(tmp_path / "arrivals_x.jsonl")] == [1]


@pytest.mark.parametrize(
    ("record", "where"),
    [
        (session({"input_tokens": "12", "output_tokens": 1}), "some.jsonl:2: turns[0].input_tokens: got '12'"),
        (session({"output_tokens": 1}), "some.jsonl:2: turns[0].input_tokens: got None"),
        (session({"input_tokens": 1, "output_tokens": -1}), "turns[0].output_tokens: got -1"),
        (session({"input_tokens": 1, "output_tokens": 1, "tool": "ls"}), "turns[0].tool: got 'ls'"),
        (
            session({"input_tokens": 1, "output_tokens": 1, "tool": {"duration_s": "1"}}),
            "turns[0].tool.duration_s: got '1'",
        ),
        (session(), "some.jsonl:2: turns: got []"),
        ({"turns": [{}]}, "some.jsonl:2: session_id: got None"),
        ({"session_id": "s"}, "some.jsonl:2: turns: got None"),
        ([1], "some.jsonl:2: got '[1]\\n'"),
    ],
)
def test_bad_records_are_named_by_file_line_and_field(tmp_path: Path, record: Any, where: str) -> None:
    file = write(tmp_path, session({"input_tokens": 10, "output_tokens": 1}), record)
    with pytest.raises(TraceError) as caught:
        load(file)
    assert where in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "\xff"])
def test_bad_files(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(TraceError, match=r"x\.jsonl"):
        load(file)


def test_no_file_and_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="a file or folder that exists"):
        load(tmp_path / "none")
    with pytest.raises(TraceError, match=r"no \*\.jsonl file"):
        load(tmp_path)
