# SPDX-License-Identifier: Apache-2.0
"""What every run reports: one flat dictionary with the same keys from ``replay``, ``simulate`` and ``live``.

Times are in seconds unless the key says otherwise. A figure that a run cannot know is ``None``.

===========================  ==============================================================================
key                          meaning
===========================  ==============================================================================
sessions_done / _failed      sessions whose every turn was served; sessions that stopped at a failed turn
turns_done / _failed         turns
latency_{mean,p50,p95,p99}_s whole session: first request sent to last token, tools and thinking included
ttft_{mean,p50,p95,p99}_s    request sent to first token
turn_{mean,p50,p95,p99}_s    request sent to last token
decode_tokens_per_s          all output tokens / makespan: the throughput of the whole system
stream_tokens_per_s          output tokens after the first / time from first to last token: one stream
cache_hit_share              cached prompt tokens / prompt tokens
makespan_s                   first request sent to last token of all
pauses, restarts             sessions that gave up their room; sessions that were given room again
pause_wait_mean_s            mean time from losing room to being given room again
wait_mean_s, wait_max_s      time from a turn's arrival at the router to its way to a node
solves, solve_mean_ms        plans made, and their mean time
optimal_share                share of plans proven optimal
tool_events_{sent,received}  tool events published, and taken in by the router
===========================  ==============================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Figures: TypeAlias = dict[str, float | int | str | None]


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """What became of one turn. Times in seconds on one clock; ``error`` is None where it was served."""

    session_id: str
    index: int
    sent_s: float
    first_s: float
    ended_s: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """What became of one session. ``done`` says that all its turns were served."""

    session_id: str
    started_s: float
    ended_s: float
    done: bool


def figures(turns: Sequence[TurnRecord], sessions: Sequence[SessionRecord]) -> Figures:
    """The keys that follow from turns and sessions alone."""
    served = [t for t in turns if t.error is None]
    whole = [s for s in sessions if s.done]
    makespan = max((t.ended_s for t in turns), default=0.0) - min((t.sent_s for t in turns), default=0.0)
    output = sum(t.output_tokens for t in served)
    prompt = sum(t.prompt_tokens for t in served)
    known = [t for t in served if t.cached_tokens is not None]
    out: Figures = {
        "sessions_done": len(whole),
        "sessions_failed": len(sessions) - len(whole),
        "turns_done": len(served),
        "turns_failed": len(turns) - len(served),
        "prompt_tokens": prompt,
        "output_tokens": output,
        "makespan_s": makespan,
    }
    out |= spread("latency", [s.ended_s - s.started_s for s in whole])
    out |= spread("ttft", [t.first_s - t.sent_s for t in served])
    out |= spread("turn", [t.ended_s - t.sent_s for t in served])
    streaming = sum(t.ended_s - t.first_s for t in served)
    out["decode_tokens_per_s"] = _ratio(output, makespan)
    out["stream_tokens_per_s"] = _ratio(sum(t.output_tokens - 1 for t in served), streaming)
    out["cache_hit_share"] = _ratio(sum(t.cached_tokens or 0 for t in known), sum(t.prompt_tokens for t in known))
    return out


def spread(name: str, values: Sequence[float]) -> Figures:
    """``{name}_mean_s``, ``_p50_s``, ``_p95_s`` and ``_p99_s`` (nearest rank); None of an empty sequence."""
    ordered = sorted(values)
    out: Figures = {f"{name}_mean_s": sum(ordered) / len(ordered) if ordered else None}
    for part in (50, 95, 99):
        rank = max(0, math.ceil(len(ordered) * part / 100) - 1)
        out[f"{name}_p{part}_s"] = ordered[rank] if ordered else None
    return out


def rows(result: Mapping[str, float | int | str | None]) -> list[tuple[str, str]]:
    """Label and text of each figure, for a table."""
    return [(key, _text(value)) for key, value in result.items()]


def _text(value: float | str | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else value


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
