# SPDX-License-Identifier: Apache-2.0
"""Recorded agent sessions, read from JSON Lines into frozen values.

One session a line, as ``benchmarks/README.md`` describes. Three rules fill what a source did not record:

* **Characters** become tokens at :data:`CHARS_PER_TOKEN` (sources that record both lie between 3.4 and 4.3).
* **Tool times**: see :mod:`benchmarks.tool_times`. Every call says whether its time was measured.
* **Think times** before a turn that no tool led to: the recorded pause; else the gap between arrivals less
  :data:`SECONDS_PER_OUTPUT_TOKEN` for each token of the answer before; else, where the harness waited for a
  simulated user, :data:`SIMULATED_USER_S`; else 0.

**Histories.** ``kept_tokens`` of a turn is how much of the context before it (prompt and answer) its prompt
begins with. A prompt at least as long as that context keeps all of it; a shorter one that still covers the
prompt before has dropped the answer (reasoning that is not sent back); a still shorter one was rewritten, and
keeps what the source recorded as ``prefix_tokens``, or only the harness's shared system prompt.

**Shared prompts.** The system prompt that all sessions of one harness begin with has the recorded length
(``system_tokens + tool_tokens``), or else :data:`SHARED_PART` of the harness's shortest first prompt. Prompts of
one harness that differ in length are different prompts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.tool_times import ToolTimes
from tao_dynamo.errors import TraceError

CHARS_PER_TOKEN = 3.6
SECONDS_PER_OUTPUT_TOKEN = 0.02
SIMULATED_USER_S = 3.0
SHARED_PART = 0.75

EXTRACT = Path(__file__).parent / "data" / "mini_swe_agent_gemini3_extract.jsonl"
"""48 SWE-bench sessions that come with the package."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The longest call after a turn. ``recorded`` is False where a rule supplied ``duration_s`` (seconds)."""

    name: str
    programs: tuple[str, ...]
    command: str | None
    duration_s: float
    recorded: bool


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """One model request. Sizes in tokens; ``prompt_tokens`` is the whole prompt, history included.

    ``kept_tokens``: how much of the context before (prompt + answer) this prompt begins with.
    ``think_s``: pause before this turn that no tool accounts for.
    """

    prompt_tokens: int
    output_tokens: int
    kept_tokens: int
    think_s: float
    tool: ToolCall | None


