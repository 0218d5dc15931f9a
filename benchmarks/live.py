# SPDX-License-Identifier: Apache-2.0
"""``tao-bench live``: several policies as real Dynamo graphs on the same recorded sessions, side by side.

Each run has a graph of its own, made anew (with ``--keep-workers`` all but the workers). Before anything is measured
every worker must have announced KV blocks. Then the same sessions with the same seed are replayed as ``tao-bench
replay`` does it. Repetitions interleave: A B A B.

With ``--speed`` everything that takes time is quicker by one factor: tools and users, the mock engine, and the time
constants of the routers that have any. Figures are as measured, in real seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import arms, live_graphs, options, replay
from benchmarks.compare import print_comparison
from benchmarks.event_check import kv_events_flow
from benchmarks.http_stream import Target
from benchmarks.simulator import setups
from benchmarks.workload import room_blocks
from launch.engines import default_block_size
from launch.services import TaoRouter
from tao_dynamo.errors import ConfigError, TraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.arms import Arm
    from benchmarks.metrics import Figures
    from benchmarks.workload import Workload
    from launch.stack import Stack


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Exit code 0: every turn of every run was served; 1: some failed."""
    args = _parser().parse_args(argv)
    options.writable(args.out, "--out")
    options.writable(None if args.json in (None, "-") else Path(args.json), "--json")
    chosen = [arms.named(name) for name in args.policy or arms.DEFAULT_ARMS]
    load = options.workload(args)
    args.block_size = args.block_size or default_block_size(args.engine)
    args.blocks = args.blocks or room_blocks(load, args.concurrency, args.workers, args.block_size)
    _require_fit(args, load)
    # A closed terminal or a supervisor sends SIGTERM; unwinding stops the graph.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    done = _done(args, load)
    runs: dict[str, list[Figures]] = {arm.policy: [] for arm in chosen}
    order = [(repetition, arm) for repetition in range(args.repetitions) for arm in chosen]
    todo = any((arm.policy, repetition) not in done for repetition, arm in order)
    with live_graphs.kept_workers(args) if todo else nullcontext() as workers:
        for number, (repetition, arm) in enumerate(order, 1):
            what = f"run {number} of {len(order)}: {arm.policy}, repetition {repetition + 1}"
            found = done.get((arm.policy, repetition))
            if found is None:
                print(f"{what}: starting its graph", file=sys.stderr, flush=True)
                found = run_once(args, arm, load, repetition, workers)
                _keep(args.out, found)
            shown = " ".join(f"{key} {_plain(found[key])}" for key in ("latency_mean_s", "ttft_mean_s", "turns_failed"))
            print(f"{what}: {shown}", file=sys.stderr, flush=True)
            runs[arm.policy].append(found)
    _report(args, load, runs)
    return 1 if any(run["turns_failed"] for some in runs.values() for run in some) else 0


def run_once(
    args: argparse.Namespace, arm: Arm, load: Workload, repetition: int, workers: Stack | None = None
) -> Figures:
    """One run on a fresh graph, or on these workers: the figures of ``replay``, and what was run.

    Raises:
        StackError: the graph did not start, or the KV events of a worker did not come.
    """
    began = time.monotonic()
    with live_graphs.graph(args, arm, workers) as stack:
        heard = asyncio.run(kv_events_flow(stack, args.workers, vocabulary=(300, 2300)))
        asked = replay.parser().parse_args(_words(args, arm, stack))
        asked.nats = stack.nats_url if arm.tool_events else None
        status = None
        if stack.assembly.site.graph.has(TaoRouter):
            status = Target(f"http://127.0.0.1:{stack.system_port('tao-router')}", "/engine/tao/status")
        ready = time.monotonic()
        figures, errors = asyncio.run(replay.replay(asked, Target(stack.url, "/v1/completions"), status, load))
    for error in errors[:3]:
        print(f"failed turn: {error}", file=sys.stderr)
    return figures | {
        "policy": arm.policy,
        "repetition": repetition,
        "kv_event_workers": heard,
        "started_in_s": ready - began,
        **_settings(args),
    }


def _settings(args: argparse.Namespace) -> Figures:
    """What must be equal for two runs to be set side by side, beside what ``replay`` says itself."""
    graph = ("engine", "timing", "workers", "blocks", "block_size", "speed")
    names = (*graph, "keep_workers", "max_turns", "max_prompt_tokens", "max_pause")
    return {name: getattr(args, name) for name in names}


def _words(args: argparse.Namespace, arm: Arm, stack: Stack) -> list[str]:
    words = ["--url", stack.url, "--model", stack.model_name, "--namespace", stack.namespace]
    words += ["--source", str(args.source), "--time-scale", f"{1 / args.speed:.8g}", "--timeout", str(args.timeout)]
    words += ["--sessions", str(args.sessions), "--concurrency", str(args.concurrency), "--seed", str(args.seed)]
    return [*words, "--session-final", arm.closing]


