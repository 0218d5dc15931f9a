# SPDX-License-Identifier: Apache-2.0
"""``tao-bench solver``: the solvers on the same random snapshots, in the same run.

Every method gets the same snapshots (see `benchmarks.solver_instances`), rounded alike, in a process of its
own that is warm before the first one is timed, and at work on small snapshots for 5 ms right before each (with
``--cold``: asleep for 50 ms instead). "best" is the share of snapshots on which the method reached
the best value that any method of this run found; "proven" the share that it proved optimal in all three
components, "cr+rd" in credit and readiness. The general solvers get the plain model, one component after the
other. Where a proof is disproved by another method's better value, that is printed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import options, solver_transfer
from benchmarks.solver_instances import KINDS, SIZES, Size
from benchmarks.solver_runs import METHODS, Limits, Run, read_runs, run_method
from benchmarks.solver_summary import Row, contradictions, summarise
from tao_dynamo.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

QUICK_SIZES = ("32x2", "64x4")
QUICK_KINDS = ("tight-few", "loose-burst")
PLOT_NAME = "solver.png"
_COLUMNS = (
    *("size", "kind", "method", "solved", "median ms", "p95 ms", "max ms"),
    *("best", "credit", "proven", "cr+rd", "peak MB", "of it own"),
)


def main(argv: Sequence[str]) -> int:
    """Entry point. Raises UsageError for what cannot be run; returns 1 where a proof is disproved."""
    args = _parser().parse_args(argv)
    sizes = [Size.parse(text) for text in _names(args.sizes)]
    kinds = _chosen("--kinds", args.kinds, KINDS)
    methods = _chosen("--methods", args.methods, METHODS)
    repeat = args.repeat
    limits = Limits(args.budget_ms, args.limit_s, args.threads, args.cold)
    if args.quick:
        sizes, kinds, repeat = [Size.parse(text) for text in QUICK_SIZES], list(QUICK_KINDS), min(repeat, 2)
        limits = replace(limits, limit_s=min(limits.limit_s, 2.0))
    options.writable(args.json, "--json")
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
    if args.planner:
        for size in sizes:
            crossing = solver_transfer.measure(size, args.seed)
            print(
                f"planner {size}: there and back, the solve left out: median {crossing.median_ms:.3g} ms, "
                f"best {crossing.best_ms:.3g} ms of {crossing.rounds}"
            )
        return 0
    kept = [run for file in args.add for run in read_runs(file)]
    runs = kept + list(_run_all(sizes, kinds, methods, range(args.seed, args.seed + repeat), limits))
    rows = summarise(runs, by_kind=args.by_kind)
    _print(rows)
    wrong = contradictions(runs)
    for line in wrong:
        print(f"disproved: {line}", file=sys.stderr)
    if args.json is not None:
        args.json.write_text(json.dumps(_result(runs, wrong, limits), indent=1) + "\n", encoding="utf-8")
    if args.out is not None:
        from benchmarks.solver_plot import plot

        plot(summarise(runs, by_kind=False), args.out / PLOT_NAME)
        print(f"plot: {args.out / PLOT_NAME}")
    return 1 if wrong else 0


def _run_all(
    sizes: Sequence[Size], kinds: Sequence[str], methods: Sequence[str], seeds: range, limits: Limits
) -> Iterator[Run]:
    cases = [(kind, seed) for kind in kinds for seed in seeds]
    for size in sizes:
        for method in methods:
            print(f"{size}: {method} on {len(cases)} snapshots", file=sys.stderr)
            yield from run_method(method, size, cases, limits)


def _result(runs: Sequence[Run], wrong: list[str], limits: Limits) -> dict[str, Any]:
    def plain(row: Row) -> dict[str, Any]:
        return {**asdict(row), "size": str(row.size)}

    return {
        "limits": asdict(limits),
        "rows": [plain(row) for row in summarise(runs, by_kind=False)],
        "rows_by_kind": [plain(row) for row in summarise(runs, by_kind=True)],
        "disproved": wrong,
        "runs": [{**asdict(run), "size": str(run.size)} for run in runs],
    }


def _print(rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Solvers on the same snapshots", title_justify="left")
    for k, name in enumerate(_COLUMNS):
        table.add_column(name, justify="left" if k < 3 else "right", no_wrap=True)
    before = None
    for row in rows:
        if before is not None and (row.size, row.kind) != before:
            table.add_section()
        before = (row.size, row.kind)
        timed = [f"{each:.3g}" if row.solved else "-" for each in (row.median_ms, row.p95_ms, row.max_ms)]
        shares = [
            f"{100 * each:.4g} %" if row.solved else "-"
            for each in (row.best, row.credit, row.proven, row.proven_ready)
        ]
        table.add_row(
            *(str(row.size), row.kind, row.method, f"{row.solved}/{row.snapshots}", *timed, *shares),
            *(f"{row.peak_mb:.0f}", f"{row.above_mb:.0f}"),
        )
    console = Console()
    # A file or a pipe has no width of its own: do not cut the columns to 80.
    Console(width=None if console.is_terminal else 150).print(table)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _chosen(flag: str, text: str, known: Sequence[str]) -> list[str]:
    names = _names(text)
    for name in names:
        if name not in known:
            raise UsageError(flag, name, f"some of {', '.join(known)}")
    if not names:
        raise UsageError(flag, text, f"at least one of {', '.join(known)}")
    return names


def _parser() -> argparse.ArgumentParser:
    class Format(options.Help, argparse.RawDescriptionHelpFormatter):
        pass

    parser = argparse.ArgumentParser("tao-bench solver", description=__doc__, formatter_class=Format)
    add = parser.add_argument
    add("--sizes", default=",".join(map(str, SIZES)), help="candidates x nodes, with commas between")
    add("--kinds", default=",".join(KINDS), help="kinds of snapshots, with commas between")
    methods = [method for method in METHODS if not method.endswith("gpu")]
    add("--methods", default=",".join(methods), help=f"of {', '.join(METHODS)}")
    add("--repeat", type=options.whole(1), default=5, help="snapshots per size and kind")
    add("--seed", type=options.whole(0), default=1, help="seed of the first snapshot, then one more each")
    add("--budget-ms", type=options.number(0, above=True), default=50.0, help="our anytime methods' budget")
    add("--limit-s", type=options.number(0, above=True), default=10.0, help="time limit of the general solvers")
    add("--threads", type=options.whole(1), default=os.cpu_count() or 1, help="threads of the general solvers")
    add("--cold", action="store_true", help="time each solve after a pause, not awake (default: off)")
    add("--planner", action="store_true", help="only time the way to the planner process and back (default: off)")
    add("--by-kind", action="store_true", help="a row per kind, too (default: off)")
    add(
        "--quick",
        action="store_true",
        help=f"{' and '.join(QUICK_SIZES)} only, two kinds, two snapshots each, 2 s limit (default: off)",
    )
    add("--json", type=Path, metavar="FILE", help="write every run and all rows here (default: nowhere)")
    add(
        "--add",
        type=Path,
        action="append",
        metavar="FILE",
        default=[],
        help="put the runs of an earlier --json FILE into table and plot, too; may be given again (default: none)",
    )
    add("--out", type=Path, metavar="DIR", help=f"write the plot {PLOT_NAME} into this folder (default: none)")
    return parser