@dataclass(frozen=True, slots=True)
class Session:
    """One agent run. Sessions of equal ``agent`` and ``shared_tokens`` begin with the same prompt."""

    session_id: str
    source: str
    agent: str
    turns: tuple[RecordedTurn, ...]
    shared_tokens: int
    parent_session_id: str | None = None

    @property
    def longest_prompt(self) -> int:
        """Tokens of its longest prompt."""
        return max(turn.prompt_tokens for turn in self.turns)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request without a session, such as a chat message: seconds since the start, and tokens."""

    t_s: float
    prompt_tokens: int
    output_tokens: int


_Before: TypeAlias = tuple[RecordedTurn, Mapping[str, Any]] | None
"""The turn before, as read and as recorded."""


def load(path: Path | str) -> list[Session]:
    """Read every session of a file, or of all ``*.jsonl`` files of a folder, in the order of their names.

    Files of single arrivals and of tool durations in the folder are passed over.

    Raises:
        TraceError: by file, line and field; or when there is no session at all.
    """
    sessions: list[Session] = []
    for file, record, where in _records(Path(path)):
        if "turns" not in record:
            if "format" in record or "t_s" in record or "duration_s" in record:
                continue
            raise TraceError(f"{where}: turns", None, "a list of turns")
        sessions.append(_session(record, where, file.stem))
    if not sessions:
        raise TraceError(str(path), 0, "at least one recorded session")
    return _share_prompts(sessions)


def load_arrivals(path: Path | str) -> list[Arrival]:
    """Read a file of single requests (``[t_s, input_tokens, output_tokens]`` after a first line of metadata).

    Raises:
        TraceError: by file and line.
    """
    file = Path(path)
    arrivals: list[Arrival] = []
    for line, text in enumerate(_lines(file), 1):
        if line == 1:
            continue
        row = _json(text, f"{file.name}:{line}")
        if not (isinstance(row, list) and len(row) == 3 and all(isinstance(x, int | float) for x in row)):
            raise TraceError(f"{file.name}:{line}", text[:60], "[t_s, input_tokens, output_tokens]")
        arrivals.append(Arrival(float(row[0]), max(1, int(row[1])), max(1, int(row[2]))))
    if not arrivals:
        raise TraceError(str(path), 0, "at least one arrival")
    return arrivals


def _records(path: Path) -> Iterator[tuple[Path, Mapping[str, Any], str]]:
    if path.is_dir():
        files = sorted(path.glob("*.jsonl"))
        if not files:
            raise TraceError(str(path), "no *.jsonl file", "a folder of recorded sessions")
    elif path.is_file():
        files = [path]
    else:
        raise TraceError(str(path), "nothing", "a file or folder that exists")
    for file in files:
        if file.name.startswith("arrivals_") and path.is_dir():
            continue
        for line, text in enumerate(_lines(file), 1):
            if not text.strip():
                continue
            where = f"{file.name}:{line}"
            record = _json(text, where)
            if not isinstance(record, dict):
                raise TraceError(where, text[:60], "a JSON object")
            yield file, record, where


def _lines(file: Path) -> Iterator[str]:
    try:
        with file.open(encoding="utf-8") as stream:
            yield from stream
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(str(file), str(error), "a readable UTF-8 file") from error


def _json(text: str, where: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise TraceError(where, text[:60].rstrip(), f"JSON ({error.msg} at column {error.colno})") from error


def _session(record: Mapping[str, Any], where: str, source: str) -> Session:
    name = record.get("session_id")
    if not isinstance(name, str) or not name:
        raise TraceError(f"{where}: session_id", name, "a non-empty string")
    raw = record["turns"]
    if not isinstance(raw, list) or not raw:
        raise TraceError(f"{where}: turns", raw, "a non-empty list")
    system = _number(record, "system_tokens", where) or 0.0
    shared = int(system + (_number(record, "tool_tokens", where) or 0.0))
    times = ToolTimes(name, [t.get("tool") for t in raw if isinstance(t, dict)])
    turns: list[RecordedTurn] = []
    for i, turn in enumerate(raw):
        at = f"{where}: turns[{i}]"
        if not isinstance(turn, dict):
            raise TraceError(at, turn, "an object")
        before = (turns[-1], raw[i - 1]) if turns else None
        turns.append(_turn(turn, at, before, shared, times))
    parent = record.get("parent_session_id")
    agent = record.get("agent")
    return Session(
        session_id=name,
        source=source,
        agent=agent if isinstance(agent, str) and agent else source,
        turns=tuple(turns),
        shared_tokens=shared,
        parent_session_id=parent if isinstance(parent, str) else None,
    )


def _turn(
    turn: Mapping[str, Any],
    where: str,
    before: _Before,
    shared: int,
    times: ToolTimes,
) -> RecordedTurn:
    prompt = _tokens(turn, "input", where)
    output = _tokens(turn, "output", where)
    kept = 0
    if before is not None:
        kept = _kept(prompt, before[0], _number(turn, "prefix_tokens", where), shared)
    return RecordedTurn(
        prompt_tokens=prompt,
        output_tokens=output,
        kept_tokens=kept,
        think_s=_think(turn, where, before),
        tool=_tool(turn, where, times),
    )


def _kept(prompt: int, before: RecordedTurn, recorded: float | None, shared: int) -> int:
    context = before.prompt_tokens + before.output_tokens
    # Sources record the common prefix in whole blocks of up to 512 tokens.
    rewritten = recorded is not None and recorded < min(prompt, before.prompt_tokens) - 512
    if rewritten:
        return int(recorded or 0)
    if prompt >= context:
        return context
    if prompt > before.prompt_tokens:
        return before.prompt_tokens
    return min(prompt - 1, int(recorded) if recorded is not None else shared)


def _think(turn: Mapping[str, Any], where: str, before: tuple[RecordedTurn, Mapping[str, Any]] | None) -> float:
    recorded = _number(turn, "think_time_s", where, low=None)
    if recorded is not None:
        return max(0.0, recorded)
    if before is None or before[0].tool is not None:
        return 0.0
    gap = _number(turn, "arrival_gap_s", where)
    if gap is not None:
        return max(0.0, gap - SECONDS_PER_OUTPUT_TOKEN * before[0].output_tokens)
    return SIMULATED_USER_S if before[1].get("waits_for") == "user" else 0.0


def _tool(turn: Mapping[str, Any], where: str, times: ToolTimes) -> ToolCall | None:
    tool = turn.get("tool")
    if tool is None:
        return None
    if not isinstance(tool, dict):
        raise TraceError(f"{where}.tool", tool, "an object or null")
    _number(tool, "duration_s", f"{where}.tool", low=None)
    programs = tool.get("programs") or []
    if not isinstance(programs, list) or not all(isinstance(p, str) for p in programs):
        raise TraceError(f"{where}.tool.programs", programs, "a list of names")
    seconds, recorded = times.duration(tool, _number(turn, "period_s", where))
    command = tool.get("command")
    return ToolCall(
        name=str(tool.get("name") or "tool"),
        programs=tuple(programs),
        command=command if isinstance(command, str) else None,
        duration_s=seconds,
        recorded=recorded,
    )


def _tokens(turn: Mapping[str, Any], side: str, where: str) -> int:
    tokens = _number(turn, f"{side}_tokens", where)
    if tokens is not None:
        return max(1, int(tokens))
    chars = _number(turn, f"{side}_chars", where)
    if chars is None:
        raise TraceError(f"{where}.{side}_tokens", None, f"a number, or {side}_chars")
    return max(1, math.ceil(chars / CHARS_PER_TOKEN))


def _number(record: Mapping[str, Any], field: str, where: str, *, low: float | None = 0.0) -> float | None:
    value = record.get(field)
    if value is None:
        return None
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not good or (low is not None and value < low):
        field = f".{field}" if "turns[" in where else f": {field}"
        raise TraceError(where + field, value, "a number" if low is None else f"a number of at least {low:g}")
    return float(value)


def _share_prompts(sessions: list[Session]) -> list[Session]:
    shortest: dict[str, int] = {}
    for session in sessions:
        first = session.turns[0].prompt_tokens
        shortest[session.agent] = min(first, shortest.get(session.agent, first))
    done: list[Session] = []
    for session in sessions:
        guess = session.shared_tokens or int(SHARED_PART * shortest[session.agent])
        shared = min(guess, min(turn.prompt_tokens for turn in session.turns) - 1)
        turns = tuple(
            replace(t, kept_tokens=max(t.kept_tokens, min(shared, t.prompt_tokens - 1))) if i else t
            for i, t in enumerate(session.turns)
        )
        done.append(replace(session, shared_tokens=max(0, shared), turns=turns))
    return done
