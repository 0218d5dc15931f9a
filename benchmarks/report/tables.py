# SPDX-License-Identifier: Apache-2.0
"""The report's tables, as Markdown."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from benchmarks.calibrate import errors
from benchmarks.intervals import Interval, interval
from benchmarks.metrics import Figures
from benchmarks.report.data import BASELINES, JUDGED, Cell, Change, Data
from benchmarks.report.pages import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

WORSE = 0.02
"""From this relative change on a cell counts as a loss."""

NAMES = {
    "latency_mean_s": "latency",
    "latency_p95_s": "latency p95",
    "ttft_mean_s": "TTFT",
    "ttft_p95_s": "TTFT p95",
    "turn_mean_s": "turn",
    "turn_p95_s": "turn p95",
    "decode_tokens_per_s": "decode",
    "wait_max_s": "longest wait",
    "makespan_s": "makespan",
    "cache_hit_share": "cache hits",
    "pause_wait_mean_s": "pause wait",
    "optimal_share": "plans proven optimal",
}


def changes(data: Data, setup: str) -> str:
    """TAO against the best baseline of each metric, a row a cell; negative is better for TAO."""
    rows: list[list[str]] = []
    for cell in data.cells:
        if cell.setup == setup and "tao" in cell.policies:
            shown = [change_text(cell.change(metric)) for metric in JUDGED]
            rows.append([f"{cell.workload} {cell.concurrency}", *shown])
    return table(["workload, at once", *(NAMES[metric] for metric in JUDGED)], rows)


def summary(data: Data) -> str:
    """How often TAO is better, alike and worse, metric by metric."""
    rows: list[list[str]] = []
    for metric in JUDGED:
        found = [change for cell in data.cells if (change := cell.change(metric)) is not None]
        if not found:
            continue
        better = sum(change.worse.mean < -WORSE for change in found)
        worse = sum(change.worse.mean > WORSE for change in found)
        sure = sum(change.worse.mean > WORSE and change.sure for change in found)
        middle = sorted(change.worse.mean for change in found)[len(found) // 2]
        alike = len(found) - better - worse
        rows.append([NAMES[metric], str(better), str(alike), f"{worse} ({sure})", percent(middle)])
    head = ["metric", "TAO better by > 2 %", "within 2 %", "worse by > 2 % (beyond the interval)", "median change"]
    return table(head, rows)


def by_concurrency(data: Data) -> str:
    """Median change against the best baseline at each concurrency, over set-ups and workloads."""
    levels = sorted({cell.concurrency for cell in data.cells if "tao" in cell.policies})
    rows: list[list[str]] = []
    for level in levels:
        cells = [cell for cell in data.cells if cell.concurrency == level and "tao" in cell.policies]
        shown = []
        for metric in JUDGED:
            found = sorted(change.worse.mean for cell in cells if (change := cell.change(metric)) is not None)
            low, middle, high = (percent(found[i]) if found else "-" for i in (0, len(found) // 2, -1))
            shown.append(f"{middle} ({low} to {high})")
        rows.append([str(level), *shown])
    return table(["at once", *(NAMES[metric] for metric in JUDGED)], rows)


def losses(data: Data) -> str:
    """Every cell and metric where TAO is worse than the best baseline by more than 2 %, worst first by metric."""
    rows: list[tuple[tuple[int, float], list[str]]] = []
    for cell in data.cells:
        for metric in JUDGED:
            change = cell.change(metric)
            if change is None or change.worse.mean <= WORSE:
                continue
            ours, theirs = cell.mean("tao", metric), cell.mean(change.best, metric)
            where = f"{cell.setup} {cell.workload} {cell.concurrency}"
            figures = (number(ours), number(theirs), change_text(change, best=False), "yes" if change.sure else "no")
            rows.append(((JUDGED.index(metric), -change.worse.mean), [NAMES[metric], where, change.best, *figures]))
    rows.sort(key=lambda row: row[0])
    head = ["metric", "cell", "best baseline", "TAO", "baseline", "change", "beyond the interval"]
    return table(head, [text for _, text in rows]) if rows else "None."


def ablations(data: Data, metrics: Sequence[str] = JUDGED) -> str:
    """What each part is worth: each ablation against whole TAO, over the cells that have both."""
    names = list(dict.fromkeys(name for cell in data.cells for name in cell.policies if name.startswith("tao-")))
    rows: list[list[str]] = []
    for name in names:
        cells = [cell for cell in data.cells if name in cell.policies and "tao" in cell.policies]
        shown = [_over_cells(cells, name, metric) for metric in metrics]
        rows.append([name.removeprefix("tao-"), str(len(cells)), *shown])
    return table(["without, or instead", "cells", *(NAMES[metric] for metric in metrics)], rows)


def side_by_side(runs: dict[str, list[Figures]], metrics: Sequence[str]) -> str:
    """Live runs: a row a metric, a column a policy, TAO against the best of the others."""
    cell = Cell("live", "", 0)
    cell.policies = {name: {key: [run.get(key) for run in some] for key in some[0]} for name, some in runs.items()}
    others = [name for name in runs if name != "tao"]
    rows = []
    for metric in metrics:
        shown = [number(cell.mean(name, metric)) for name in runs]
        rows.append([NAMES.get(metric, metric), *shown, change_text(cell.change(metric, among=others))])
    return table(["", *runs, "TAO against the best other"], rows)


def calibration(data: Data, name: str) -> str:
    """The simulator's error of each metric, policy by policy."""
    lines = data.lines(name)
    policies = list(dict.fromkeys(line["policy"] for line in lines))
    metrics = list(dict.fromkeys(line["metric"] for line in lines))
    found = {(line["policy"], line["metric"]): errors(line["theirs"], line["ours"]) for line in lines}
    rows = [[NAMES.get(m, m), *(_error(found.get((p, m))) for p in policies)] for m in metrics]
    return table(["error of the simulator", *policies], rows)


