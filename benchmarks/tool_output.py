# SPDX-License-Identifier: Apache-2.0
"""How fast output flows through ``tao-tool run``: bare and under it, in turns, through a pipe and on a terminal.

    python -m benchmarks.tool_output [--rounds 5] [--megabytes 1024] [--on pipe|terminal]

Read as a harness reads, 64 KiB at a time, from the first byte to the last. CPU seconds are those of the command, of
``tao-tool`` and of all else that they start, by the kernel's count, so they can be compared on a busy machine too.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, cast

CHUNK = 1 << 16
SHIM = [sys.executable, "-m", "tool_hooks.cli", "run", "--session", "tool-output", "--"]


@dataclass(frozen=True)
class Flow:
    """One run: gigabytes per second from the first byte to the last, bytes that came, CPU seconds spent."""

    gb_s: float
    count: int
    cpu_s: float


def through_pipe(command: Sequence[str]) -> Flow:
    """Run a command whose output is a pipe."""
    before = _children_cpu_s()
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as source:
        output = cast("IO[bytes]", source.stdout)
        count, seconds = _drain(lambda: output.read(CHUNK))
    return Flow(count / seconds / 1e9, count, _children_cpu_s() - before)


def on_terminal(command: Sequence[str]) -> Flow:
    """Run a command whose three streams are a terminal of its own."""
    import pty

    before = _children_cpu_s()
    pid, master = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and what it starts would too
        os.execvp(command[0], list(command))  # noqa: S606 - no shell is the point

    def read() -> bytes:
        try:
            return os.read(master, CHUNK)
        except OSError:  # a terminal that nobody has open any longer
            return b""

    count, seconds = _drain(read)
    os.close(master)
    os.waitpid(pid, 0)
    return Flow(count / seconds / 1e9, count, _children_cpu_s() - before)


def _drain(read: Callable[[], bytes]) -> tuple[int, float]:
    count = len(read())
    begun = time.perf_counter()
    while data := read():
        count += len(data)
    return count, time.perf_counter() - begun


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main(argv: Sequence[str] | None = None) -> int:
    """Print a JSON line per source and kind: the best and the median speeds in GB/s, their ratios, CPU seconds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tool_output", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default: 5)")
    parser.add_argument("--megabytes", type=int, default=1024, help="output of each run, in MiB (default: 1024)")
    parser.add_argument("--on", choices=("pipe", "terminal"), default=None, help="one kind only (default: both)")
    args = parser.parse_args(argv)
    size = args.megabytes << 20
    sources = {
        "text": ["sh", "-c", f"yes 0123456789abcdef | head -c {size}"],
        "zeros": ["head", "-c", str(size), "/dev/zero"],
    }
    kinds = {"pipe": through_pipe, "terminal": on_terminal}
    for kind in [args.on] if args.on else kinds:
        for name, command in sources.items():
            pairs = [(kinds[kind](command), kinds[kind]([*SHIM, *command])) for _ in range(args.rounds)]
            if len({flow.count for pair in pairs for flow in pair}) != 1:
                raise RuntimeError(f"{name} on a {kind}: not the same number of bytes each time")
            bare, ours = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            print(json.dumps({"on": kind, "source": name} | _figures(bare, ours)), flush=True)
    return 0


def _figures(bare: Sequence[Flow], ours: Sequence[Flow]) -> dict[str, float]:
    best = [max(flow.gb_s for flow in flows) for flows in (bare, ours)]
    median = [statistics.median(flow.gb_s for flow in flows) for flows in (bare, ours)]
    cpu = [statistics.median(flow.cpu_s for flow in flows) for flows in (bare, ours)]
    return {
        "bare_gb_s": round(best[0], 3),
        "tao_tool_gb_s": round(best[1], 3),
        "ratio": round(best[1] / best[0], 2),
        "ratio_of_medians": round(median[1] / median[0], 2),
        "bare_cpu_s": round(cpu[0], 2),
        "tao_tool_cpu_s": round(cpu[1], 2),
    }


if __name__ == "__main__":
    raise SystemExit(main())
