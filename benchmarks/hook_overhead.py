# SPDX-License-Identifier: Apache-2.0
"""What the shim adds to a tool call: the same call bare and wrapped, in turns; and what `tao-tool` takes to start.

    python -m benchmarks.hook_overhead [--calls 2000] [--rounds 7]

The bus is that of ``NATS_SERVER``; with none there, the shim is measured while the bus is away: a case of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from tool_hooks import default_publisher, session, tool_call, tool_hook

LIMIT_MS = 0.2
START_LIMIT_MS = 150.0
START_RUNS = 9
SHIM = [sys.executable, "-m", "tool_hooks.cli", "run", "--"]
STARTS = {
    "python": [sys.executable, "-c", "pass"],
    "run -- true": [*SHIM, "true"],
    "run --help": [*SHIM[:-1], "--help"],
}


def bare() -> int:
    """A tool that does as good as nothing."""
    return 1


def wrapped() -> int:
    """The same in a context manager."""
    with tool_call("bash", command="pytest -q tests/test_a.py"):
        return 1


def with_progress() -> int:
    """The same, and it says how far it is."""
    with tool_call("bash", command="pytest -q tests/test_a.py") as call:
        call.progress(0.5)
        return 1


@tool_hook
def decorated() -> int:
    """The same under the decorator."""
    return 1


async def _async_calls(calls: int) -> float:
    begun = time.perf_counter()
    for _ in range(calls):
        async with tool_call("bash", command="pytest -q tests/test_a.py"):
            await asyncio.sleep(0)
    return (time.perf_counter() - begun) / calls * 1e3


async def _async_bare(calls: int) -> float:
    begun = time.perf_counter()
    for _ in range(calls):
        await asyncio.sleep(0)
    return (time.perf_counter() - begun) / calls * 1e3


def _per_call_ms(tool: Callable[[], int], calls: int) -> float:
    begun = time.perf_counter()
    for _ in range(calls):
        tool()
    return (time.perf_counter() - begun) / calls * 1e3


def _start_ms(command: Sequence[str]) -> float:
    """The least of several runs: what the machine adds to the others is not the program's."""
    times = []
    for _ in range(START_RUNS):
        begun = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - begun)
    return min(times) * 1e3


def main(argv: Sequence[str] | None = None) -> int:
    """Print a JSON line; exit code 1 when 0.2 ms or more are added to a call, or 150 ms to Python's own start."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hook_overhead", description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=2000, help="calls per round (default: 2000)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds, of which the median counts (default: 7)")
    args = parser.parse_args(argv)
    forms = {"tool_call": wrapped, "tool_call + progress": with_progress, "tool_hook": decorated}
    added: dict[str, list[float]] = {name: [] for name in [*forms, "async tool_call"]}
    publisher = default_publisher()
    with session("overhead"):
        for _ in range(args.rounds):
            plain = _per_call_ms(bare, args.calls)
            for name, form in forms.items():
                added[name].append(_per_call_ms(form, args.calls) - plain)
                publisher.flush(2.0)
            plain = asyncio.run(_async_bare(args.calls))
            added["async tool_call"].append(asyncio.run(_async_calls(args.calls)) - plain)
            publisher.flush(2.0)
    report = {name: round(statistics.median(values), 4) for name, values in added.items()}
    counters = publisher.counters
    starts = {name: round(_start_ms(command), 1) for name, command in STARTS.items()}
    figures = {"added_ms_per_call": report, "sent": counters.sent, "dropped": counters.dropped, "start_ms": starts}
    print(json.dumps(figures))
    light = max(starts.values()) - starts["python"] < START_LIMIT_MS
    return 0 if max(report.values()) < LIMIT_MS and light else 1


if __name__ == "__main__":
    raise SystemExit(main())
