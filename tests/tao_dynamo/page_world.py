# SPDX-License-Identifier: Apache-2.0
"""A router's snapshot out of thin air, served as the real one is, and a browser to look at it with."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from tao_dynamo.page.server import PageServer
from tao_dynamo.page.shared import Shared
from tao_dynamo.page.wire import BusHealth, NodeRow, PlanRow, SessionRow, Snapshot, Totals, short_names

TOOLS = ("pytest", "pip install", "git diff", "npm test", "cargo build", "grep", "python script", "make")


def node_row(node: str, name: str, share: float, **more: object) -> NodeRow:
    capacity = 131_072
    reserved = int(capacity * share)
    row = NodeRow(
        node=node,
        name=name,
        capacity=capacity,
        reserved=reserved,
        running=reserved // 2,
        foreign=0,
        claimed=0,
        residual=max(0, int(capacity * 0.85) - reserved),
        used=reserved // 2,
        cached=capacity * 9 // 10,
        sessions=12,
        running_sessions=5,
        stale=False,
        events="ok",
    )
    return msgspec.structs.replace(row, **more)


@dataclass
class FakeRouter:
    """Sessions in all states; ``step`` changes some of them, as a second does in a busy router."""

    sessions: int = 64
    nodes: int = 4
    seed: int = 1
    problems: list[str] = field(default_factory=list)
    extra: list[SessionRow] = field(default_factory=list)
    sick: dict[str, NodeRow] = field(default_factory=dict)
    at: float = 1_800_000_000.0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        ids = [f"{self.random.getrandbits(64)}/0" for _ in range(self.nodes)]
        self.names = short_names(ids)
        self.rows = [self._row(number) for number in range(self.sessions)]

    def step(self) -> None:
        self.at += 1.0
        for number in self.random.sample(range(self.sessions), self.sessions // 10):
            self.rows[number] = self._row(number)

    def snapshot(self) -> Snapshot:
        order = ("waiting", "paused", "running", "tool", "idle")
        rows = sorted([*self.extra, *self.rows], key=lambda row: order.index(row.state))
        place = 0
        for number, row in enumerate(rows):
            if row.state == "waiting":
                place += 1
                rows[number] = msgspec.structs.replace(row, place=place)
        return Snapshot(
            version="0.1.0",
            at=self.at,
            up_s=1234.5,
            took_ms=1.2,
            policy="default",
            shared_prefixes=True,
            admission_mark=0.85,
            pause_mark=0.95,
            waiting_bound_s=60.0,
            problems=self.problems,
            by_state={state: sum(row.state == state for row in rows) for state in order},
            nodes=self.nodes_shown(),
            sessions=rows,
            left_out=0,
            plans=[
                PlanRow(
                    id=7 - number,
                    ago_s=0.4 + number * 2.1,
                    method="exact" if number else "dp-cpu",
                    seconds=0.0021,
                    candidates=9,
                    placed=4,
                    refused={"its tool was about to return, and now is not": 1} if number == 1 else {},
                    optimal=number != 2,
                    value=(41_000, 6, 88_000),
                    bound=(41_000, 6, 90_500) if number == 2 else (41_000, 6, 88_000),
                    note="",
                )
                for number in range(5)
            ],
            solving=False,
            bus=BusHealth(
                connected=True,
                listens=True,
                lag_s=0.0012,
                gaps=4,
                stale_nodes=0,
                resyncs=4,
                dropped=0,
                malformed=0,
                disconnects=0,
                messages=52_000,
                tool_events={"tool_start": 600, "tool_end": 590},
                blocks=31_000,
            ),
            totals=Totals(
                live_turns=30,
                turns=1800,
                failed=0,
                cancelled=2,
                displaced=0,
                refused=0,
                pauses=210,
                restarts=204,
                plans=180,
                fallbacks=1,
                planner_restarts=0,
                prompt_tokens=9_000_000,
                cached_tokens=7_900_000,
            ),
        )

    def nodes_shown(self) -> list[NodeRow]:
        """The nodes, each fuller than the one before; those in ``sick`` as they are there."""
        rows = []
        for number, (node, name) in enumerate(self.names.items()):
            rows.append(self.sick.get(node) or node_row(node, name, 0.5 + 0.4 * number / self.nodes))
        return rows

    def explain(self, session: str) -> dict[str, Any]:
        """As the router explains a session."""
        row = next((row for row in [*self.extra, *self.rows] if row.id == session), None)
        if row is None:
            return {"error": f"session {session} is not known: it has ended, expired, or had no turn yet"}
        calls = [
            {
                "key": row.tool,
                "elapsed_s": row.tool_elapsed_s,
                "remaining": {"seconds": row.returns_in_s, "source": row.source},
            }
        ]
        nodes = [
            {"node": node, "credit": row.credits.get(node, 0), "adds": row.cost, "free": 400 * number, "stale": False}
            for number, node in enumerate(self.names)
        ]
        told: dict[str, Any] = {name: getattr(row, name) for name in SessionRow.__struct_fields__}
        return told | {"session_id": row.session or row.id, "tool_calls": calls if row.tool else [], "nodes": nodes}

    def _row(self, number: int) -> SessionRow:
        pick = self.random
        state = pick.choices(("waiting", "paused", "running", "tool", "idle"), (4, 5, 6, 5, 1))[0]
        needs = pick.randrange(2_000, 40_000)
        node = pick.choice(list(self.names))
        row = SessionRow(
            id=f"swe-{number:04d}-{pick.getrandbits(24):06x}",
            state=state,
            for_s=round(pick.expovariate(0.1), 2),
            footprint=needs - 200,
            cost=needs,
            credits={node: int(needs * pick.random())} if state != "waiting" or pick.random() < 0.5 else {},
            ready=state in ("waiting", "running"),
        )
        if state == "waiting":
            free = needs - pick.randrange(100, 2000)
            return msgspec.structs.replace(
                row,
                waited_s=row.for_s,
                overdue=row.for_s >= 60,
                reason=f"needs {needs:,} tokens; at most {free:,} can be had, on {node}",
            )
        if state in ("tool", "paused"):
            row = msgspec.structs.replace(
                row,
                tool=pick.choice(TOOLS),
                calls=1,
                tool_elapsed_s=round(pick.expovariate(0.1), 1),
                returns_in_s=round(pick.expovariate(0.2), 1),
                source="history",
            )
        if state == "paused":
            reason = "gets room when its tool is about to return and a node has room for it"
            return msgspec.structs.replace(row, reason=reason)
        return msgspec.structs.replace(
            row, node=node, held=needs, output=pick.randrange(300) if state == "running" else 0
        )


@contextmanager
def serving(router: FakeRouter, *, moving: bool = False) -> Iterator[str]:
    """Serve a router's page from a thread of its own; gives the URL. ``moving``: it changes with every look."""
    loop = asyncio.new_event_loop()

    async def make() -> Snapshot:
        if moving:
            router.step()
        return router.snapshot()

    server = PageServer(Shared(make, fresh_s=0.05), router.explain, port=0)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@contextmanager
def browser() -> Iterator[Any]:
    """A Chromium; skips the test where there is none."""
    names = (os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    path = next((found for name in names if name and (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no Chromium on this machine; `make browser` installs one")
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield started
        finally:
            started.close()
