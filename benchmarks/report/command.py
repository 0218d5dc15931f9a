# SPDX-License-Identifier: Apache-2.0
"""``tao-bench report``: tables and plots of docs/results out of its data folder, and the policies' pages.

Rewrites the blocks of every page there and every plot. Takes seconds; ``make grid`` and the commands that the pages
name make the data.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import options
from benchmarks.report import plots, policy_pages, tables
from benchmarks.report.data import Data
from benchmarks.report.pages import fill
from tao_dynamo.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LIVE = (
    *("latency_mean_s", "latency_p95_s", "ttft_mean_s", "ttft_p95_s", "turn_mean_s", "makespan_s"),
    *("decode_tokens_per_s", "cache_hit_share", "pauses", "pause_wait_mean_s", "turns_failed"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser("tao-bench report", description=__doc__, formatter_class=options.Help)
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="folder of the pages")
    parser.add_argument("--data", type=Path, default=None, help="folder of the data (default: data in --out)")
    parser.add_argument("--policies", type=Path, default=Path("docs/policies"), help="folder of the policies' pages")
    args = parser.parse_args(argv)
    if not args.out.is_dir():
        raise ConfigError("--out", str(args.out), "a folder that exists")
    data = Data(args.data or args.out / "data")
    for setup in dict.fromkeys(cell.setup for cell in data.cells):
        path = args.out / f"{setup}.png"
        plots.against_concurrency([cell for cell in data.cells if cell.setup == setup], path)
        print(path)
    if lines := data.lines("timelines.jsonl"):
        plots.timelines(lines, args.out / "timelines.png")
        print(args.out / "timelines.png")
    for path in sorted(args.out.glob("*.md")):
        page = path.read_text(encoding="utf-8")
        made = fill(page, blocks(data))
        if made != page:
            path.write_text(made, encoding="utf-8")
        print(path)
    for path in policy_pages.write(args.policies):
        print(path)
    return 0


def blocks(data: Data) -> dict[str, Callable[[], str]]:
    """Everything that a page may ask for, by name."""
    made: dict[str, Callable[[], str]] = {
        "summary": partial(tables.summary, data),
        "best-baselines": partial(tables.best_counts, data),
        "by-concurrency": partial(tables.by_concurrency, data),
        "losses": partial(tables.losses, data),
        "ablations": partial(tables.ablations, data),
        "host-tiers": partial(tables.host_tiers, data),
        "solving": partial(tables.solving, data),
        "snapshots": partial(tables.snapshots, data),
        "live-mock": lambda: tables.side_by_side(data.live("live.jsonl"), _LIVE),
        "live-vllm": lambda: tables.side_by_side(data.live("vllm.jsonl"), _LIVE),
        "calibration-replay": partial(tables.calibration, data, "calibration-replay.jsonl"),
        "calibration-replay-roomy": partial(tables.calibration, data, "calibration-replay-roomy.jsonl"),
        "calibration-live": partial(tables.calibration, data, "calibration-live.jsonl"),
    }
    for setup in dict.fromkeys(cell.setup for cell in data.cells):
        made[f"changes-{setup}"] = partial(tables.changes, data, setup)
    return made


if __name__ == "__main__":
    import sys

    from benchmarks.cli import run

    raise SystemExit(run(main, sys.argv[1:], "report"))
