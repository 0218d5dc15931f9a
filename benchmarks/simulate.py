# SPDX-License-Identifier: Apache-2.0
"""``tao-bench simulate``: one policy on recorded sessions, in virtual time.

The run follows from its options alone. Agents run in a closed loop, ``--concurrency`` sessions at once and each that
ends followed by the next, or with ``--session-rate`` in an open one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import mixes, options
from benchmarks.policies import named as policy_named
from benchmarks.policies import names
from benchmarks.progress import print_table
from benchmarks.simulator import setups
from benchmarks.simulator.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.metrics import Figures


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser("tao-bench simulate", description=__doc__, formatter_class=options.Help)
    add_options(parser)
    parser.add_argument("--policy", default="tao", help=f"one of {', '.join(names())}")
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        default=None,
        help="write the figures as JSON to this file, or instead of the table if none is named (default: table)",
    )
    parser.add_argument(
        "--timeline",
        type=Path,
        default=None,
        help="write here, every --sample seconds, how many sessions are on an engine, between turns, and waiting "
        "(default: nowhere)",
    )
    parser.add_argument("--sample", type=options.number(0, above=True), default=5.0, help="virtual seconds")
    args = parser.parse_args(argv)
    options.writable(_path(args.json), "--json")
    options.writable(args.timeline, "--timeline")
    world, result = run_world(args, args.policy, args.seed, sample_s=args.sample if args.timeline else None)
    if args.timeline:
        _write_timeline(args, world)
    write(result, args.json, title(args, args.policy))
    return 0 if not result["sessions_left"] else 1


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that ``simulate`` and ``compare`` share."""
    options.add_workload(parser, traces="--traces", sessions=64, concurrency=32)
    options.add_arrivals(parser)
    group = parser.add_argument_group("cluster")
    group.add_argument("--workload", choices=mixes.NAMES, default="all", help="which of the folder's sessions")
    group.add_argument(
        "--setup", default="qwen3-32b", help=f"one of {', '.join(setups.SETUPS)}, or mocker:NODES:BLOCKS[:SPEEDUP]"
    )
    group.add_argument("--nodes", type=options.whole(1), default=None, help="how many (default: the set-up's)")
    group.add_argument(
        "--node-tokens", type=options.whole(1024), default=None, help="KV room of a node (default: the set-up's)"
    )
    group.add_argument(
        "--host-tokens", type=options.whole(0), default=0, help="host-memory KV room of a node, in tokens; 0 for none"
    )


def run_once(args: argparse.Namespace, policy: str, seed: int) -> Figures:
    """The figures of :func:`run_world`."""
    return run_world(args, policy, seed)[1]


def run_world(
    args: argparse.Namespace, policy: str, seed: int, *, sample_s: float | None = None
) -> tuple[World, Figures]:
    """One simulation with the options of :func:`add_options`.

    Raises:
        UsageError: an option or a file is wrong.
    """
    setup = setups.sized(
        setups.named(args.setup), nodes=args.nodes, capacity=args.node_tokens, host_tokens=args.host_tokens
    )
    make_router = policy_named(policy)
    mix = mixes.mix(
        args.source,
        args.workload,
        count=args.sessions,
        seed=seed,
        max_turns=args.max_turns,
        max_pause_s=args.max_pause,
        max_prompt_tokens=args.max_prompt_tokens,
        arrivals=args.arrivals,
        rate=args.rate,
        session_rate=args.session_rate,
    )
    began = time.perf_counter()
    world = World(
        setup,
        make_router,
        mix.load.sessions,
        concurrency=args.concurrency,
        seed=seed,
        arrivals=mix.arrivals,
        starts=mix.starts,
        sample_s=sample_s,
    )
    result = world.run()
    result |= {
        "policy": policy,
        "setup": setup.name,
        "nodes": setup.nodes,
        "node_tokens": setup.capacity_tokens,
        "host_tokens": setup.host_tokens,
        "workload": args.workload,
        "sessions": len(mix.load.sessions),
        "concurrency": None if mix.starts else args.concurrency,
        "rate": args.rate,
        "session_rate": args.session_rate,
        "seed": seed,
        "time_scale": 1.0,
        "context_scale": mix.load.context_scale,
        "simulated_in_s": time.perf_counter() - began,
    }
    return world, result


def _write_timeline(args: argparse.Namespace, world: World) -> None:
    """One line, as the report takes them from a file of many."""
    names = ("t", "running", "between", "waiting")
    columns = {name: [row[i] for row in world.timeline] for i, name in enumerate(names)}
    cell = {"policy": args.policy, "setup": args.setup, "workload": args.workload, "concurrency": args.concurrency}
    args.timeline.write_text(json.dumps({**cell, "seed": args.seed, **columns}) + "\n", encoding="utf-8")


def title(args: argparse.Namespace, policy: str) -> str:
    """What was run, in a line."""
    pace = f"{args.session_rate:g} new a second" if args.session_rate else f"{args.concurrency} at once"
    what = f"{args.sessions} sessions ({args.workload}), {pace}"
    return f"{policy} on {args.setup}: {what}, virtual time"


def write(result: Figures, where: str | None, heading: str) -> None:
    """The table, or JSON to a file or standard output."""
    if where == "-":
        json.dump(result, sys.stdout, indent=1)
        print()
        return
    print_table(heading, result)
    if where is not None:
        Path(where).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _path(where: str | None) -> Path | None:
    return None if where in (None, "-") else Path(str(where))


if __name__ == "__main__":
    from benchmarks.cli import run

    raise SystemExit(run(main, sys.argv[1:], "simulate"))
