# SPDX-License-Identifier: Apache-2.0
"""``tao-bench grid``: policies over set-ups, workloads and concurrencies, each with several seeds, in virtual time.

A cell is one policy on one set-up, workload and concurrency; its line in the output file holds every figure as a list,
one value a seed. Cells that the file holds already are passed over, so a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import mixes, options, simulate
from benchmarks.policies import named as policy_named
from benchmarks.progress import Meter
from benchmarks.simulator import setups
from benchmarks.traces import EXTRACT
from tao_dynamo.errors import ConfigError, TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from benchmarks.metrics import Figures

WORKLOADS = ("swe", "terminal", "claude-code", "api", "mixed")
POLICIES = ("tao", "tao-paper", "thunderagent", "dynamo-kv", "round-robin", "cache-aware", "longest-prefix")
KEPT = (
    *("latency_mean_s", "latency_p95_s", "ttft_mean_s", "ttft_p95_s", "turn_mean_s", "makespan_s"),
    *("decode_tokens_per_s", "stream_tokens_per_s", "cache_hit_share", "wait_mean_s", "wait_max_s"),
    *("pauses", "pause_wait_mean_s", "solves", "solve_mean_ms", "optimal_share", "busy_share"),
    *("turns_done", "turns_failed", "sessions_left"),
)
KEY = ("setup", "workload", "concurrency", "host_tokens", "policy")
LAPS = 2
LEAST_SESSIONS = 64
_DIGITS = 5


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    args = _parser().parse_args(argv)
    options.writable(args.out, "--out")
    for name in args.policies:
        policy_named(name)
    for name in args.setups:
        setups.named(name)
    for name in args.workloads:
        if name not in mixes.NAMES:
            raise ConfigError("--workloads", name, f"among {', '.join(mixes.NAMES)}")
    axes = (args.setups, args.workloads, args.concurrency, (args.host_tokens,), args.policies)
    cells = [dict(zip(KEY, values, strict=True)) for values in itertools.product(*axes)]
    done = {identity(cell) for cell in read(args.out)} if args.out.exists() else set()
    todo = [cell for cell in cells if identity(cell) not in done]
    with Meter("runs", len(todo) * args.seeds) as meter, args.out.open("a", encoding="utf-8") as stream:
        for cell in todo:
            runs: list[Figures] = []
            for seed in range(args.seeds):
                runs.append(run(args, cell, seed))
                meter.step(" ".join(str(cell[key]) for key in KEY))
            stream.write(json.dumps({**cell, "sessions": runs[0]["sessions"], **columns(runs)}) + "\n")
            stream.flush()
    return 0


def run(args: argparse.Namespace, cell: Mapping[str, Any], seed: int) -> Figures:
    """One simulation of a cell."""
    settings = {
        "source": args.source,
        "setup": cell["setup"],
        "workload": cell["workload"],
        "concurrency": cell["concurrency"],
        "sessions": max(LEAST_SESSIONS, LAPS * cell["concurrency"]),
        "host_tokens": cell["host_tokens"],
        "max_pause": args.max_pause,
    }
    unset = dict.fromkeys(
        ("nodes", "node_tokens", "max_turns", "max_prompt_tokens", "arrivals", "rate", "session_rate")
    )
    return simulate.run_once(argparse.Namespace(**settings, **unset), str(cell["policy"]), seed)


def columns(runs: Sequence[Figures]) -> dict[str, list[float | int | str | None]]:
    """The kept figures, each a list with one value a run, to five digits."""
    return {key: [_short(run[key]) for run in runs] for key in KEPT}


def rows(cell: Mapping[str, Any]) -> list[Figures]:
    """A cell's line as one dictionary of figures a seed."""
    count = len(cell[KEPT[0]])
    return [{key: cell[key][i] for key in KEPT if key in cell} for i in range(count)]


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file of cells.

    Raises:
        TraceError: by file and line.
    """
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            cell = json.loads(text)
            identity(cell)
        except (ValueError, KeyError, TypeError) as error:
            raise TraceError(f"{path.name}:{number}", text[:60], "a line of tao-bench grid") from error
        yield cell


def identity(cell: Mapping[str, Any]) -> tuple[Any, ...]:
    """What makes a cell this cell."""
    return tuple(cell[key] for key in KEY)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("tao-bench grid", description=__doc__, formatter_class=options.Help)
    parser.add_argument("--traces", dest="source", type=Path, default=EXTRACT, help="folder of recorded sessions")
    parser.add_argument("--out", type=Path, default=Path("grid.jsonl"), help="one line a cell is added here")
    parser.add_argument("--setups", type=_words, default=tuple(setups.SETUPS), help="names with commas")
    parser.add_argument("--workloads", type=_words, default=WORKLOADS, help="names with commas")
    parser.add_argument("--policies", type=_words, default=POLICIES, help="names with commas")
    parser.add_argument("--concurrency", type=_numbers, default=(16, 32, 64, 128), help="numbers with commas")
    parser.add_argument("--seeds", type=options.whole(1), default=5, help="how many seeds, counted from 0")
    parser.add_argument("--host-tokens", type=options.whole(0), default=0, help="host-memory KV room of a node")
    parser.add_argument("--max-pause", type=options.number(0), default=600.0, help="cut tool and think times to this")
    return parser


def _words(text: str) -> tuple[str, ...]:
    return tuple(_parts(text))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(options.whole(1)(part) for part in _parts(text))


def _parts(text: str) -> Iterable[str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise argparse.ArgumentTypeError("got nothing, want one or more, with commas")
    return parts


def _short(value: float | str | None) -> float | int | str | None:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


if __name__ == "__main__":
    import sys

    from benchmarks.cli import run as run_command

    raise SystemExit(run_command(main, sys.argv[1:], "grid"))
