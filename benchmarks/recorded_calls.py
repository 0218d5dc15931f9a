# SPDX-License-Identifier: Apache-2.0
"""Recorded tool calls with measured durations, one a line: ``tool_durations.jsonl``."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tao_dynamo.errors import TraceError
from tool_hooks.tool_key import key_for

FILE_NAME = "tool_durations.jsonl"


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One tool call.

    Attributes:
        key: its tool key, as the router would make it.
        command: the line rebuilt from the names of its programs and its sleeps, None for what is no shell command.
        duration_s: measured, seconds, >= 0 (clocks that stepped back gave a few values below 0; they count as 0).
    """

    session_id: str
    key: str
    command: str | None
    duration_s: float


def load_calls(path: Path) -> list[RecordedCall]:
    """Reads a file of calls, or ``tool_durations.jsonl`` of a folder, in file order.

    Raises:
        TraceError: the file cannot be read, holds no call, or a line has no usable duration; names the line.
    """
    file = path / FILE_NAME if path.is_dir() else path
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"--traces {file}", str(error), f"a readable {FILE_NAME}") from error
    calls = [_call(line, f"{file}:{n}") for n, line in enumerate(lines, 1) if line.strip()]
    if not calls:
        raise TraceError(str(file), 0, "at least one recorded call")
    return calls


def _call(line: str, where: str) -> RecordedCall:
    try:
        record = json.loads(line)
    except ValueError:
        raise TraceError(where, line[:60], "a JSON object") from None
    if not isinstance(record, dict):
        raise TraceError(where, line[:60], "a JSON object")
    duration = record.get("duration_s")
    if isinstance(duration, bool) or not isinstance(duration, (int, float)) or not math.isfinite(duration):
        raise TraceError(f"{where}: duration_s", duration, "a finite number of seconds")
    command = _command(record)
    key = key_for(None, command, str(record.get("name") or "tool"))
    return RecordedCall(str(record.get("session_id", "")), key, command, max(0.0, float(duration)))


def _command(record: dict[str, Any]) -> str | None:
    """Commands were not kept, so a line is put together again: its programs in order, sleeps with their seconds.

    How the programs were joined is not known; ``;`` is assumed, so no sleep counts as a mere upper bound.
    """
    programs = record.get("programs") or []
    if not programs:
        return None
    slept = record.get("sleep_s") or []
    sleeps = list(slept) if isinstance(slept, list) else [slept]
    parts = [f"sleep {sleeps.pop(0)}" if p == "sleep" and sleeps else str(p) for p in programs]
    return " ; ".join(parts + [f"sleep {s}" for s in sleeps])
