# SPDX-License-Identifier: Apache-2.0
"""``tao-bench compare``: several policies on the same sessions and seeds, side by side, in virtual time.

The table shows means with 95 % intervals over the seeds, and how the first policy differs from the best of the
others on each metric, seed by seed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks import options, simulate
from benchmarks.intervals import Interval, interval, relative_change
from benchmarks.policies import POLICIES
from benchmarks.policies import named as policy_named
from benchmarks.progress import Meter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.metrics import Figures

LOWER_IS_BETTER = (
    "latency_mean_s",
    "latency_p95_s",
    "ttft_mean_s",
    "ttft_p95_s",
    "turn_mean_s",
    "makespan_s",
    "wait_max_s",
)
HIGHER_IS_BETTER = ("decode_tokens_per_s", "cache_hit_share")
SHOWN = (*LOWER_IS_BETTER, *HIGHER_IS_BETTER, "pauses", "pause_wait_mean_s", "optimal_share", "turns_failed")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser("tao-bench compare", description=__doc__, formatter_class=options.Help)
    simulate.add_options(parser)
    parser.add_argument(
        "--policies", default=",".join(("tao", *POLICIES)), help="names with commas; the first is set against the rest"
    )
    parser.add_argument("--seeds", type=options.whole(1), default=5, help="how many seeds, counted from --seed")
    parser.add_argument("--json", type=Path, default=None, help="write all figures here (default: nowhere)")
    args = parser.parse_args(argv)
    options.writable(args.json, "--json")
    chosen = [name.strip() for name in args.policies.split(",") if name.strip()]
    for name in chosen:
        policy_named(name)
    runs: dict[str, list[Figures]] = {name: [] for name in chosen}
    with Meter("runs", len(chosen) * args.seeds) as meter:
        for seed in range(args.seed, args.seed + args.seeds):
            for name in chosen:
                runs[name].append(simulate.run_once(args, name, seed))
                meter.step(f"{name}, seed {seed}")
    print_comparison(simulate.title(args, f"{len(chosen)} policies, {args.seeds} seeds"), runs)
    if args.json is not None:
        args.json.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
    return 0


def print_comparison(heading: str, runs: Mapping[str, Sequence[Figures]]) -> None:
    """A row for each metric, a column for each policy, and the first against the best of the others."""
    first, *others = runs
    table = Table(title=heading, title_justify="left")
    table.add_column("metric")
    for name in runs:
        table.add_column(name, justify="right")
    if others:
        table.add_column(f"{first} vs best other", justify="right")
    for key in SHOWN:
        cells = [_cell(interval(values(runs[name], key))) for name in runs]
        table.add_row(key, *cells, *([_versus(runs, key)] if others else []))
    Console(width=None if sys.stdout.isatty() else 40 + 16 * (len(runs) + 1)).print(table)


def best_other(runs: Mapping[str, Sequence[Figures]], key: str) -> tuple[str, Interval] | None:
    """The best of all but the first policy on a metric, and the first one's relative change against it."""
    first, *others = runs
    if key not in (*LOWER_IS_BETTER, *HIGHER_IS_BETTER):
        return None
    means = {name: found.mean for name in others if (found := interval(values(runs[name], key))) is not None}
    if not means:
        return None
    best = min(means, key=lambda n: means[n]) if key in LOWER_IS_BETTER else max(means, key=lambda n: means[n])
    change = relative_change(values(runs[first], key), values(runs[best], key))
    return None if change is None else (best, change)


def values(runs: Sequence[Figures], key: str) -> list[float]:
    """A figure of every run that knows it."""
    found = (run.get(key) for run in runs)
    return [float(value) for value in found if isinstance(value, int | float)]


def _versus(runs: Mapping[str, Sequence[Figures]], key: str) -> str:
    found = best_other(runs, key)
    if found is None:
        return ""
    best, change = found
    half = "" if change.half is None else f" ± {100 * change.half:.1f}"
    return f"{100 * change.mean:+.1f}{half} % ({best})"


def _cell(found: Interval | None) -> str:
    if found is None:
        return "-"
    digits = 3 if abs(found.mean) < 10 else 1 if abs(found.mean) < 1000 else 0
    half = "" if found.half is None else f" ± {found.half:,.{digits}f}"
    return f"{found.mean:,.{digits}f}{half}"


if __name__ == "__main__":
    from benchmarks.cli import run

    raise SystemExit(run(main, sys.argv[1:], "compare"))
