# SPDX-License-Identifier: Apache-2.0
"""``make demo``: recorded mini-SWE-agent sessions through a real Dynamo graph with TAO in it, and what must be seen.

Two mock workers whose KV room holds about half of the sessions; tools "run" for their recorded time. The mock engine
and the recorded tool and think times are both sped up by the same factor, so their proportions stay. Ends with a
table, one line per check, and a non-zero exit if a check failed.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import options, replay
from benchmarks.workload import room_blocks
from launch.stack import Stack

_SEED = 1
_WORKERS = 2
_BLOCK = 16


@dataclass(frozen=True, slots=True)
class Check:
    """Something that must be seen: what, whether it was, and the figures that say so."""

    what: str
    passed: bool
    seen: str


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; exit code 0: everything that must be seen was seen."""
    args = _parser().parse_args(argv)
    # make and a terminal send SIGINT, others SIGTERM; both unwind, and unwinding stops the stack.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    load = options.workload(args)
    blocks = room_blocks(load, len(load.sessions), _WORKERS, _BLOCK)
    print(
        f"{len(load.sessions)} recorded sessions, {load.turns} turns; {_WORKERS} workers with KV room for "
        f"{blocks * _BLOCK:,} tokens each, about half of them; engine and tools run {args.speed:g} times as fast"
    )
    worker = {"num-gpu-blocks-override": blocks, "speedup-ratio": args.speed}
    with Stack(workers=_WORKERS, block_size=_BLOCK, config={"Worker": worker}, tell=print) as stack:
        status_url = f"http://127.0.0.1:{stack.system_port('tao-router')}/engine/tao/status"
        figures = _replay(stack, args, status_url)
        checks = judge(figures, stack.status())
    for check in checks:
        print(f"{'ok    ' if check.passed else 'FAILED'}  {check.what}: {check.seen}")
    return 0 if all(check.passed for check in checks) else 1


def _replay(stack: Stack, args: argparse.Namespace, status_url: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "figures.json"
        words = ["--url", stack.url, "--model", stack.model_name, "--source", str(args.source)]
        words += ["--sessions", str(args.sessions), "--concurrency", str(args.concurrency), "--seed", str(args.seed)]
        words += ["--max-pause", str(args.max_pause), "--time-scale", f"{1 / args.speed:.6g}"]
        words += ["--nats", stack.nats_url, "--namespace", stack.namespace, "--status-url", status_url]
        for flag, value in (("--max-turns", args.max_turns), ("--max-prompt-tokens", args.max_prompt_tokens)):
            words += [] if value is None else [flag, str(value)]
        replay.main([*words, "--json", str(result)])
        if args.json is not None:
            args.json.write_bytes(result.read_bytes())
        figures: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return figures


def judge(figures: Mapping[str, Any], status: Mapping[str, Any]) -> list[Check]:
    """What must be seen, from the replay's figures and TAO's status after it."""
    flat = replay_status(status)

    def figure(name: str) -> float:
        value = figures.get(name)
        return -1.0 if value is None else float(value)

    failed, done = figure("turns_failed"), figure("turns_done")
    pauses, restarts = figure("pauses"), figure("restarts")
    sent, received = figure("tool_events_sent"), figure("tool_events_received")
    # A session's first turn may have credit too, for a system prompt that it shares; those do not count.
    credited = flat.get("turns_with_credit", 0) - figure("sessions")
    plans = figure("plans_applied")
    return [
        Check("0 failed turns", failed == 0 and done > 0, f"{done:g} done, {failed:g} failed"),
        Check("sessions were paused", pauses > 0, f"{pauses:g} pauses"),
        Check("every paused session was restarted", restarts == pauses > 0, f"{restarts:g} restarts"),
        Check("returning sessions had credit", credited > 0, f"at {max(0, credited):g} turns or more"),
        Check("tool events received = sent", received == sent > 0, f"{received:g} of {sent:g}"),
        Check("plans were applied", plans > 0, f"{plans:g} plans"),
    ]


def replay_status(page: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a status page by their own names, however deep they lie."""
    flat: dict[str, float] = {}
    for key, value in page.items():
        if isinstance(value, Mapping):
            for inner, found in replay_status(value).items():
                flat.setdefault(inner, found)
        elif isinstance(value, int | float):
            flat[key] = value
    return flat


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("make demo", description=__doc__, formatter_class=options.Help)
    options.add_workload(parser, traces="--traces", sessions=16, concurrency=16)
    parser.set_defaults(seed=_SEED)
    parser.add_argument(
        "--speed",
        type=options.number(0, above=True),
        default=8.0,
        help="how many times as fast as recorded the mock engine and the tools run",
    )
    parser.add_argument("--json", type=Path, default=None, help="write the figures here (default: nowhere)")
    return parser


if __name__ == "__main__":
    from benchmarks.cli import run

    sys.exit(run(main, sys.argv[1:], "demo"))
