# SPDX-License-Identifier: Apache-2.0
"""``tao-bench faults``: what breaks when parts of a graph do, and how long until all is well again.

A fresh graph with mock workers serves agents all the time, in short supply of KV room. One after the other a worker,
the planner and TAO itself are killed, NATS goes away, and clients hang up at random. Told are the turns that failed,
those that were in flight on the killed part, and the seconds to recover.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import options
from benchmarks.fleet import Fleet, Shape
from benchmarks.http_stream import Target
from launch.stack import Stack
from tao_dynamo.errors import ConfigError, StackError
from tool_hooks.nats_wire import NatsOptions
from tool_hooks.publisher import Publisher

_LOOK_S = 0.1
_RECOVERY_LIMIT_S = 180.0


@dataclass
class Report:
    """What one fault did. ``failed``: turns that broke, by words; ``turned_away``: tries while nobody served.

    ``in_flight``: turns that the killed part was serving at that moment; only those may fail.
    """

    fault: str
    in_flight: int = 0
    failed: int = 0
    turned_away: int = 0
    left: int = 0
    served: int = 0
    recovered_s: float = 0.0
    recovered_means: str = ""
    words: dict[str, int] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        """Turns that failed without having been in flight on the killed part."""
        return max(0, self.failed - self.in_flight)


def at_rest(status: dict[str, Any]) -> bool:
    """No turn waits or runs, nothing is reserved for one."""
    sessions = status["sessions"]
    return bool(status["turns"]["live"] == sessions["running"] == sessions["waiting"] == 0)


class Lab:
    """A graph under load, and the ways to break it."""

    def __init__(self, stack: Stack, fleet: Fleet, seed: int) -> None:
        self.stack = stack
        self.fleet = fleet
        self.random = random.Random(seed)

    async def status(self) -> dict[str, Any]:
        """TAO's status."""
        page: dict[str, Any] = await asyncio.to_thread(self.stack.status)
        return page

    async def until(self, well: Callable[[dict[str, Any]], bool]) -> float:
        """Wait until the status says so; returns the seconds that took."""
        began = time.monotonic()
        page: dict[str, Any] = {}
        while time.monotonic() - began < _RECOVERY_LIMIT_S:
            with contextlib.suppress(OSError, ValueError, StackError):
                page = await self.status()
                if well(page):
                    return time.monotonic() - began
            await asyncio.sleep(_LOOK_S)
        seen = {name: page.get(name) for name in ("sessions", "turns", "solves", "bus", "nodes")}
        raise StackError(f"not well after {_RECOVERY_LIMIT_S:g} s: {json.dumps(seen)}")

    async def worker(self, report: Report) -> None:
        """A worker is killed; the supervisor puts another in its place."""
        before = {node["node"] for node in (await self.status())["nodes"]}
        name = self.random.choice([child for child in self.stack.names() if child.startswith("worker-")])
        heard = len(self.stack.log("tao-router"))
        await asyncio.to_thread(self.stack.kill, name)
        report.recovered_s = await self.until(
            lambda s: (
                len(s["nodes"]) == len(before)
                and {node["node"] for node in s["nodes"]} != before
                and not any(node["stale"] for node in s["nodes"])
            )
        )
        gone = before - {node["node"] for node in (await self.status())["nodes"]}
        await asyncio.sleep(1.0)
        # What TAO says of each turn that broke: on which node it was.
        failed = re.findall(r"event=turn_failed .*?node=(\S+)", self.stack.log("tao-router")[heard:])
        report.in_flight = sum(node in gone for node in failed)
        report.recovered_means = "as many nodes as before, none stale"

    async def planner(self, report: Report) -> None:
        """The planner process is killed."""
        page = await self.status()
        for pid in planners_of(self.stack.pids()["tao-router"]):
            os.kill(pid, signal.SIGKILL)
        report.recovered_s = await self.until(
            lambda s: (
                s["solves"]["restarts"] > page["solves"]["restarts"]
                and s["solves"]["cpu_solves"] > page["solves"]["cpu_solves"]
            )
        )
        report.recovered_means = "the new planner has solved"

    async def nats(self, report: Report, away_s: float = 20.0) -> None:
        """NATS is away."""
        await asyncio.to_thread(self.stack.stop, "nats")
        await self.until(lambda s: not s["bus"]["connected"])
        await asyncio.sleep(away_s)
        await asyncio.to_thread(self.stack.start, "nats")
        report.recovered_s = await self.until(lambda s: s["bus"]["connected"] and not s["bus"]["stale_nodes"])
        report.recovered_means = "bus connected, no node stale, after its return"

    async def clients(self, report: Report, seconds: float = 10.0) -> None:
        """Clients hang up at random."""
        until = time.monotonic() + seconds
        hung_up = 0
        while time.monotonic() < until:
            hung_up += self.fleet.leave(self.random)
            await asyncio.sleep(0.03)
        live = {*self.fleet.in_flight}
        report.recovered_s = await self.until(lambda s: s["turns"]["live"] <= len(live | {*self.fleet.in_flight}))
        report.recovered_means = f"{hung_up} hung up; TAO has no more live turns than there are clients"

    async def router(self, report: Report) -> None:
        """TAO is killed; the supervisor starts it again."""
        report.in_flight = len(self.fleet.in_flight)
        began = time.monotonic()
        restarts = self.stack.supervisor.keepers["tao-router"].restarts
        await asyncio.to_thread(self.stack.kill, "tao-router")
        await asyncio.to_thread(self.stack.wait_restarted, "tao-router", restarts + 1, _RECOVERY_LIMIT_S)
        page = await self.status()
        if page["bus"]["stale_nodes"] or not page["index"]["resident"]:
            raise StackError("TAO reported readiness before its index was warm")
        while not any(turn.error is None and turn.sent_s > began and not turn.left for turn in self.fleet.turns):
            await asyncio.sleep(_LOOK_S)
            if time.monotonic() - began > _RECOVERY_LIMIT_S:
                raise StackError(f"no turn is served {_RECOVERY_LIMIT_S:g} s after TAO was killed")
        report.recovered_s = time.monotonic() - began
        report.recovered_means = "first turn served by the new one, its index warm"


