# SPDX-License-Identifier: Apache-2.0
"""Named workloads out of a folder of recorded sessions."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from benchmarks.traces import Arrival, Session, load, load_arrivals
from benchmarks.workload import Workload, choose
from tao_dynamo.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
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
    """Sessions, and single requests that arrive beside them.

    ``starts``: when each session begins, in seconds; empty for a closed loop.
    """

    load: Workload
    arrivals: tuple[Arrival, ...] = ()
    starts: tuple[float, ...] = ()


def mix(
    traces: Path,
    name: str,
    *,
    count: int,
    seed: int,
    max_turns: int | None,
    max_pause_s: float | None,
    max_prompt_tokens: int | None = None,
    arrivals: Path | None = None,
    rate: float | None = None,
    session_rate: float | None = None,
) -> Mix:
    """The sessions of a named workload.

    Args:
        arrivals: file of single requests beside the sessions (default: for ``mixed-chat`` the recorded chat).
        rate: how many of them come a second (default: as recorded).
        session_rate: sessions begin at this rate a second, with the gaps of the file, instead of in a closed loop.

    Raises:
        ConfigError: there is no such workload, or the folder lacks a file of it.
        TraceError: a file cannot be used.
    """
    chat = name == "mixed-chat"
    parts = [_loaded(traces)] if name == "all" else [_source(traces, s) for s in SOURCES["mixed" if chat else name]]
    drawn: list[Session] = []
    for i, part in enumerate(parts):
        some = (count + i) // len(parts)
        if some:
            drawn += choose(part, count=some, seed=seed, max_turns=max_turns, max_pause_s=max_pause_s).sessions
    random.Random(seed).shuffle(drawn)
    beside: Sequence[Arrival] = ()
    if rate and not (chat or arrivals):
        raise ConfigError("--rate", rate, "--workload mixed-chat or a file in --arrivals, whose requests it is about")
    if chat or (arrivals and not session_rate):
        beside = paced(load_arrivals(arrivals or _file(traces, CHAT)), rate)
    starts: tuple[float, ...] = ()
    if session_rate:
        rhythm = paced(load_arrivals(arrivals or _file(traces, CHAT)), session_rate)
        starts = tuple(arrival.t_s for arrival in itertools.islice(_laps(rhythm), len(drawn)))
    unique = [replace(s, session_id=f"{s.source}/{s.session_id}") for s in drawn]
    whole = choose(unique, count=len(unique), seed=seed, max_prompt_tokens=max_prompt_tokens)
    return Mix(whole, tuple(beside), starts)


def paced(arrivals: Sequence[Arrival], rate: float | None) -> list[Arrival]:
    """The arrivals at this mean rate a second, their gaps stretched evenly; as they are without one."""
    span = arrivals[-1].t_s - arrivals[0].t_s
    if rate is None or not span:
        return list(arrivals)
    factor = (len(arrivals) - 1) / (rate * span)
    return [replace(a, t_s=(a.t_s - arrivals[0].t_s) * factor) for a in arrivals]


def _laps(arrivals: Sequence[Arrival]) -> Iterator[Arrival]:
    """The arrivals over and over, each lap after the one before."""
    gap = (arrivals[-1].t_s - arrivals[0].t_s) / max(1, len(arrivals) - 1)
    for lap in itertools.count():
        late = lap * (arrivals[-1].t_s + gap)
        yield from (replace(a, t_s=a.t_s + late) for a in arrivals)


def _source(traces: Path, source: str) -> list[Session]:
    return _loaded(_file(traces, source))


@cache
def _loaded(path: Path) -> list[Session]:
    """A grid reads the same files hundreds of times."""
    return load(path)


def _file(traces: Path, source: str) -> Path:
    if traces.is_file():
        return traces
    file = traces / f"{source}.jsonl"
    if not file.is_file():
        raise ConfigError("--workload", source, f"a file {file.name} in the folder of --traces")
    return file
