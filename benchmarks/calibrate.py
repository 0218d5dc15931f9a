# SPDX-License-Identifier: Apache-2.0
"""``tao-bench calibrate``: the simulator against Dynamo's own replay, or against live runs on mock workers.

Dynamo's replay knows two policies, round robin and its KV router, and its mocker's timing. Its answers are not part
of the next prompt's cache (random tokens), so neither are ours here: every turn keeps the prompt before it only, in
whole blocks. With ``--live`` the runs of ``tao-bench live --engine mocker --out FILE`` are simulated instead, and its
times brought to the recorded speed. The error of each metric is printed, with its interval over seeds or repetitions.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from benchmarks import calibrate_live, options
from benchmarks.calibrate_live import Pairs
from benchmarks.intervals import Interval, interval
from benchmarks.policies import named as policy_named
from benchmarks.progress import Meter
from benchmarks.simulator.setups import mocker
from benchmarks.simulator.world import World
from benchmarks.traces import Session, load
from benchmarks.workload import choose

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.metrics import Figures

BLOCK_SIZE = 16
MODES = {"round-robin": "round_robin", "dynamo-kv": "kv_router"}
# Ours: Dynamo's name, and what to divide it by.
METRICS: dict[str, tuple[str, float]] = {
    "ttft_mean_s": ("mean_ttft_ms", 1000.0),
    "ttft_p95_s": ("p95_ttft_ms", 1000.0),
    "turn_mean_s": ("mean_e2e_latency_ms", 1000.0),
    "turn_p95_s": ("p95_e2e_latency_ms", 1000.0),
    "makespan_s": ("duration_ms", 1000.0),
    "decode_tokens_per_s": ("output_throughput_tok_s", 1.0),
    "cache_hit_share": ("prefix_cache_reused_ratio", 1.0),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser("tao-bench calibrate", description=__doc__, formatter_class=options.Help)
    options.add_workload(parser, traces="--traces", sessions=32, concurrency=16)
    parser.add_argument("--nodes", type=options.whole(1), default=2, help="mock workers")
    parser.add_argument("--blocks", type=options.whole(64), default=8192, help="KV blocks of 16 tokens a worker")
    parser.add_argument("--seeds", type=options.whole(1), default=5, help="how many seeds, counted from --seed")
    parser.add_argument(
        "--live",
        type=Path,
        default=None,
        help="file of live runs to set the simulator against, whose settings replace the options above (default: none)",
    )
    parser.add_argument("--json", type=Path, default=None, help="write both sides' figures here (default: nowhere)")
    args = parser.parse_args(argv)
    options.writable(args.json, "--json")
    # The replay logs every choice; its logger reads this once, when it is imported.
    os.environ.setdefault("DYN_LOG", "error")
    recorded = load(args.source)
    if args.live is not None:
        return write(calibrate_live.pairs(args.live, args.source), "live runs", args.json)
    pairs: Pairs = {policy: [] for policy in MODES}
    with Meter("runs", len(MODES) * args.seeds) as meter:
        for seed in range(args.seed, args.seed + args.seeds):
            chosen = choose(
                recorded,
                count=args.sessions,
                seed=seed,
                max_turns=args.max_turns,
                max_prompt_tokens=args.max_prompt_tokens,
                max_pause_s=args.max_pause,
            )
            sessions = [without_answers(session) for session in chosen.sessions]
            for policy in MODES:
                pairs[policy].append((dynamo_replay(sessions, policy, args), simulate(sessions, policy, args, seed)))
                meter.step(f"{policy}, seed {seed}")
    return write(pairs, "Dynamo's replay", args.json)


def write(pairs: Pairs, against: str, where: Path | None) -> int:
    """The table, and a line for each policy and metric in a file."""
    show(pairs, against)
    if where is not None:
        lines = (json.dumps(row) + "\n" for row in rows(pairs, against))
        where.write_text("".join(lines), encoding="utf-8")
    return 0


def rows(pairs: Pairs, against: str) -> Iterator[dict[str, Any]]:
    """Both sides of each policy and metric, one value a seed or repetition."""
    for policy, runs in pairs.items():
        for key in runs[0][0]:
            theirs = [float(f"{reference[key]:.5g}") for reference, _ in runs]
            ours = [float(f"{sim[key] or 0.0:.5g}") for _, sim in runs]
            yield {"against": against, "policy": policy, "metric": key, "theirs": theirs, "ours": ours}


def errors(theirs: Sequence[float], ours: Sequence[float]) -> Interval | None:
    """The simulator's relative error in percent, pair by pair."""
    return interval([100 * (a / b - 1) for a, b in zip(ours, theirs, strict=True) if b])


