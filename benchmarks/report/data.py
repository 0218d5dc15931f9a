# SPDX-License-Identifier: Apache-2.0
"""What the report reads: cells of the grid, live runs, calibration rows and timelines."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import grid
from benchmarks.compare import HIGHER_IS_BETTER, LOWER_IS_BETTER
from benchmarks.intervals import Interval, interval, relative_change
from tao_dynamo.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BASELINES = ("thunderagent", "dynamo-kv", "round-robin", "cache-aware", "longest-prefix")
"""What people deploy; TAO is set against the best of these, metric by metric."""

JUDGED = (
    *("latency_mean_s", "latency_p95_s", "ttft_mean_s", "decode_tokens_per_s"),
    *("wait_max_s", "makespan_s"),
)


@dataclass(frozen=True, slots=True)
class Change:
    """A policy against the best baseline of a metric: its relative change, seed by seed, positive where it is worse."""

    best: str
    worse: Interval

    @property
    def sure(self) -> bool:
        """Whether the 95 % interval leaves zero out."""
        return self.worse.half is not None and abs(self.worse.mean) > self.worse.half


class Cell:
    """One set-up, workload and concurrency: every policy's figures, one value a seed."""

    def __init__(self, setup: str, workload: str, concurrency: int) -> None:
        self.setup = setup
        self.workload = workload
        self.concurrency = concurrency
        self.policies: dict[str, dict[str, Any]] = {}

    def values(self, policy: str, metric: str) -> list[float]:
        """One value a seed; those that are not known are left out."""
        return [float(value) for value in self.policies.get(policy, {}).get(metric, ()) if value is not None]

    def mean(self, policy: str, metric: str) -> Interval | None:
        """Mean and interval over the seeds."""
        return interval(self.values(policy, metric))

    def best(self, metric: str, among: Sequence[str] = BASELINES) -> str | None:
        """The policy with the best mean."""
        means = {name: found.mean for name in among if (found := self.mean(name, metric))}
        if not means:
            return None
        choose = max if metric in HIGHER_IS_BETTER else min
        return choose(means, key=lambda name: means[name])

    def change(self, metric: str, policy: str = "tao", among: Sequence[str] = BASELINES) -> Change | None:
        """The policy against the best of the others; None where either is not there."""
        best = self.best(metric, among)
        if best is None or metric not in (*LOWER_IS_BETTER, *HIGHER_IS_BETTER):
            return None
        ours, theirs = self.values(policy, metric), self.values(best, metric)
        if not ours or len(ours) != len(theirs):
            return None
        found = relative_change(ours, theirs)
        if found is None:
            return None
        sign = -1 if metric in HIGHER_IS_BETTER else 1
        return Change(best, Interval(sign * found.mean, found.half, found.count))


class Data:
    """A folder of data files.

    Args:
        folder: holds ``grid-*.jsonl`` and, where they were made, ``host-*.jsonl``, ``live.jsonl``, ``vllm.jsonl``,
            ``calibration.jsonl``, ``timelines.jsonl``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def cells(self) -> list[Cell]:
        """Every cell of the grid without a host tier, in the files' order.

        Raises:
            TraceError: there is none.
        """
        cells = self._cells("grid-*.jsonl")
        if not cells:
            raise TraceError(str(self.folder), "no cell in grid-*.jsonl", "what tao-bench grid writes")
        return cells

    @cached_property
    def host_cells(self) -> dict[int, list[Cell]]:
        """Cells with a host tier, by its tokens."""
        sizes = {line["host_tokens"] for line in self._grid_lines("host-*.jsonl")}
        return {size: self._cells("host-*.jsonl", size) for size in sorted(sizes)}

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The lines of a file of JSON Lines; none where it is not there."""
        path = self.folder / name
        if not path.exists():
            return []
        try:
            return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
        except ValueError as error:
            raise TraceError(name, str(error), "JSON Lines") from error

    def live(self, name: str) -> dict[str, list[dict[str, Any]]]:
        """The runs of a file of ``tao-bench live`` by policy, in order of their repetitions."""
        runs: dict[str, list[dict[str, Any]]] = {}
        for run in self.lines(name):
            runs.setdefault(run["policy"], []).append(run)
        return runs

    def _grid_lines(self, pattern: str) -> Iterator[dict[str, Any]]:
        for path in sorted(self.folder.glob(pattern)):
            yield from grid.read(path)

    def _cells(self, pattern: str, host_tokens: int = 0) -> list[Cell]:
        found: dict[tuple[str, str, int], Cell] = {}
        for line in self._grid_lines(pattern):
            if line["host_tokens"] == host_tokens:
                key = (line["setup"], line["workload"], line["concurrency"])
                found.setdefault(key, Cell(*key)).policies[line["policy"]] = line
        return list(found.values())
