# SPDX-License-Identifier: Apache-2.0
"""``tao-bench snapshots``: how often the exact plan is worth more than a greedy one, on snapshots of simulated runs.

TAO runs with its own solver; every snapshot with several candidates is solved again by each rival. A plan is better
where its value (credit, ready, footprint; compared in that order) is greater.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from benchmarks import mixes, options
from benchmarks.policies.tao import ABLATIONS, Tao
from benchmarks.progress import Meter
from benchmarks.simulator import setups
from benchmarks.simulator.world import World
from solver import solve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.policies.base import Site
    from solver.problem import Plan, Problem

RIVALS = ("short-first", "bfd")


class Comparing(Tao):
    """TAO that has its snapshots solved by the rivals too."""

    def __init__(self, site: Site, seed: int) -> None:
        super().__init__(site, ABLATIONS["tao"], seed)
        self.snapshots = 0
        self.several = 0
        self.worse = dict.fromkeys(RIVALS, 0)
        self.cpu_s: list[float] = []
        """Processor time of each plan: on a machine that does other things besides, the clock would tell of those."""

    def make_plan(self, problem: Problem) -> Plan:
        """See the class."""
        began = time.process_time()
        plan = super().make_plan(problem)
        self.cpu_s.append(time.process_time() - began)
        self.snapshots += 1
        if len(problem.candidates) > 1:
            self.several += 1
            for rival in RIVALS:
                self.worse[rival] += astuple(solve(problem, method=rival).value) < astuple(plan.value)
        return plan


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser("tao-bench snapshots", description=__doc__, formatter_class=options.Help)
    options.add_workload(parser, traces="--traces", sessions=128, concurrency=64)
    parser.add_argument("--workloads", nargs="+", choices=mixes.NAMES, default=["all"], help="one or more")
    parser.add_argument("--setups", nargs="+", default=["qwen3-32b"], help="one or more")
    parser.add_argument("--json", type=Path, default=None, help="one line a run (default: nowhere)")
    args = parser.parse_args(argv)
    options.writable(args.json, "--json")
    found: list[dict[str, Any]] = []
    with Meter("runs", len(args.setups) * len(args.workloads)) as meter:
        for setup in args.setups:
            for workload in args.workloads:
                found.append(run(args, setup, workload))
                meter.step(f"{setup}, {workload}")
    show(found)
    if args.json is not None:
        args.json.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")
    return 0


def run(args: argparse.Namespace, setup: str, workload: str) -> dict[str, Any]:
    """One simulation; counts of snapshots, of those with several candidates, and of rivals' lesser plans."""
    mix = mixes.mix(
        args.source,
        workload,
        count=args.sessions,
        seed=args.seed,
        max_turns=args.max_turns,
        max_pause_s=args.max_pause,
        max_prompt_tokens=args.max_prompt_tokens,
    )
    made: list[Comparing] = []

    def make(site: Site, seed: int) -> Comparing:
        made.append(Comparing(site, seed))
        return made[0]

    sessions = mix.load.sessions
    world = World(setups.named(setup), make, sessions, concurrency=args.concurrency, seed=args.seed)
    result = world.run()
    router = made[0]
    # The first plan of a process loads compiled code, which the live planner has done before it is asked.
    warm = router.cpu_s[1:]
    return {
        "setup": setup,
        "workload": workload,
        "concurrency": args.concurrency,
        "seed": args.seed,
        "snapshots": router.snapshots,
        "several": router.several,
        "worse": router.worse,
        "optimal_share": result["optimal_share"],
        "solve_cpu_ms": 1000 * sum(warm) / len(warm) if warm else None,
        "makespan_s": result["makespan_s"],
    }


def show(found: Sequence[dict[str, Any]]) -> None:
    """A row a run."""
    table = Table("set-up", "workload", "snapshots", "several candidates", *(f"{r} worse" for r in RIVALS))
    for row in found:
        shares = [f"{row['worse'][r]} ({100 * row['worse'][r] / max(1, row['several']):.0f} %)" for r in RIVALS]
        table.add_row(row["setup"], row["workload"], str(row["snapshots"]), str(row["several"]), *shares)
    # A file or pipe gets a fixed width: rich would squeeze the table into 80 columns.
    Console(width=None if sys.stdout.isatty() else 120).print(table)


if __name__ == "__main__":
    from benchmarks.cli import run as run_command

    raise SystemExit(run_command(main, sys.argv[1:], "snapshots"))