def host_tiers(data: Data, metrics: Sequence[str] = JUDGED) -> str:
    """TAO's two ways of dealing with a host tier, and the best baseline, at each size of the tier."""
    rows: list[list[str]] = []
    for size, cells in data.host_cells.items():
        for cell in cells:
            others = [name for name in cell.policies if name != "tao"]
            for name in others:
                shown = [change_text(cell.change(metric, among=[name]), best=False) for metric in metrics]
                rows.append([f"{cell.setup} {cell.workload} {cell.concurrency}", f"{size:,}", name, *shown])
    head = ["cell", "host tokens a node", "TAO against", *(NAMES[metric] for metric in metrics)]
    return table(head, rows) if rows else "No run with a host tier."


def solving(data: Data) -> str:
    """How many plans, how many proven optimal, and what share of a run's time solving takes (processor time)."""
    rows: list[list[str]] = []
    for line in data.lines("snapshots.jsonl"):
        if line["solve_cpu_ms"] is None:
            continue
        share = line["snapshots"] * line["solve_cpu_ms"] / 1000 / line["makespan_s"]
        figures = [f"{line['snapshots']:,}", f"{line['solve_cpu_ms']:.2f}", f"{100 * line['optimal_share']:.1f} %"]
        rows.append([_where(line), *figures, f"{100 * share:.4f} %"])
    return table(["cell", "plans", "ms a plan", "proven optimal", "of the run's time"], rows)


def snapshots(data: Data) -> str:
    """How often a greedy plan was worth less than the exact one, among snapshots with several candidates."""
    lines = data.lines("snapshots.jsonl")
    rows = []
    for line in lines:
        shares = [f"{n:,} ({100 * n / max(1, line['several']):.0f} %)" for n in line["worse"].values()]
        rows.append([_where(line), f"{line['snapshots']:,}", f"{line['several']:,}", *shares])
    rivals = list(lines[0]["worse"]) if lines else []
    return table(["cell", "snapshots", "several candidates", *(f"{name} worse" for name in rivals)], rows)


def best_counts(data: Data) -> str:
    """Which baseline is the best one, how often, metric by metric."""
    rows = []
    for metric in JUDGED:
        counts = Counter(cell.best(metric) for cell in data.cells)
        rows.append([NAMES[metric], *(str(counts.get(name, 0)) for name in BASELINES)])
    return table(["best baseline on", *BASELINES], rows)


def change_text(change: Change | None, *, best: bool = True) -> str:
    """Such as ``-12.3 ± 2.0 % (thunderagent)``; decode is turned round, so that minus is always better."""
    if change is None:
        return "-"
    half = "" if change.worse.half is None else f" ± {100 * change.worse.half:.1f}"
    return f"{100 * change.worse.mean:+.1f}{half} %" + (f" ({change.best})" if best else "")


def number(found: Interval | None) -> str:
    """A mean with its interval."""
    if found is None:
        return "-"
    digits = 3 if abs(found.mean) < 10 else 1 if abs(found.mean) < 1000 else 0
    half = "" if found.half is None else f" ± {found.half:,.{digits}f}"
    return f"{found.mean:,.{digits}f}{half}"


def percent(value: float) -> str:
    """Such as ``+3.1 %``."""
    return f"{100 * value:+.1f} %"


def _where(line: Mapping[str, Any]) -> str:
    return f"{line['setup']} {line['workload']} {line['concurrency']}"


def _over_cells(cells: Iterable[Cell], name: str, metric: str) -> str:
    """Mean and interval, over cells, of the relative change that the ablation makes; positive is worse."""
    found = [change.worse.mean for cell in cells if (change := cell.change(metric, name, ["tao"])) is not None]
    return change_text(Change("", mean), best=False) if (mean := interval(found)) else "-"


def _error(found: Interval | None) -> str:
    if found is None:
        return "-"
    half = "" if found.half is None else f" ± {found.half:.1f}"
    return f"{found.mean:+.1f}{half} %"
