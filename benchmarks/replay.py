# SPDX-License-Identifier: Apache-2.0
"""``tao-bench replay``: recorded sessions against a running frontend, over HTTP, as agents would run them.

Each turn's prompt is its session's real context, token for token: the prompt before, the answer that the
model gave, and fresh tokens in place of the tool's result. Sessions of one harness share its system prompt.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import options
from benchmarks.agent import Agent, Ask, Tally
from benchmarks.http_stream import Target, get
from benchmarks.metrics import Figures, figures
from benchmarks.progress import Meter, print_table
from benchmarks.router_status import KEYS, RouterStatus
from tao_dynamo.errors import ConfigError, StackError
from tool_hooks.nats_wire import NatsOptions
from tool_hooks.publisher import Publisher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.traces import Session
    from benchmarks.workload import Workload

_SHOW_ERRORS = 5
_SETTLE_S = 0.5


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Exit code 0: every turn was served; 1: some failed."""
    args = parser().parse_args(argv)
    options.writable(args.json, "--json")
    target = Target(args.url, "/v1/completions")
    status = None if args.status_url is None else Target(args.status_url, "", flag="--status-url")
    load = options.workload(args)
    result, errors = asyncio.run(replay(args, target, status, load))
    print_table(title(args, load), result)
    for error in errors[:_SHOW_ERRORS]:
        print(f"failed turn: {error}", file=sys.stderr)
    if len(errors) > _SHOW_ERRORS:
        print(f"... and {len(errors) - _SHOW_ERRORS} more failed turns", file=sys.stderr)
    if args.json is not None:
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if not errors else 1


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = argparse.ArgumentParser("tao-bench replay", description=__doc__, formatter_class=options.Help)
    made.add_argument("--url", default="http://127.0.0.1:8000", help="the frontend's address")
    made.add_argument("--model", default=None, help="model name (default: the frontend's only one)")
    options.add_workload(made, traces="--source", sessions=16, concurrency=16)
    made.add_argument(
        "--time-scale",
        type=options.number(0),
        default=1.0,
        help="multiply recorded tool and think times by this; 0.1 is ten times faster",
    )
    made.add_argument(
        "--nats",
        default=os.environ.get("NATS_SERVER"),
        help="publish tool events here, env NATS_SERVER; none are sent without (default: %(default)s)",
    )
    made.add_argument(
        "--namespace",
        default=os.environ.get("DYN_NAMESPACE", "dynamo"),
        help="of the tool events, env DYN_NAMESPACE",
    )
    made.add_argument(
        "--status-url",
        default=None,
        help="TAO's status page, http://HOST:SYSTEMPORT/engine/tao/status (default: none)",
    )
    made.add_argument(
        "--timeout",
        type=options.number(0, above=True),
        default=600.0,
        help="seconds until a turn counts as failed",
    )
    made.add_argument(
        "--vocabulary",
        type=options.int_range,
        default=(300, 2300),
        help="token ids to make prompts of, LOW:HIGH",
    )
    made.add_argument(
        "--session-final",
        choices=("mark", "request", "never"),
        default="mark",
        help="tell a session's end on its last turn, by a request of its own (as ThunderAgent wants it), or not at all",
    )
    made.add_argument("--run-id", default=None, help="prefix of session ids (default: made from the time)")
    made.add_argument("--json", type=Path, default=None, help="write the figures here (default: nowhere)")
    return made


async def replay(
    args: argparse.Namespace, target: Target, status: Target | None, load: Workload
) -> tuple[Figures, list[str]]:
    """Replay the sessions with the options of :func:`parser`; gives the figures, and why turns failed."""
    model = args.model or await _only_model(args.url)
    router = None if status is None else RouterStatus(status)
    before = await router.read() if router else None
    watching = asyncio.create_task(router.watch()) if router else None
    tally = Tally([], [])
    sink = _publisher(args)
    ask = Ask(target, model, args.timeout, args.vocabulary)
    run_id = args.run_id or f"r{time.time_ns() // 1_000_000:x}"
    try:
        with Meter("turns", load.turns) as meter:

            def heard() -> None:
                meter.step(f"{tally.asking} asking, {tally.in_tools} in tools, {len(tally.sessions)} sessions ended")

            agent = Agent(
                ask,
                tally,
                time_scale=args.time_scale,
                run_id=run_id,
                sink=sink,
                heard=heard,
                closing=args.session_final,
            )
            await run_closed_loop(agent, load.sessions, args.concurrency)
    finally:
        if watching is not None:
            watching.cancel()
        if sink is not None:
            await asyncio.to_thread(sink.close, 5.0)
    result = figures(tally.turns, tally.sessions)
    if router is not None and before is not None:
        # The last turn's end and the last tool events are still on their way to the router.
        await asyncio.sleep(_SETTLE_S)
        result |= router.figures(before, await router.read())
    else:
        result |= dict.fromkeys(KEYS)
    result["tool_events_sent"] = sink.sent if sink is not None else 0
    result["answers_inexact"] = tally.inexact
    result["tool_s"] = tally.tool_seconds
    result |= _settings(args, load, model)
    return result, [t.error for t in tally.turns if t.error is not None]


async def run_closed_loop(agent: Agent, sessions: Sequence[Session], concurrency: int) -> None:
    """Run sessions in order, ``concurrency`` at once: when one ends the next begins."""
    waiting = iter(sessions)

    async def worker() -> None:
        for session in waiting:
            await agent.run(session)

    workers = [asyncio.create_task(worker()) for _ in range(min(concurrency, len(sessions)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


def _publisher(args: argparse.Namespace) -> Publisher | None:
    if not args.nats:
        return None
    return Publisher(namespace=args.namespace, options=NatsOptions.from_env({**os.environ, "NATS_SERVER": args.nats}))


async def _only_model(url: str) -> str:
    target = Target(url, "/v1/models")
    try:
        names = [model["id"] for model in json.loads(await get(target))["data"]]
    except (ValueError, KeyError, TypeError) as error:
        raise StackError(f"{target}: not a list of models ({error})") from error
    if len(names) != 1:
        raise ConfigError("--model", None, f"one of the frontend's models: {', '.join(names) or 'it has none'}")
    return str(names[0])


def _settings(args: argparse.Namespace, load: Workload, model: str) -> Figures:
    return {
        "model": model,
        "source": args.source.stem,
        "sessions": len(load.sessions),
        "concurrency": args.concurrency,
        "seed": args.seed,
        "time_scale": args.time_scale,
        "context_scale": load.context_scale,
    }


def title(args: argparse.Namespace, load: Workload) -> str:
    """What was run, in a line."""

    def scaled(what: str, factor: float) -> str:
        return f"{what} as recorded" if factor == 1 else f"{what} x {factor:.4g}"

    parts = [f"{len(load.sessions)} sessions of {args.source.stem}, {args.concurrency} at once, seed {args.seed}"]
    parts += [scaled("tool and think times", args.time_scale), scaled("contexts", load.context_scale)]
    return "; ".join(parts)


if __name__ == "__main__":
    from benchmarks.cli import run

    raise SystemExit(run(main, sys.argv[1:], "replay"))
