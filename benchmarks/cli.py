# SPDX-License-Identifier: Apache-2.0
"""``tao-bench <command>``: finds the command's module and hands it the rest of the line."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

from tao_dynamo.errors import TaoError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Command: module and what it does. Modules are imported only when called: some need heavy packages.
COMMANDS: dict[str, tuple[str, str]] = {
    "replay": ("benchmarks.replay", "replay recorded sessions against a running frontend, as agents would"),
    "simulate": ("benchmarks.simulate", "run one policy on recorded sessions in virtual time"),
    "compare": ("benchmarks.compare", "run several policies on the same sessions and seeds, side by side"),
    "live": ("benchmarks.live", "run several policies as real graphs on the same sessions, side by side"),
    "grid": ("benchmarks.grid", "run policies over set-ups, workloads and concurrencies; goes on where it stopped"),
    "snapshots": ("benchmarks.snapshots", "count how often the exact plan beats a greedy one"),
    "report": ("benchmarks.report.command", "make the tables and plots of docs/results out of its data files"),
    "calibrate": ("benchmarks.calibrate", "set the simulator against Dynamo's own replay"),
    "core": ("benchmarks.core_bench", "time every event of the scheduler's core under a heavy load"),
    "solver": ("benchmarks.solver_bench", "time the solvers and check their answers"),
    "index": ("benchmarks.index_bench", "time and weigh the KV index, beside a plain one"),
    "index-live": ("benchmarks.index_live", "compare the KV index with Dynamo's own beside running workers"),
    "faults": ("benchmarks.faults", "break parts of a running graph and tell what failed and how long it took"),
    "soak": ("benchmarks.soak", "very many sessions at once through a real graph, and what is left of them"),
    "hop": ("benchmarks.hop", "what a turn pays for passing through a router of its own, four ways side by side"),
    "page": ("benchmarks.page_bench", "time a look at a busy router, and the page that shows it"),
    "readiness": ("benchmarks.readiness", "score the tool-duration predictor on recorded calls"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``tao-bench``. Exit codes: 0 well, 1 failed, 2 bad usage, 130 interrupted."""
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("-h", "--help"):
        print(_help())
        return 0 if args else 2
    name, *rest = args
    if name not in COMMANDS:
        print(f"tao-bench: unknown command {name!r}, want one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    return run(importlib.import_module(COMMANDS[name][0]).main, rest, name)


def run(command: Callable[[Sequence[str]], int], args: Sequence[str], name: str) -> int:
    """Call a command; what it raises on purpose becomes one line and an exit code."""
    try:
        return command(args)
    except UsageError as error:
        print(f"tao-bench {name}: {error}", file=sys.stderr)
        return 2
    except TaoError as error:
        print(f"tao-bench {name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of a pipe (such as head) has left; keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {about}" for name, (_, about) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: tao-bench <command> [options]",
            "",
            *lines,
            "",
            "tao-bench <command> --help tells its options.",
        ]
    )


if __name__ == "__main__":
    raise SystemExit(main())
