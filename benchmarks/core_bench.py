# SPDX-License-Identifier: Apache-2.0
"""``tao-bench core``: time every event of the scheduler's core under a heavy load, and watch its memory.

The load is that of ``benchmarks.core_lab``; times are CPU times of this machine, so each is also given beside a
reference that was timed in the same run: copying a dict of as many entries as there are sessions.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks import options
from benchmarks.core_lab import Lab, Sizes, Times
from benchmarks.progress import Meter
from tao_dynamo.shell import garbage

if TYPE_CHECKING:
    from collections.abc import Sequence

EVENT_MS, SNAPSHOT_MS = 1.0, 20.0
"""What is aimed at, as 95th percentiles on an idle machine."""
MILLION = 1_000_000


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser("tao-bench core", description=__doc__, formatter_class=options.Help)
    sizes = Sizes()
    parser.add_argument("--sessions", type=options.whole(1), default=sizes.sessions, help="live sessions")
    waiting = "sessions that wait, about: tools run for as long as it takes"
    parser.add_argument("--waiting", type=options.whole(1), default=sizes.waiting, help=waiting)
    parser.add_argument("--nodes", type=options.whole(2), default=sizes.nodes, help="nodes")
    parser.add_argument(
        "--node-tokens", type=options.whole(65_536), default=sizes.node_tokens, help="KV room of a node"
    )
    parser.add_argument("--solve-s", type=options.number(0.0), default=sizes.solve_s, help="seconds that a plan takes")
    parser.add_argument("--events", type=options.whole(1), default=300_000, help="events that are timed")
    parser.add_argument(
        "--warm-up", type=options.whole(0), default=400_000, help="events before them, until the pool has filled"
    )
    parser.add_argument(
        "--every", type=options.whole(1), default=MILLION, help="events between two looks at the process's memory"
    )
    parser.add_argument("--seed", type=int, default=0, help="of everything random")
    parser.add_argument("--json", type=Path, default=None, help="write the figures here too (default: nowhere)")
    args = parser.parse_args(argv)
    options.writable(args.json, "--json")
    lab = Lab(Sizes(args.sessions, args.waiting, args.nodes, args.node_tokens, args.solve_s, seed=args.seed))
    memory: list[tuple[int, float]] = []
    before = gc.get_threshold()
    gc.set_threshold(*garbage.THRESHOLDS)  # as the router has it
    with Meter("looks", -(-args.warm_up // args.every) - (-args.events // args.every)) as meter:
        go(lab, args.warm_up, args.every, meter, memory)
        lab.times.clear()
        lab.solves = lab.waited = 0
        go(lab, args.events, args.every, meter, memory)
    gc.set_threshold(*before)
    result = figures(lab, memory, args.sessions)
    show(result)
    if args.json is not None:
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


def go(lab: Lab, events: int, every: int, meter: Meter, memory: list[tuple[int, float]]) -> None:
    """Run, and look at the memory once in a while."""
    until = lab.events + events
    while lab.events < until:
        lab.run(min(until - lab.events, every))
        memory.append((lab.events, resident_mb()))
        meter.step(f"{lab.events:,} events, {lab.now:,.0f} s of virtual time, {memory[-1][1]:,.0f} MB")


def figures(lab: Lab, memory: Sequence[tuple[int, float]], entries: int) -> dict[str, object]:
    """Everything that is shown, times in milliseconds."""
    table = dict.fromkeys(range(entries))
    gc.collect()
    took: list[float] = []
    for _ in range(50):
        began = time.thread_time()
        dict(table)
        took.append(time.thread_time() - began)
    everything = Times()
    for kind, times in lab.times.items():
        if kind != "snapshot":
            everything.merge(times)
    counters = lab.core.statistics(lab.now, limit=0)
    return {
        "sessions": sum(counters.sessions_by_state.values()),
        "nodes": len(counters.nodes),
        "sessions_by_state": counters.sessions_by_state,
        "waiting_mean": lab.waited / lab.solves if lab.solves else 0.0,
        "reference_ms": 1e3 * statistics.median(took),
        "events": spread(everything),
        "kinds": {kind: spread(times) for kind, times in sorted(lab.times.items())},
        "memory_mb": list(memory),
        "counters": counters.counters,
    }


def spread(times: Times) -> dict[str, float]:
    """Count, and median, 95th, 99th percentile and maximum in milliseconds."""
    parts = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    found = {name: 1e3 * times.percentile(part) for name, part in parts.items()}
    return {"count": times.count, **found, "max": 1e3 * times.most}


def resident_mb() -> float:
    """Resident memory of this process in MB, garbage collected before."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 1e6


def show(result: dict[str, object]) -> None:
    """Print tables."""
    console = Console(width=None if sys.stdout.isatty() else 110)
    kinds, total = result["kinds"], result["events"]
    assert isinstance(kinds, dict)  # noqa: S101 - as figures made it
    assert isinstance(total, dict)  # noqa: S101
    table = Table(
        title=f"{result['sessions']:,} sessions, {result['nodes']:,} nodes, {result['waiting_mean']:,.0f} waiting",
        title_justify="left",
    )
    for name in ("event", "count", "p50 ms", "p95 ms", "p99 ms", "max ms"):
        table.add_column(name, justify="left" if name == "event" else "right")
    for kind, row in [*kinds.items(), ("any event", total)]:
        table.add_row(kind, f"{row['count']:,}", *(f"{row[k]:.3f}" for k in ("p50", "p95", "p99", "max")))
    console.print(table)
    reference = float(str(result["reference_ms"]))
    snapshot = kinds.get("snapshot", {"p95": 0.0})
    for name, value, aim in (("any event", total["p95"], EVENT_MS), ("snapshot", snapshot["p95"], SNAPSHOT_MS)):
        verdict = "met" if value < aim else "missed"
        console.print(
            f"{name}: p95 {value:.3f} ms, {value / reference:.2f} x the reference; under {aim:g} ms: {verdict}"
        )
    console.print(f"reference, copying a dict of {result['sessions']:,} entries: {reference:.3f} ms")
    console.print(f"sessions by state: {result['sessions_by_state']}")
    memory = result["memory_mb"]
    assert isinstance(memory, list)  # noqa: S101
    for events, mb in memory:
        console.print(f"after {events:>12,} events: {mb:,.0f} MB resident")


if __name__ == "__main__":
    from benchmarks.cli import run

    raise SystemExit(run(main, sys.argv[1:], "core"))