def without_answers(session: Session) -> Session:
    """The session with histories of prompts only, in whole blocks, and no think times."""
    shared = session.shared_tokens // BLOCK_SIZE * BLOCK_SIZE
    turns = [replace(session.turns[0], think_s=0.0)]
    for turn in session.turns[1:]:
        kept = min(turns[-1].prompt_tokens, turn.kept_tokens) // BLOCK_SIZE * BLOCK_SIZE
        turns.append(replace(turn, kept_tokens=max(shared, kept), think_s=0.0))
    return replace(session, turns=tuple(turns), shared_tokens=shared)


def simulate(sessions: Sequence[Session], policy: str, args: argparse.Namespace, seed: int) -> Figures:
    """Our side."""
    setup = mocker(args.nodes, args.blocks, block_size=BLOCK_SIZE)
    return World(setup, policy_named(policy), sessions, concurrency=args.concurrency, seed=seed).run()


def dynamo_replay(sessions: Sequence[Session], policy: str, args: argparse.Namespace) -> dict[str, Any]:
    """Dynamo's side: its report's summary."""
    from dynamo.replay import run_trace_replay

    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.jsonl"
        trace.write_text("".join(json.dumps(row) + "\n" for row in mooncake_rows(sessions)), encoding="utf-8")
        report = run_trace_replay(
            str(trace),
            extra_engine_args={"engine": {"num_gpu_blocks": args.blocks, "block_size": BLOCK_SIZE}},
            num_workers=args.nodes,
            replay_concurrency=args.concurrency,
            router_mode=MODES[policy],
            trace_block_size=BLOCK_SIZE,
            trace_format="mooncake",
        )
    return {ours: report.summary[theirs] / unit for ours, (theirs, unit) in METRICS.items()}


def mooncake_rows(sessions: Sequence[Session]) -> list[dict[str, Any]]:
    """The sessions in the form that Dynamo's replay reads: block ids for prompts, delays for tools."""
    fresh = itertools.count()
    shared: dict[tuple[str, int], list[int]] = {}
    rows: list[dict[str, Any]] = []
    for session in sessions:
        head = session.shared_tokens // BLOCK_SIZE
        chain = shared.setdefault((session.agent, head), [next(fresh) for _ in range(head)])
        for i, turn in enumerate(session.turns):
            blocks = -(-turn.prompt_tokens // BLOCK_SIZE)
            chain = chain[: max(head, turn.kept_tokens // BLOCK_SIZE)][:blocks]
            chain = chain + [next(fresh) for _ in range(blocks - len(chain))]
            row: dict[str, Any] = {"session_id": session.session_id, "hash_ids": chain}
            row |= {"input_length": turn.prompt_tokens, "output_length": turn.output_tokens}
            tool = session.turns[i - 1].tool if i else None
            row |= {"delay": 1000.0 * tool.duration_s if tool else 0.0} if i else {"timestamp": 0}
            rows.append(row)
    return rows


def show(pairs: Pairs, against: str) -> None:
    """Means of both sides and the error of each metric, with its interval over the seeds."""
    table = Table(title=f"simulator against {against}", title_justify="left")
    for column in ("policy", "metric", against, "simulator", "error %"):
        table.add_column(column, justify="left" if column in ("policy", "metric") else "right")
    for row in rows(pairs, against):
        theirs, ours = row["theirs"], row["ours"]
        error = errors(theirs, ours)
        half = "" if error is None or error.half is None else f" ± {error.half:.1f}"
        shown = "-" if error is None else f"{error.mean:+.1f}{half}"
        means = (f"{sum(values) / len(values):.3f}" for values in (theirs, ours))
        table.add_row(row["policy"], row["metric"], *means, shown)
    Console(width=None if sys.stdout.isatty() else 110).print(table)


if __name__ == "__main__":
    from benchmarks.cli import run

    raise SystemExit(run(main, sys.argv[1:], "calibrate"))
