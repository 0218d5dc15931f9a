# SPDX-License-Identifier: Apache-2.0
"""A busy day of the scheduler's core alone: many sessions, nodes and events on virtual time, every call timed.

Sessions go round in a closed loop: turn, tool call, next turn; each that ends is followed by a new one under a new
name. Clients leave, nodes come and go, and the engines tell of their load. Credit and readiness are small tables, so
that what is timed is the core; solves are answered by a first fit, which is not timed. Times are CPU times of the
thread, the garbage collector's included: what else runs on the machine does not count.
"""

from __future__ import annotations

import heapq
import math
import random
import time
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from kv_events.types import NodeId
from solver.problem import Placement, Plan, Value
from tao_dynamo.core.decisions import Admit, AskSolve, Decision, Refuse, WakeAt
from tao_dynamo.core.policy import DEFAULT
from tao_dynamo.core.scheduler import Scheduler
from tao_dynamo.core.turn import Turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from solver.problem import Problem

HARNESSES = 8
SHARED_BLOCKS = 192
OWN_BLOCKS = 64
BLOCK = 16
GROWTH = (200, 800)
"""Tokens by which a session's context grows with a turn."""
LOAD_EVERY_S = 1.0
CHURN_EVERY_S = 30.0
TOOL_S = (0.6, 6.0, 120.0)
"""Mean length of a tool call: at least, while as many wait as should, at most."""
STEER = 3
"""Power of the ratio of those that wait to those that should by which tool calls are longer."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything.

    ``waiting``: about so many sessions wait, by the length of the tool calls. ``solve_s``: virtual time from asking for
    a plan to having it.
    """

    sessions: int = 20_000
    waiting: int = 2_000
    nodes: int = 512
    node_tokens: int = 177_000
    solve_s: float = 0.1
    turns: int = 12
    seed: int = 0


@dataclass(slots=True, eq=False)
class Agent:
    """A session on its way."""

    name: str
    hashes: tuple[int, ...]
    parent: str | None
    context: int
    left: int
    request: str = ""
    admitted: bool = False


class Times:
    """A histogram of durations in fixed memory: percentiles are right to within 5 %, count and greatest exact."""

    def __init__(self) -> None:
        self.count = 0
        self.most = 0.0
        self._buckets = [0] * 400

    def add(self, seconds: float) -> None:
        """Count one in."""
        self.count += 1
        self.most = max(self.most, seconds)
        self._buckets[min(399, int(10 * math.log2(1.0 + seconds * 1e7)))] += 1

    def merge(self, other: Times) -> None:
        """Count all of another in."""
        self.count += other.count
        self.most = max(self.most, other.most)
        self._buckets = [a + b for a, b in zip(self._buckets, other._buckets, strict=True)]

    def percentile(self, part: float) -> float:
        """Seconds that a share ``part`` of all took at most."""
        left = part * self.count
        for i, count in enumerate(self._buckets):
            left -= count
            if left <= 0:
                return min(self.most, (math.pow(2.0, (i + 1) / 10) - 1.0) / 1e7)
        return self.most


class Tables:
    """Credit and readiness as plain tables: where a session ran last, and when its tool is due."""

    def __init__(self) -> None:
        self.here: dict[str, dict[NodeId, int]] = {}
        self.ran: dict[str, float] = {}
        self.tools: dict[str, tuple[float, float]] = {}

    def credits(self, session_id: str, t: float) -> dict[NodeId, int]:
        """See :class:`tao_dynamo.core.seams.CreditSource`."""
        held = self.here.get(session_id)
        if not held:
            return {}
        left = 2.0 ** ((self.ran[session_id] - t) / 10.0)
        return {node: int(tokens * left) for node, tokens in held.items()}

    def resident(self, session_id: str) -> dict[NodeId, int]:
        """See :class:`tao_dynamo.core.seams.CreditSource`."""
        return self.here.get(session_id, {})

    def ran_on(self, session_id: str, node: NodeId, tokens: int, t: float) -> None:
        """See :class:`tao_dynamo.core.seams.CreditSource`."""
        held = self.here.setdefault(session_id, {})
        held.pop(node, None)
        held[node] = tokens
        if len(held) > 2:
            del held[next(iter(held))]
        self.ran[session_id] = t

    def forget_node(self, node: NodeId) -> None:
        """See :class:`tao_dynamo.core.seams.CreditSource`."""

    def running(self, session_id: str) -> bool:
        """See :class:`tao_dynamo.core.seams.ReadinessSource`."""
        return session_id in self.tools

    def remaining(self, session_id: str, t: float) -> Left | None:
        """See :class:`tao_dynamo.core.seams.ReadinessSource`."""
        call = self.tools.get(session_id)
        return Left(max(0.0, call[1] - t), t - call[0]) if call else None

    def ready(self, session_id: str, t: float) -> bool:
        """See :class:`tao_dynamo.core.seams.ReadinessSource`."""
        call = self.tools.get(session_id)
        return call is None or call[1] - t <= 1.0

    def next_change(self, session_id: str, t: float) -> float | None:
        """See :class:`tao_dynamo.core.seams.ReadinessSource`."""
        call = self.tools.get(session_id)
        return call[1] - 1.0 if call and call[1] - 1.0 > t else None

    def forget(self, session_id: str) -> None:
        """See both seams."""
        self.here.pop(session_id, None)
        self.ran.pop(session_id, None)
        self.tools.pop(session_id, None)


