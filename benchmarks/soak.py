# SPDX-License-Identifier: Apache-2.0
"""``tao-bench soak``: very many sessions at once through a real graph, and what is left of them afterwards: nothing.

All turns must be served, and when they are, nothing may wait, hold room or fill a table.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import options
from benchmarks.faults import at_rest
from benchmarks.fleet import Fleet, Shape
from benchmarks.http_stream import Target
from launch.stack import Stack
from tao_dynamo.errors import StackError

_REST_S = 60.0
_TURN_S = 600.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Exit code 0: every turn was served and nothing is left over."""
    args = _parser().parse_args(argv)
    return asyncio.run(_run(args))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("tao-bench soak", description=__doc__, formatter_class=options.Help)
    parser.add_argument("--sessions", type=options.whole(1), default=2048, help="sessions at once")
    parser.add_argument(
        "--rounds", type=options.whole(1), default=1, help="sessions of each agent, one after the other"
    )
    parser.add_argument("--turns", type=options.whole(1), default=3, help="turns of a session")
    parser.add_argument("--tool-s", type=options.number(0), default=1.0, help="seconds of a tool call, about")
    parser.add_argument("--start-s", type=options.number(0), default=10.0, help="seconds in which all begin")
    parser.add_argument("--workers", type=options.whole(1), default=4, help="mock workers")
    parser.add_argument("--blocks", type=options.whole(16), default=4096, help="KV blocks of a worker, of 16 tokens")
    parser.add_argument("--speedup", type=options.number(0, above=True), default=1000.0, help="of the mock workers")
    return parser


async def _run(args: argparse.Namespace) -> int:
    config = {
        "Worker": {"num-gpu-blocks-override": args.blocks, "speedup-ratio": args.speedup},
        "TaoRouter": {"tao-max-waiting": 2 * args.sessions},
    }
    shape = Shape(
        agents=args.sessions,
        turns=args.turns,
        first_prompt=160,
        growth=80,
        output=8,
        tool_s=args.tool_s,
        start_s=args.start_s,
        timeout_s=_TURN_S,
    )
    async with Stack("graphs/tao_agg:Frontend", workers=args.workers, config=config) as stack:
        router = stack.pids()["tao-router"]
        fleet = Fleet(Target(stack.url, "/v1/completions"), stack.model_name, shape, name="soak")
        memory, began = [_memory_mib(router)], time.monotonic()
        peak: Counter[str] = Counter()
        running = asyncio.create_task(fleet.run(args.rounds))
        try:
            while not running.done():
                await asyncio.wait((running,), timeout=1.0)
                with contextlib.suppress(OSError, ValueError):  # a busy machine may be late with the status
                    page = await asyncio.to_thread(stack.status)
                    for name, value in {**page["sessions"], "live turns": page["turns"]["live"]}.items():
                        peak[name] = max(peak[name], value)
            running.result()
        finally:
            running.cancel()
        seconds = time.monotonic() - began
        page = await _rested(stack)
        memory.append(_memory_mib(router))
    broken = [turn for turn in fleet.turns if turn.error is not None]
    left = _left_over(page)
    served = len(fleet.turns) - len(broken)
    print(f"{args.sessions} sessions at once, {served} turns served, {len(broken)} failed, {seconds:.1f} s")
    print(f"at most at once: {', '.join(f'{value} {name}' for name, value in peak.items() if value)}")
    print(f"pauses {page['pauses']}, restarts {page['restarts']}, plans applied {page['plans_applied']}")
    print(f"memory of the router: {memory[0]:.0f} MiB before, {memory[1]:.0f} MiB after")
    print(f"left over: {', '.join(f'{value} {name}' for name, value in left.items()) or 'nothing'}")
    for words, count in Counter(turn.error for turn in broken).most_common(5):
        print(f"  {count} x {words}")
    return 1 if broken or left else 0


async def _rested(stack: Stack) -> dict[str, Any]:
    until = time.monotonic() + _REST_S
    while True:
        page: dict[str, Any] = await asyncio.to_thread(stack.status)
        if at_rest(page) and not _left_over(page):
            return page
        if time.monotonic() > until:
            if at_rest(page):
                return page
            raise StackError(f"turns are live {_REST_S:g} s after the last client left: {page['turns']}")
        await asyncio.sleep(0.5)


def _left_over(page: dict[str, Any]) -> dict[str, float]:
    """What is not zero though every session has ended."""
    counts: dict[str, float] = {f"sessions {state}": count for state, count in page["sessions"].items()}
    counts["live turns"] = page["turns"]["live"]
    counts["reserved tokens"] = sum(node["reserved"] for node in page["nodes"])
    counts["paused"] = page["paused_without_turn"]
    return {name: value for name, value in counts.items() if value}


def _memory_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 2**20


if __name__ == "__main__":
    from benchmarks.cli import run

    raise SystemExit(run(main, sys.argv[1:], "soak"))
