# SPDX-License-Identifier: Apache-2.0
"""Named workloads out of a folder of recorded sessions."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarks.traces import Arrival, Session, load, load_arrivals
from benchmarks.workload import Workload, choose
from tao_dynamo.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SOURCES: dict[str, tuple[str, ...]] = {
    "swe": ("mini_swe_agent_gemini3",),
    "terminal": ("tb_mini_swe_agent",),
    "claude-code": ("kv_cache_tester_claude_code",),
    "api": ("tau_bench_airline_gpt4o",),
    "mixed": ("mini_swe_agent_gemini3", "tb_mini_swe_agent", "kv_cache_tester_claude_code", "tau_bench_airline_gpt4o"),
}
"""Workload: the files (without .jsonl) it draws from in equal parts. ``all`` draws from whatever there is."""

CHAT = "arrivals_mooncake_conversation"
NAMES = ("all", *SOURCES, "mixed-chat")


@dataclass(frozen=True, slots=True)
class Mix:
    """Sessions that run in a closed loop, and single requests that arrive beside them."""

    load: Workload
    arrivals: tuple[Arrival, ...] = ()


def mix(
    traces: Path,
    name: str,
    *,
    count: int,
    seed: int,
    max_turns: int | None,
    max_pause_s: float | None,
    max_prompt_tokens: int | None = None,
) -> Mix:
    """The sessions of a named workload.

    Raises:
        ConfigError: there is no such workload, or the folder lacks a file of it.
        TraceError: a file cannot be used.
    """
    chat = name == "mixed-chat"
    parts = [load(traces)] if name == "all" else [_source(traces, s) for s in SOURCES["mixed" if chat else name]]
    drawn: list[Session] = []
    for i, part in enumerate(parts):
        some = (count + i) // len(parts)
        if some:
            drawn += choose(part, count=some, seed=seed, max_turns=max_turns, max_pause_s=max_pause_s).sessions
    random.Random(seed).shuffle(drawn)
    arrivals: Sequence[Arrival] = ()
    if chat:
        arrivals = load_arrivals(_file(traces, CHAT))
    unique = [replace(s, session_id=f"{s.source}/{s.session_id}") for s in drawn]
    whole = choose(unique, count=len(unique), seed=seed, max_prompt_tokens=max_prompt_tokens)
    return Mix(whole, tuple(arrivals))


def _source(traces: Path, source: str) -> list[Session]:
    return load(_file(traces, source))


def _file(traces: Path, source: str) -> Path:
    if traces.is_file():
        return traces
    file = traces / f"{source}.jsonl"
    if not file.is_file():
        raise ConfigError("--workload", source, f"a file {file.name} in the folder of --traces")
    return file
