# SPDX-License-Identifier: Apache-2.0
"""``tao-bench hop``: what a turn pays for passing through a router of its own.

Starts one graph for each way (Dynamo's KV router inside the frontend, a bare Python hop, Dynamo's ThunderAgent router,
TAO), all with mock workers that answer at once, and measures them in turn within each repetition, so that all see the
same machine. Figures are medians over the repetitions; ``of base`` is the rate beside that of the first way in the same
repetition, with the lowest and the highest of these.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import options
from launch.stack import Stack
from tao_dynamo.errors import ConfigError, StackError

HERE = Path(__file__).parent
# Name: graph, options of its services, and the process between frontend and workers.
WAYS: dict[str, tuple[str, dict[str, dict[str, Any]], str | None]] = {
    "embedded KV router": ("graphs/kv_agg:Frontend", {}, None),
    "bare hop": ("hop_graphs:Frontend", {}, "bare-hop"),
    "bare hop, push": ("hop_graphs:Frontend", {"BareHop": {"push": True}}, "bare-hop"),
    "ThunderAgent router": ("graphs/thunderagent_agg:Frontend", {}, "thunderagent-router"),
    "TAO, Dynamo's planes": ("graphs/tao_agg:Frontend", {"TaoRouter": {"tao-direct-streams": False}}, "tao-router"),
    "TAO": ("graphs/tao_agg:Frontend", {}, "tao-router"),
}
PARTS = ("client", "frontend", "router", "worker", "other")
"""Whose CPU is told; ``other`` is the bus."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    args = _parser().parse_args(argv)
    options.writable(args.json, "--json")
    unknown = [name for name in args.ways if name not in WAYS]
    if unknown:
        raise ConfigError("--ways", unknown[0], f"some of {', '.join(WAYS)}")
    loads = [(1, 1, args.turns), (64, 1, args.turns), (1, 32, 4 * args.turns), (64, 32, 4 * args.turns)]
    with contextlib.ExitStack() as stacks:
        graphs = {}
        for name in args.ways:
            graph, config, router = WAYS[name]
            worker = {"Worker": {"speedup-ratio": 1000, "num-gpu-blocks-override": 16384}}
            stack = Stack(graph, workers=args.workers, config={**worker, **config}, directory=HERE)
            print(f"starting {name}", file=sys.stderr)
            stacks.enter_context(stack)
            graphs[name] = {"url": stack.url, "model": stack.model_name, "pids": _parts(stack.pids(), router)}
        job = {"graphs": graphs, "loads": loads, "repetitions": args.repetitions}
        cells = _measured(job, shlex.split(args.measure_with))
    if args.json is not None:
        args.json.write_text(json.dumps(cells) + "\n", encoding="utf-8")
    for load in loads:
        _table(load, cells, args.ways)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("tao-bench hop", description=__doc__, formatter_class=options.Help)
    parser.add_argument("--workers", type=options.whole(1), default=2, help="mock workers of each graph")
    parser.add_argument(
        "--turns", type=options.whole(8), default=200, help="turns of each cell; 4 times with 32 at once"
    )
    parser.add_argument("--repetitions", type=options.whole(1), default=5, help="how often each cell is measured")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), help="which ways to measure")
    parser.add_argument(
        "--measure-with", default="", help="command put before the measuring process, such as 'taskset -c 1'"
    )
    parser.add_argument("--json", type=Path, default=None, help="write every cell here (default: nowhere)")
    return parser


def _parts(pids: Mapping[str, int], router: str | None) -> dict[str, list[int]]:
    """The pids of a graph's processes by the part they play: ``frontend``, ``router``, ``worker``, ``other``."""
    parts: dict[str, list[int]] = {}
    for name, pid in pids.items():
        part = "router" if name == router else name.rpartition("-")[0] or name
        parts.setdefault(part if part in PARTS else "other", []).append(pid)
    return parts


def _measured(job: dict[str, Any], prefix: list[str]) -> list[dict[str, Any]]:
    command = [*prefix, sys.executable, "-m", "benchmarks.hop_load"]
    done = subprocess.run(command, input=json.dumps(job), stdout=subprocess.PIPE, text=True, check=False)
    try:
        cells: list[dict[str, Any]] = json.loads(done.stdout)
    except ValueError as error:
        raise StackError(f"the measuring process ended with status {done.returncode}") from error
    if done.returncode != 0:
        print(f"ended early (status {done.returncode}): {len(cells)} cells", file=sys.stderr)
    return cells


def _table(load: tuple[int, int, int], cells: Sequence[dict[str, Any]], ways: Sequence[str]) -> None:
    tokens, concurrency, turns = load
    print(f"\n{tokens} token{'s' * (tokens > 1)} a turn, {concurrency} in flight, {turns} turns, medians:")
    print(
        f"  {'':24}{'turn ms':>9}{'first ms':>9}{'p95 ms':>9}{'turns/s':>9}{'tokens/s':>10}"
        f"{'of base':>9}{'lowest':>8}{'highest':>8}{'events/turn':>12}"
        f"  us of CPU a token: {' '.join(f'{part:>8}' for part in PARTS)}"
    )
    base: list[dict[str, Any]] = []
    for name in ways:
        mine = [c for c in cells if (c["graph"], c["tokens"], c["concurrency"]) == (name, tokens, concurrency)]
        if not mine:
            continue
        base = base or mine
        # Beside each other in one repetition, since the machine is not the same from one to the next.
        shares = sorted(_rate(cell) / _rate(beside) for cell, beside in zip(mine, base, strict=False))
        print(
            f"  {name:24}{1e3 * _median(mine, lambda c: statistics.median(c['total_s'])):>9.2f}"
            f"{1e3 * _median(mine, lambda c: statistics.median(c['first_s'])):>9.2f}"
            f"{1e3 * _median(mine, lambda c: sorted(c['total_s'])[int(len(c['total_s']) * 0.95)]):>9.2f}"
            f"{_median(mine, lambda c: c['turns'] / c['wall_s']):>9,.0f}{_median(mine, _rate):>10,.0f}"
            f"{statistics.median(shares):>9.2f}{shares[0]:>8.2f}{shares[-1]:>8.2f}"
            f"{_median(mine, lambda c: c['events'] / c['turns']):>12.1f}"
            f"{'':21}{' '.join(f'{_cpu(mine, part):>8.1f}' for part in PARTS)}"
        )


def _rate(cell: Mapping[str, Any]) -> float:
    return float(cell["output_tokens"] / cell["wall_s"])


def _cpu(cells: Sequence[dict[str, Any]], part: str) -> float:
    return 1e6 * _median(cells, lambda c: c["cpu_s"].get(part, 0.0) / c["output_tokens"])


def _median(cells: Sequence[dict[str, Any]], figure: Any) -> float:
    return float(statistics.median(figure(cell) for cell in cells))


if __name__ == "__main__":
    from benchmarks.cli import run

    raise SystemExit(run(main, sys.argv[1:], "hop"))
