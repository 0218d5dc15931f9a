# SPDX-License-Identifier: Apache-2.0
"""``tao-bench page``: what a look at a busy router costs it, and whether the page keeps up with it.

Makes a router's core with many sessions in all states (no workers, no bus), takes snapshots of it as the router does
while somebody watches, and tells the work of one, how long it ever kept the event loop, and how many were made for how
many viewers. With ``--browser`` it also opens the page in Chromium and measures the frames while it is scrolled.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Sequence
from typing import Any

from kv_events.credit import CreditTable
from kv_events.index import BlockIndex
from kv_events.types import NodeId
from solver.front import solve
from solver.planner import Planner
from solver.problem import Plan, Problem
from tao_dynamo.core.policy import DEFAULT
from tao_dynamo.core.scheduler import Scheduler
from tao_dynamo.core.turn import Turn
from tao_dynamo.errors import ConfigError, StackError
from tao_dynamo.page.server import PageServer
from tao_dynamo.page.shared import Shared
from tao_dynamo.shell import status
from tao_dynamo.shell.bus import Bus
from tao_dynamo.shell.failures import DynamoFailures
from tao_dynamo.shell.handler import Handler
from tao_dynamo.shell.loop import Driver
from tao_dynamo.shell.prompts import Prompts
from tao_dynamo.shell.snapshot import snapshot
from tao_dynamo.shell.sources import Sources
from tao_dynamo.shell.workers import Workers
from tool_hooks.predictor import Predictor

_TOOLS = ("pytest -q", "pip install x", "git diff", "make", "sleep 9")
_FRAMES = """(until) => new Promise((done) => {
  const frames = [];
  let last = performance.now();
  const end = last + until;
  const tick = (now) => {
    frames.push(now - last);
    last = now;
    scrollBy(0, 40);
    if (scrollY + innerHeight >= document.documentElement.scrollHeight - 2) scrollTo(0, 0);
    if (now < end) requestAnimationFrame(tick); else done(frames);
  };
  requestAnimationFrame(tick);
})"""


class _Nobody:
    """No workers to discover, none to send to, and a solver on the spot."""

    def instance_ids(self) -> list[int]:
        """None."""
        return []

    def cards(self) -> dict[int, str]:
        """None."""
        return {}

    async def solve_async(self, problem: Problem, budget_ms: float) -> Plan:  # noqa: ARG002
        """Best-fit decreasing."""
        return solve(problem, method="bfd")

    async def __call__(self, request: dict[str, Any], node: NodeId, context: Any) -> Any:  # noqa: ARG002
        raise StackError(f"there is no worker {node} here")


def crowd(sessions: int, nodes: int, seed: int) -> Sources:
    """A router with that many sessions: about a third runs, a third runs tools, a third waits."""
    rng = random.Random(seed)
    nobody = _Nobody()
    index = BlockIndex()
    credit, predictor = CreditTable(index), Predictor()
    scheduler = Scheduler(DEFAULT, credit=credit, readiness=predictor)
    driver = Driver(scheduler, nobody)
    bus = Bus(driver, credit, predictor)
    workers = Workers(nobody, bus, clock=driver.clock)
    room = sessions * 4500 // nodes
    for _ in range(nodes):
        node = NodeId(2**63 + rng.getrandbits(62), 0)
        driver.feed(scheduler.node_joined, node, capacity_tokens=room, block_size=16)
        credit.approximate(node)
    for number in range(sessions):
        name, tokens = f"agent-{number:05}", rng.randrange(2000, 12_000)
        credit.turn(name, {16: [rng.getrandbits(63) for _ in range(tokens // 16)]}, driver.clock())
        ticket = driver.arrive(Turn(name, name, tokens))
        if ticket.answer is None or rng.random() < 0.4:
            continue
        driver.feed(scheduler.first_token, name)
        driver.feed(scheduler.turn_ended, name, output_tokens=100)
        driver.leave(ticket)
        predictor.started(name, "call", None, driver.clock(), command=rng.choice(_TOOLS))
        driver.feed(scheduler.tool_changed, name)
    handler = Handler(
        driver,
        nobody,
        credit=credit,
        predictor=predictor,
        prompts=Prompts(),
        bus=bus,
        workers=workers,
        failures=DynamoFailures(),
    )
    return Sources(
        driver=driver,
        handler=handler,
        bus=bus,
        workers=workers,
        index=index,
        predictor=predictor,
        planner=Planner(),
        reader=None,
    )


async def measure(sources: Sources, seconds: float, viewers: int) -> dict[str, Any]:
    """Let viewers ask once a second for that long; the figures, times in milliseconds."""
    shared = Shared(lambda: snapshot(sources))
    gaps: list[float] = []
    until = time.perf_counter() + seconds

    async def tick() -> None:
        last = time.perf_counter()
        while last < until:
            await asyncio.sleep(0)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    async def view(number: int) -> list[float]:
        took = []
        await asyncio.sleep(number / viewers)
        while time.perf_counter() < until:
            took.append((await shared.get()).snapshot.took_ms)
            await asyncio.sleep(1.0)
        return took

    first = await shared.get()
    ticking = asyncio.create_task(tick())
    took = [ms for each in await asyncio.gather(*(view(number) for number in range(viewers))) for ms in each]
    await ticking
    gaps.sort()
    return {
        "sessions": len(first.snapshot.sessions),
        "by_state": first.snapshot.by_state,
        "nodes": len(first.snapshot.nodes),
        "look_ms": round(statistics.median(took), 2),
        "loop_held_p99.9_ms": round(1e3 * gaps[int(0.999 * (len(gaps) - 1))], 2),
        "loop_held_max_ms": round(1e3 * gaps[-1], 2),
        "json_bytes": len(first.body),
        "packed_bytes": len(first.packed),
        "viewers": viewers,
        "asked": len(took),
        "made": shared.made,
        "seconds": seconds,
    }


async def frames(sources: Sources, seconds: float, chromium: str) -> dict[str, Any]:
    """Open the page, scroll it while it is updated; the time between frames, in milliseconds."""
    from playwright.async_api import async_playwright

    server = PageServer(
        Shared(lambda: snapshot(sources)), lambda session: status.explain(sources, {"session": session}), port=0
    )
    url = await server.start()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": 1440, "height": 900})
        await page.goto(url)
        await page.wait_for_selector(".row")
        seen = sorted(await page.evaluate(_FRAMES, seconds * 1e3))
        elements = await page.evaluate("document.querySelectorAll('*').length")
        await browser.close()
    await server.close()
    return {
        "frames": len(seen),
        "frame_p50_ms": round(statistics.median(seen), 1),
        "frame_p99_ms": round(seen[int(0.99 * (len(seen) - 1))], 1),
        "frame_max_ms": round(seen[-1], 1),
        "elements": elements,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; prints one JSON object."""
    parser = argparse.ArgumentParser(prog="tao-bench page", description=__doc__)
    parser.add_argument("--sessions", type=int, default=2000, help="sessions [default: 2000]")
    parser.add_argument("--nodes", type=int, default=8, help="nodes [default: 8]")
    parser.add_argument("--viewers", type=int, default=20, help="who look, once a second each [default: 20]")
    parser.add_argument("--seconds", type=float, default=5.0, help="for how long [default: 5]")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sessions [default: 1]")
    parser.add_argument("--browser", metavar="PATH", help="a Chromium to open the page with [default: none]")
    args = parser.parse_args(argv)
    for name in ("sessions", "nodes", "viewers"):
        if getattr(args, name) < 1:
            raise ConfigError(f"--{name}", getattr(args, name), "1 or more")
    told = asyncio.run(_run(args))
    print(json.dumps(told, indent=2))
    return 0


async def _run(args: argparse.Namespace) -> dict[str, Any]:
    sources = crowd(args.sessions, args.nodes, args.seed)
    await asyncio.sleep(0.2)  # the solves of the last arrivals
    told = await measure(sources, args.seconds, args.viewers)
    if args.browser:
        told |= await frames(sources, args.seconds, args.browser)
    sources.driver.close()
    return told
