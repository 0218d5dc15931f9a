# SPDX-License-Identifier: Apache-2.0
"""From single runs to the rows of the table: times, value against the best known, proofs, memory."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from solver.planning import triplet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.solver_instances import Size
    from benchmarks.solver_runs import Run


@dataclass(frozen=True, slots=True)
class Row:
    """One method on one size (and kind). Shares are of all snapshots, in 0 to 1.

    ``best`` is the share with the best value that any method found; ``credit`` its credit over the best
    known, summed; ``proven`` the share proven optimal, ``proven_ready`` that with credit and readiness
    proven; times are over the snapshots solved.
    """

    size: Size
    kind: str
    method: str
    snapshots: int
    solved: int
    median_ms: float
    p95_ms: float
    max_ms: float
    best: float
    credit: float
    proven: float
    proven_ready: float
    peak_mb: float
    above_mb: float


def best_known(runs: Iterable[Run]) -> dict[tuple[Size, str, int], tuple[int, int, int]]:
    """The lexicographically greatest value that any method found, per snapshot."""
    best: dict[tuple[Size, str, int], tuple[int, int, int]] = {}
    for run in runs:
        if run.answer.value is not None:
            key = (run.size, run.kind, run.seed)
            best[key] = max(best.get(key, (0, 0, 0)), triplet(run.answer.value))
    return best


def contradictions(runs: Sequence[Run]) -> list[str]:
    """Proofs that another method's better value disproves: there must be none."""
    best = best_known(runs)
    found = []
    for run in runs:
        known = best.get((run.size, run.kind, run.seed))
        if run.answer.value is None or known is None:
            continue
        mine = triplet(run.answer.value)
        upto = run.answer.proven
        if mine[:upto] < known[:upto]:
            where = f"{run.method} on {run.size} {run.kind} #{run.seed}"
            found.append(f"{where}: {mine} called optimal in {upto} components, {known} known")
    return found


def summarise(runs: Sequence[Run], *, by_kind: bool) -> list[Row]:
    """Rows by size, then (with ``by_kind``) by kind, then by method in the order of the runs."""
    best = best_known(runs)
    groups: dict[tuple[Size, str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.size, run.kind if by_kind else "all", run.method), []).append(run)
    kinds = list(dict.fromkeys(kind for _, kind, _ in groups))
    ordered = sorted(groups, key=lambda key: (key[0], kinds.index(key[1])))
    return [_row(key, groups[key], best) for key in ordered]


def _row(key: tuple[Size, str, str], runs: list[Run], best: dict[tuple[Size, str, int], tuple[int, int, int]]) -> Row:
    solved = [run for run in runs if run.answer.value is not None]
    times = sorted(run.answer.seconds * 1e3 for run in solved)
    pairs = [
        (triplet(run.answer.value), best[run.size, run.kind, run.seed])
        for run in solved
        if run.answer.value is not None
    ]
    known = sum(each[0] for _, each in pairs)
    count = len(runs)
    return Row(
        *key,
        snapshots=count,
        solved=len(solved),
        median_ms=statistics.median(times) if times else 0.0,
        p95_ms=percentile(times, 0.95),
        max_ms=times[-1] if times else 0.0,
        best=sum(mine == theirs for mine, theirs in pairs) / count,
        credit=sum(mine[0] for mine, _ in pairs) / known if known else 1.0,
        proven=sum(run.answer.proven == 3 for run in solved) / count,
        proven_ready=sum(run.answer.proven >= 2 for run in solved) / count,
        peak_mb=max((run.peak_mb for run in runs), default=0.0),
        above_mb=max((run.above_mb for run in runs), default=0.0),
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest element that at least ``share`` of them do not exceed; 0 of none."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]