@dataclass(frozen=True, slots=True)
class Left:
    """See :class:`tao_dynamo.core.seams.Remaining`."""

    seconds: float
    elapsed_s: float


class Lab:
    """The core, and a world around it that never stops.

    Args:
        sizes: how much of everything.
    """

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.events = 0
        self.now = 0.0
        self.solves = 0
        self.waited = 0
        """Sessions in the waiting pool, summed over all solves."""
        self.times: dict[str, Times] = defaultdict(Times)
        """How long calls took, by event; a snapshot is not an event."""
        self._dice = random.Random(sizes.seed)
        self._tool_s = TOOL_S[1]
        self._tables = Tables()
        policy = replace(DEFAULT, max_sessions=4 * sizes.sessions, max_waiting=sizes.sessions)
        self.core = Scheduler(policy, credit=self._tables, readiness=self._tables)
        self._calendar: list[tuple[float, int, Callable[[], None]]] = []
        self._entered = 0
        self._made = 0
        self._wake_at = math.inf
        self._agents: OrderedDict[str, Agent] = OrderedDict()
        self._live: dict[str, Agent] = {}
        self._shared = [tuple(self._dice.getrandbits(63) for _ in range(SHARED_BLOCKS)) for _ in range(HARNESSES)]
        self._nodes = [NodeId(i + 1, 0) for i in range(sizes.nodes)]
        for node in self._nodes:
            self._join(node)
            self._at(self._dice.random() * LOAD_EVERY_S, partial(self._load, node))
        self._at(CHURN_EVERY_S, self._churn)
        for _ in range(sizes.sessions):
            self._at(self._dice.random() * 10.0, lambda: self._begin(underway=True))

    def run(self, events: int) -> None:
        """Go on for so many events."""
        until = self.events + events
        while self.events < until:
            self.now, _, action = heapq.heappop(self._calendar)
            action()

    # --- the world --------------------------------------------------------------------------------

    def _at(self, t: float, action: Callable[[], None]) -> None:
        self._entered += 1
        heapq.heappush(self._calendar, (t, self._entered, action))

    def _call(self, kind: str, event: Callable[[], list[Decision]]) -> None:
        """Time one event, then do what it decides."""
        began = time.thread_time()
        decisions = event()
        self.times[kind].add(time.thread_time() - began)
        self.events += 1
        for decision in decisions:
            if isinstance(decision, Admit):
                self._admitted(decision.request_id)
            elif isinstance(decision, Refuse):
                self._gone(decision.request_id)
            elif isinstance(decision, WakeAt):
                self._wake_at = max(decision.at, self.now)
                self._at(self._wake_at, self._wake)
            elif isinstance(decision, AskSolve):
                self._at(self.now, self._solve)

    def _wake(self) -> None:
        if self.now != self._wake_at:
            return  # an earlier request, replaced since
        self._wake_at = math.inf
        self._call("time_passes", lambda: self.core.time_passes(self.now))

    def _solve(self) -> None:
        began = time.thread_time()
        snapshot = self.core.snapshot(self.now)
        self.times["snapshot"].add(time.thread_time() - began)
        if snapshot is None:
            return
        self.solves += 1
        waiting = self.core.waiting
        self.waited += waiting
        least, usual, most = TOOL_S
        self._tool_s = min(most, max(least, usual * (waiting / self.sizes.waiting) ** STEER))
        plan = first_fit(snapshot.problem)
        self._at(
            self.now + self.sizes.solve_s,
            lambda: self._call("plan_returned", lambda: self.core.plan_returned(snapshot.id, plan, self.now)),
        )

    def _join(self, node: NodeId) -> None:
        tokens = self.sizes.node_tokens
        self._call(
            "node_joined",
            lambda: self.core.node_joined(node, capacity_tokens=tokens, block_size=BLOCK, t=self.now),
        )

    def _load(self, node: NodeId) -> None:
        used = self._dice.randrange(self.sizes.node_tokens // 4)
        self._call("node_load", lambda: self.core.node_load(node, used_tokens=used, t=self.now))
        self._at(self.now + LOAD_EVERY_S, lambda: self._load(node))

    def _churn(self) -> None:
        """A node is replaced; another one's event stream has a gap."""
        node, other = self._dice.sample(self._nodes, 2)
        self._call("node_left", lambda: self.core.node_left(node, self.now))
        self._call("node_stale", lambda: self.core.node_stale(other, True, self.now))
        self._call("node_stale", lambda: self.core.node_stale(other, False, self.now))
        self._at(self.now + 5.0, lambda: self._join(node))
        self._at(self.now + CHURN_EVERY_S, self._churn)

    # --- agents -----------------------------------------------------------------------------------

    def _begin(self, *, underway: bool = False) -> None:
        """An agent starts, or, at the very beginning, is found somewhere on its way."""
        dice = self._dice
        self._made += 1
        name = f"agent-{self._made}"
        parent = dice.choice(list(self._agents)[:50]) if self._agents and dice.random() < 0.05 else None
        base = self._made * 1_000_003
        hashes = self._shared[self._made % HARNESSES] + tuple(range(base, base + OWN_BLOCKS))
        turns = 1 + dice.randrange(2 * self.sizes.turns)
        done = dice.randrange(turns) if underway else 0
        agent = Agent(name, hashes, parent, len(hashes) * BLOCK + done * sum(GROWTH) // 2, turns - done)
        self._agents[name] = agent
        self._turn(agent)

    def _turn(self, agent: Agent) -> None:
        agent.left -= 1
        agent.request = f"{agent.name}/{agent.left}"
        agent.admitted = False
        self._live[agent.request] = agent
        turn = Turn(
            agent.request,
            agent.name,
            agent.context,
            hashes=agent.hashes,
            block_size=BLOCK,
            parent_session_id=agent.parent,
            final=agent.left <= 0,
        )
        self._call("turn_arrived", lambda: self.core.turn_arrived(turn, self.now))
        if self._dice.random() < 0.01:
            self._at(self.now + 10.0 * self._dice.random(), lambda: self._leave(agent, turn.request_id))

    def _admitted(self, request: str) -> None:
        agent = self._live.get(request)
        if agent is None or agent.admitted:
            return
        agent.admitted = True
        wanted = self._dice.randrange(50, 400)
        self._at(self.now + 0.3, lambda: self._first(agent, request, wanted))

    def _first(self, agent: Agent, request: str, wanted: int) -> None:
        if request not in self._live:
            return
        self._call("first_token", lambda: self.core.first_token(request, self.now))
        for part in range(4):
            self._at(
                self.now + (part + 1) * wanted / 160,
                lambda: self._call("tokens", lambda: self.core.tokens(request, wanted // 4, self.now)),
            )
        self._at(self.now + wanted / 36, lambda: self._end(agent, request))

    def _end(self, agent: Agent, request: str) -> None:
        if self._live.pop(request, None) is None:
            return
        cached = agent.context // 2
        agent.context = min(agent.context + self._dice.randrange(*GROWTH), self.sizes.node_tokens // 4)
        self._call("turn_ended", lambda: self.core.turn_ended(request, t=self.now, cached_tokens=cached))
        self._after(agent)

    def _leave(self, agent: Agent, request: str) -> None:
        if self._live.pop(request, None) is None:
            return
        self._call("turn_cancelled", lambda: self.core.turn_cancelled(request, self.now))
        self._after(agent)

    def _gone(self, request: str) -> None:
        agent = self._live.pop(request, None)
        if agent is not None:
            self._after(agent)

    def _after(self, agent: Agent) -> None:
        if agent.left <= 0:
            self._agents.pop(agent.name, None)
            self._call("session_ended", lambda: self.core.session_ended(agent.name, self.now))
            self._at(self.now + 1.0, self._begin)
            return
        seconds = self._dice.expovariate(1 / self._tool_s)
        self._tables.tools[agent.name] = (self.now, self.now + seconds)
        self._call("tool_changed", lambda: self.core.tool_changed(agent.name, self.now))

        def returned() -> None:
            self._tables.tools.pop(agent.name, None)
            self._call("tool_changed", lambda: self.core.tool_changed(agent.name, self.now))
            self._turn(agent)

        self._at(self.now + seconds, returned)


def first_fit(problem: Problem) -> Plan:
    """A plan in no time: each candidate on its node of most credit if that has room, else on the next that has."""
    room = {node.id: node.capacity for node in problem.nodes}
    open_nodes = [node.id for node in problem.nodes]
    placed: list[Placement] = []
    for candidate in problem.candidates:
        homes = sorted(candidate.credit, key=lambda node: -candidate.credit[node])
        while open_nodes and room[open_nodes[-1]] < candidate.cost:
            open_nodes.pop()
        for node in [*homes, *open_nodes[-1:]]:
            if room.get(node, 0) >= candidate.cost:
                room[node] -= candidate.cost
                placed.append(Placement(candidate.id, node))
                break
    return Plan(tuple(placed), Value(), Value(), optimal=False, method="first-fit", seconds=0.0)
