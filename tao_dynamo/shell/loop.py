# SPDX-License-Identifier: Apache-2.0
"""Drives the core: gives it events and the time, and does what it decides. Survives whatever goes wrong in it."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from kv_events.types import NodeId
from solver.problem import Plan, Problem
from tao_dynamo.core.decisions import Admit, AskSolve, Decision, Pause, Refuse, Restart, WakeAt
from tao_dynamo.core.scheduler import Scheduler
from tao_dynamo.core.turn import Turn
from tao_dynamo.shell.logs import Events

log = Events("tao.loop")


class Solver(Protocol):
    """What makes plans out of snapshots, as :class:`solver.planner.Planner` does."""

    async def solve_async(self, problem: Problem, budget_ms: float) -> Plan:
        """Return a plan for the snapshot."""


class Ticket:
    """A turn's wait for its answer. ``answer`` is there at once when the turn need not wait."""

    __slots__ = ("_future", "answer", "request_id")

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.answer: Admit | Refuse | None = None
        self._future: asyncio.Future[None] | None = None

    def give(self, answer: Admit | Refuse) -> None:
        """Answer the turn."""
        self.answer = answer
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def future(self) -> asyncio.Future[None]:
        """A future that is done when the answer is there."""
        if self._future is None or self._future.done():
            self._future = asyncio.get_running_loop().create_future()
        if self.answer is not None:
            self._future.set_result(None)
        return self._future


class Driver:
    """Feeds the core.

    Args:
        scheduler: the core.
        solver: makes the plans.
        fallback: the node for a turn that the core itself fails on; None if there is none.
        clock: seconds that never run backwards.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        solver: Solver,
        *,
        fallback: Callable[[], NodeId | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.scheduler = scheduler
        self.counters: Counter[str] = Counter()
        self.solves: Counter[str] = Counter()
        self.clock = clock
        self.on_wait: Callable[[float], None] = lambda _s: None
        self.on_pause_wait: Callable[[float], None] = lambda _s: None
        self.on_solve: Callable[[float], None] = lambda _s: None
        self._solver = solver
        self._fallback = fallback
        self._tickets: dict[str, Ticket] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    # --- events

    def feed(self, event: Callable[..., list[Decision]], *args: Any, **more: Any) -> bool:
        """Give the core one event, at the present time, and do what it decides. False if the core failed."""
        try:
            decisions = event(*args, t=self.clock(), **more)
        except Exception:
            self.counters["core_errors"] += 1
            log.exception("core_failed", on=getattr(event, "__name__", "event"))
            return False
        for decision in decisions:
            self._do(decision)
        return True

    def arrive(self, turn: Turn, ticket: Ticket | None = None) -> Ticket:
        """Bring a turn, under a new ticket unless one is given; it is answered at once or later."""
        ticket = Ticket(turn.request_id) if ticket is None else ticket
        ticket.answer = None
        self._tickets[turn.request_id] = ticket
        if not self.feed(self.scheduler.turn_arrived, turn) and ticket.answer is None:
            node = self._fallback()
            if node is not None:
                ticket.give(Admit(turn.request_id, turn.session_id, node, 0.0, 0))
        return ticket

    def displaced(self, ticket: Ticket) -> None:
        """The turn could not be forwarded: it waits for another answer."""
        ticket.answer = None
        self._tickets[ticket.request_id] = ticket
        self.feed(self.scheduler.turn_displaced, ticket.request_id)

    def leave(self, ticket: Ticket) -> None:
        """Nobody waits for this ticket's answer any longer."""
        self._tickets.pop(ticket.request_id, None)

    @property
    def live_turns(self) -> int:
        """Turns that wait for an answer or run."""
        return len(self._tickets)

    def is_live(self, request_id: str) -> bool:
        """Whether a turn of that id waits or runs."""
        return request_id in self._tickets

    def close(self) -> None:
        """Stop timers and solves."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()

    # --- decisions

    def _do(self, decision: Decision) -> None:
        if isinstance(decision, (Admit, Refuse)):
            ticket = self._tickets.get(decision.request_id)
            if ticket is None:
                self.counters["answers_nobody_waited_for"] += 1
                return
            if isinstance(decision, Admit):
                self.on_wait(decision.waited_s)
            ticket.give(decision)
        elif isinstance(decision, WakeAt):
            self._wake_at(decision.at)
        elif isinstance(decision, AskSolve):
            self._spawn(self._solve())
        elif isinstance(decision, Pause):
            log.debug("paused", session=decision.session_id, node=decision.node, freed=decision.freed_tokens)
        elif isinstance(decision, Restart):
            self.on_pause_wait(decision.paused_s)
            log.debug("restarted", session=decision.session_id, node=decision.node, paused_s=decision.paused_s)

    def _wake_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._closed:
            self._due = at
            # uvloop rounds to whole milliseconds: what is due in 0.4 ms would be called at once, again and again.
            delay_s = math.ceil(1e3 * max(0.0, at - self.clock())) / 1e3
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._woken)

    def _woken(self) -> None:
        self._timer = None
        if self.clock() < self._due:
            self._wake_at(self._due)
        else:
            self.feed(self.scheduler.time_passes)

    def _spawn(self, work: Any) -> None:
        if self._closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _solve(self) -> None:
        snapshot_id: int | None = None
        try:
            snapshot = self.scheduler.snapshot(self.clock())
            if snapshot is None:
                return
            snapshot_id = snapshot.id
            began = self.clock()
            plan = await self._solver.solve_async(snapshot.problem, self.scheduler.policy.solve_budget_ms)
        except Exception:
            self.counters["solve_errors"] += 1
            log.exception("solve_failed", snapshot=snapshot_id)
            self.feed(self.scheduler.solve_failed, snapshot_id)
            return
        self.solves[plan.method] += 1
        self.on_solve(self.clock() - began)
        self.feed(self.scheduler.plan_returned, snapshot_id, plan)