FAULTS: dict[str, Callable[[Lab, Report], Awaitable[None]]] = {
    "worker": Lab.worker,
    "planner": Lab.planner,
    "nats": Lab.nats,
    "clients": Lab.clients,
    "router": Lab.router,
}


def planners_of(router: int) -> list[int]:
    """Pids of the router's planner processes."""
    tasks = Path(f"/proc/{router}/task").iterdir()
    children = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
    return [pid for pid in children if b"planner" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Exit code 0: only what was in flight on the killed part failed, and nothing was left over."""
    args = _parser().parse_args(argv)
    options.writable(args.json, "--json")
    unknown = [name for name in args.faults if name not in FAULTS]
    if unknown:
        raise ConfigError("--faults", unknown[0], f"some of {', '.join(FAULTS)}")
    reports = asyncio.run(_run(args))
    print(
        f"{'fault':10}{'in flight':>10}{'failed':>8}{'of others':>10}{'turned away':>12}{'hung up':>9}{'served':>8}"
        f"{'recovered s':>13}"
    )
    for report in reports:
        print(
            f"{report.fault:10}{report.in_flight:>10}{report.failed:>8}{report.lost:>10}{report.turned_away:>12}"
            f"{report.left:>9}{report.served:>8}{report.recovered_s:>13.1f}  {report.recovered_means}"
        )
        for words, count in report.words.items():
            print(f"           {count} x {words}")
    if args.json is not None:
        text = json.dumps([asdict(report) | {"lost": report.lost} for report in reports], indent=1)
        args.json.write_text(text + "\n", encoding="utf-8")
    return 1 if any(report.lost for report in reports) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("tao-bench faults", description=__doc__, formatter_class=options.Help)
    parser.add_argument("--faults", nargs="+", default=list(FAULTS), help="which faults, in order")
    parser.add_argument("--agents", type=options.whole(1), default=64, help="sessions at once")
    parser.add_argument("--workers", type=options.whole(1), default=3, help="mock workers")
    parser.add_argument("--blocks", type=options.whole(16), default=512, help="KV blocks of a worker, of 16 tokens")
    parser.add_argument("--speedup", type=options.number(0, above=True), default=2.0, help="of the mock workers")
    parser.add_argument("--seed", type=int, default=0, help="of the agents, and of what is killed")
    parser.add_argument("--json", type=Path, default=None, help="write the figures here (default: nowhere)")
    return parser


async def _run(args: argparse.Namespace) -> list[Report]:
    config = {
        "Worker": {"num-gpu-blocks-override": args.blocks, "speedup-ratio": args.speedup},
        "TaoRouter": {"tao-max-waiting": 10 * args.agents},
    }
    reports = []
    async with Stack("graphs/tao_agg:Frontend", workers=args.workers, config=config) as stack:
        publisher = Publisher(options=NatsOptions(servers=(stack.nats_url,)), namespace=stack.namespace)
        target = Target(stack.url, "/v1/completions")
        fleet = Fleet(target, stack.model_name, Shape(agents=args.agents, seed=args.seed), publisher)
        lab = Lab(stack, fleet, args.seed)
        running = asyncio.create_task(fleet.run())
        try:
            for name in args.faults:
                await asyncio.sleep(4.0)
                reports.append(await _fault(lab, name))
            fleet.stop()
            await running
            after = await lab.until(at_rest)
            print(f"at rest {after:.1f} s after the last turn", file=sys.stderr)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await asyncio.to_thread(publisher.close, 5.0)
    return reports


async def _fault(lab: Lab, name: str) -> Report:
    report = Report(name)
    began = time.monotonic()
    print(f"fault: {name}", file=sys.stderr)
    await FAULTS[name](lab, report)
    await asyncio.sleep(2.0)
    turns = lab.fleet.since(began)
    broken = [turn for turn in turns if turn.error is not None]
    failed = [turn for turn in broken if turn.sent_s <= began or name != "router"]
    report.failed, report.turned_away = len(failed), len(broken) - len(failed)
    report.left = sum(turn.left for turn in turns)
    report.served = sum(turn.error is None and not turn.left for turn in turns)
    report.words = dict(Counter((turn.error or "")[:160] for turn in failed).most_common(4))
    return report


if __name__ == "__main__":
    from benchmarks.cli import run

    raise SystemExit(run(main, sys.argv[1:], "faults"))
