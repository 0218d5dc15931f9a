# SPDX-License-Identifier: Apache-2.0
"""A router's snapshot out of thin air, and a browser to look at pages with."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import msgspec

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
            nodes=[
                node_row(node, name, 0.5 + 0.4 * i / self.nodes) for i, (node, name) in enumerate(self.names.items())
            ],
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
                reason=f"needs {needs:,} tokens; the most to be had now is {free:,}, on node {node}",
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
            reason = "its tool runs; it gets room when that is about to return and a node has room"
            return msgspec.structs.replace(row, reason=reason)
        return msgspec.structs.replace(
            row, node=node, held=needs, output=pick.randrange(300) if state == "running" else 0
        )
