# SPDX-License-Identifier: Apache-2.0
"""``tao-bench readiness``: how well each predictor knows when recorded tool calls return.

The protocol, the same for every predictor, is told in `benchmarks.readiness_score` and by ``--help``.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import options, readiness_score
from benchmarks.readiness_score import CLOSE_S, Outcome, floors, predictors, replay, score, taught_before
from benchmarks.recorded_calls import RecordedCall, load_calls
from tool_hooks.predictor import HORIZON_S

_CLASSES = 14
_COLUMNS = ("mae_s", "within_0.5s", "precision", "recall", "f1", "recall_longer_than_1s", "first_mae_s", "every_mae_s")
_DESCRIPTION = (
    (readiness_score.__doc__ or "")
    + """
The calls of sessions with an even number in file order were used to choose the default predictor's parameters; those of
the odd ones were held out. Both halves are reported apart under "halves".
"""
)


def main(argv: Sequence[str]) -> int:
    """Entry point. Raises UsageError for traces that cannot be used."""
    args = _parser().parse_args(argv)
    calls = load_calls(args.traces)
    to_file = args.json if args.json not in (None, "-") else None
    options.writable(None if to_file is None else Path(to_file), "--json")
    options.writable(args.plot, "--plot")
    outcomes = {
        name: replay(calls, make(), tick_s=args.tick_s, max_s=args.max_s) for name, make in predictors().items()
    }
    result = _result(calls, outcomes, args)
    text = json.dumps(result, indent=1) + "\n"
    if args.json == "-":
        sys.stdout.write(text)
    else:
        _print(result)
    if to_file is not None:
        Path(to_file).write_text(text, encoding="utf-8")
    if args.plot is not None:
        from benchmarks.readiness_plot import plot

        plot(outcomes, args.plot)
    return 0


def _parser() -> argparse.ArgumentParser:
    class Format(options.Help, argparse.RawDescriptionHelpFormatter):
        pass

    parser = argparse.ArgumentParser("tao-bench readiness", description=_DESCRIPTION, formatter_class=Format)
    parser.add_argument(
        "--traces",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder with tool_durations.jsonl, or such a file (default: none, it must be given)",
    )
    parser.add_argument(
        "--max-s", type=options.number(0, above=True), default=30.0, help="score calls up to this many seconds"
    )
    parser.add_argument(
        "--tick-s",
        type=options.number(0.05),
        default=HORIZON_S,
        help="seconds between two moments of a running call; above 1 some calls have no moment in their last second",
    )
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="write the figures to FILE, or without FILE to standard output instead of the tables (default: neither)",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write a plot, .png, .svg or .pdf (default: none)")
    return parser


def _result(
    calls: Sequence[RecordedCall], outcomes: dict[str, list[Outcome]], args: argparse.Namespace
) -> dict[str, Any]:
    sessions = {s: i for i, s in enumerate(dict.fromkeys(c.session_id for c in calls))}
    first = next(iter(outcomes.values()))
    classes = [name for name, _ in Counter(_class(o.call) for o in first).most_common(_CLASSES)]

    def by_class(every: list[Outcome]) -> dict[str, Any]:
        groups: dict[str, list[Outcome]] = {name: [] for name in [*classes, "other"]}
        for o in every:
            name = _class(o.call)
            groups[name if name in groups else "other"].append(o)
        return {name: score(group) for name, group in groups.items() if group}

    def half(every: list[Outcome], parity: int) -> dict[str, Any]:
        return score([o for o in every if sessions[o.call.session_id] % 2 == parity])

    return {
        "calls": len(calls),
        "sessions": len(sessions),
        "max_s": args.max_s,
        "tick_s": args.tick_s,
        "horizon_s": HORIZON_S,
        "predictors": {name: score(every) for name, every in outcomes.items()},
        "halves": {name: {"tuned": half(every, 0), "held_out": half(every, 1)} for name, every in outcomes.items()},
        "classes": {name: by_class(every) for name, every in outcomes.items()},
        "lengths": {name: _by_length(every) for name, every in outcomes.items()},
        "floors": floors(calls, max_s=args.max_s)
        | {"taught_before": score(taught_before(calls, tick_s=args.tick_s, max_s=args.max_s))},
    }


def _class(call: RecordedCall) -> str:
    """The tool class of a call in the report: the first program of its key."""
    return call.key.partition("+")[0]


def _by_length(every: list[Outcome]) -> dict[str, Any]:
    edges = (0.0, 1.0, 5.0, math.inf)
    return {
        f"{low:g}-{high:g}": score(
            [o for o in every if low < o.call.duration_s <= high or o.call.duration_s == low == 0]
        )
        for low, high in pairwise(edges)
    }


def _print(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 150)
    scored = result["predictors"]["default"]["calls"]
    title = f"{scored} of {result['calls']} calls of {result['sessions']} sessions, up to {result['max_s']:g} s"
    for heading, rows in (
        (title, result["predictors"]),
        ("held-out half of the sessions", {n: h["held_out"] for n, h in result["halves"].items()}),
    ):
        table = Table("predictor", *_COLUMNS, title=heading)
        for name, figures in rows.items():
            table.add_row(name, *(_cell(figures[c]) for c in _COLUMNS))
        console.print(table)
    table = Table("tool", "calls", title="precision / recall / error of the final prediction, by tool")
    shown = ("default", "paper", "median")
    for name in shown:
        table.add_column(name)
    for tool, figures in result["classes"]["default"].items():
        cells = (result["classes"][p][tool] for p in shown)
        table.add_row(
            tool,
            str(figures["calls"]),
            *(f"{_cell(c['precision'])} / {_cell(c['recall'])} / {_cell(c['mae_s'])} s" for c in cells),
        )
    console.print(table)
    floor = result["floors"]
    taught = floor["taught_before"]
    short = result["lengths"]["default"]["0-1"]
    console.print(
        f"What these calls allow. Calls up to 1 s: default {_cell(short['mae_s'])} s off. "
        f"One total per key, chosen with hindsight: {_cell(floor['per_key_mae_s'])} s off at the start of a call, "
        f"{_cell(floor['per_key_within_0.5s'])} within {CLOSE_S:g} s; one per key and session "
        f"({floor['per_key_in_session_groups']} of them): {_cell(floor['per_key_in_session_mae_s'])} s. "
        f"The default taught all these calls before, each itself included: final {_cell(taught['mae_s'])} s, "
        f"precision {_cell(taught['precision'])}, recall {_cell(taught['recall'])}. "
        "'always' shows what the final error alone is worth: it says half a second whatever happens.",
        highlight=False,
    )


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