def _require_fit(args: argparse.Namespace, load: Workload) -> None:
    longest = max(turn.prompt_tokens + turn.output_tokens for session in load.sessions for turn in session.turns)
    if args.engine == "vllm-cpu" and longest > live_graphs.CONTEXT:
        raise ConfigError(
            "--max-prompt-tokens", args.max_prompt_tokens, f"prompts that fit {live_graphs.CONTEXT} (now {longest})"
        )
    room = args.blocks * args.block_size
    if longest > room:
        raise ConfigError("--blocks", args.blocks, f"room for the longest turn, {longest} tokens (now {room})")


def _done(args: argparse.Namespace, load: Workload) -> dict[tuple[str, int], Figures]:
    """The runs that the output file holds already.

    Raises:
        TraceError: a line is no run, or one of other settings.
    """
    if args.out is None or not args.out.exists():
        return {}
    settings = _settings(args) | {"sessions": len(load.sessions), "concurrency": args.concurrency, "seed": args.seed}
    found: dict[tuple[str, int], Figures] = {}
    for number, text in enumerate(args.out.read_text(encoding="utf-8").splitlines(), 1):
        where = f"{args.out.name}:{number}"
        try:
            run = json.loads(text)
            key = (run["policy"], run["repetition"])
        except (ValueError, KeyError, TypeError) as error:
            raise TraceError(where, text[:60], "a line of tao-bench live") from error
        for name, value in settings.items():
            if run.get(name) != value:
                raise TraceError(f"{where}: {name}", run.get(name), f"{value}, as this run has it")
        found[key] = run
    return found


def _keep(out: Path | None, run: Figures) -> None:
    if out is not None:
        with out.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({key: _rounded(value) for key, value in run.items()}) + "\n")


def _report(args: argparse.Namespace, load: Workload, runs: dict[str, list[Figures]]) -> None:
    if args.json != "-":
        what = (
            f"{len(load.sessions)} sessions, {load.turns} turns, {args.concurrency} at once, {args.repetitions} times"
        )
        room = f"{args.workers} {args.engine} workers of {args.blocks * args.block_size:,} tokens"
        print_comparison(f"live: {what}; {room}, {args.speed:g} times as fast", runs)
    if args.json == "-":
        json.dump(runs, sys.stdout, indent=1)
        print()
    elif args.json is not None:
        Path(args.json).write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")


def _rounded(value: float | str | None) -> float | int | str | None:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _plain(value: float | str | None) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("tao-bench live", description=__doc__, formatter_class=options.Help)
    options.add_workload(parser, traces="--traces", sessions=64, concurrency=64)
    parser.add_argument(
        "--policy",
        action="append",
        help=f"an arm; several times; the first is set against the rest (default: {', '.join(arms.DEFAULT_ARMS)})",
    )
    parser.add_argument("--repetitions", type=options.whole(1), default=5, help="how often each arm runs")
    group = parser.add_argument_group("graph")
    group.add_argument("--engine", choices=("mocker", "vllm-cpu"), default="mocker", help="what the workers run")
    group.add_argument("--workers", type=options.whole(1), default=2, help="how many")
    group.add_argument("--block-size", type=options.whole(1), default=None, help="default: 16, with vllm-cpu 32")
    group.add_argument(
        "--blocks",
        type=options.whole(1),
        default=None,
        help="KV blocks of a worker (default: all workers together hold half of the sessions that run at once)",
    )
    group.add_argument(
        "--speed",
        type=options.number(0, above=True),
        default=1.0,
        help="how many times as fast as recorded tools, users, the mock engine and the routers' time constants are",
    )
    group.add_argument(
        "--timing",
        choices=tuple(setups.SETUPS),
        default=None,
        help="step times of the mock engine: those of this set-up of the simulator (default: the mocker's own)",
    )
    group.add_argument(
        "--keep-workers",
        action="store_true",
        help="start the workers once, and only routers and frontends anew for each run; each run's sessions have "
        "tokens of their own, so none finds its cache from the run before",
    )
    group.add_argument("--model", default=None, help="model folder for vllm-cpu (default: none)")
    group.add_argument(
        "--engine-python",
        default=os.environ.get("DYN_TAO_ENGINE_PYTHON"),
        help="Python that has vLLM, env DYN_TAO_ENGINE_PYTHON (default: .venv-vllm, if it is there)",
    )
    group.add_argument("--start-timeout", type=options.number(0, above=True), default=180.0, help="s, of each process")
    group.add_argument("--timeout", type=options.number(0, above=True), default=600.0, help="s until a turn has failed")
    parser.add_argument(
        "--out",
        type=Path,
        default=None,
        help="add one JSON line a run; runs that the file holds are not run again (default: nowhere)",
    )
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        default=None,
        help="all runs as JSON to this file, or instead of the table if none is named (default: table)",
    )
    return parser


if __name__ == "__main__":
    from benchmarks.cli import run

    raise SystemExit(run(main, sys.argv[1:], "live"))
