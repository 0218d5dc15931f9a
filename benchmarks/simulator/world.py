# SPDX-License-Identifier: Apache-2.0
"""Agents, a router and engines put together: one run in virtual time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.metrics import Figures, SessionRecord, TurnRecord, figures
from benchmarks.policies.base import Action, Demote, Pin, Refuse, Request, Router, Send, Site, Wake
from benchmarks.simulator.cache import Chain
from benchmarks.simulator.calendar import Calendar
from benchmarks.simulator.node import Node
from benchmarks.simulator.node import Sequence as Running
from benchmarks.traces import Arrival, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.simulator.setups import Setup

FITS = 0.8
"""A session ends before a turn whose prompt and answer take more than this share of a node."""


@dataclass(slots=True, eq=False)
class _Live:
    """A session on its way."""

    session: Session
    name: str
    chain: Chain
    started: float
    guest: bool = False
    turn: int = 0


@dataclass(slots=True)
class _Pending:
    """A turn between its arrival and its end."""

    live: _Live
    request: Request
    sent: float
    node: int | None = None
    sequence: Running | None = None


class World:
    """One simulated run.

    Args:
        setup: the cluster.
        make_router: makes the policy, for this site and the seed.
        sessions: in the order in which they start.
        concurrency: how many run at once; each that ends is followed by the next (closed loop).
        seed: given to the policy.
        arrivals: requests without a session that come at their times beside, as long as sessions run.
        starts: when each session begins, in seconds (open loop); then ``concurrency`` bounds nothing.
        sample_s: seconds of virtual time between two entries of :attr:`timeline`; None for none.
    """

    def __init__(
        self,
        setup: Setup,
        make_router: Callable[[Site, int], Router],
        sessions: Sequence[Session],
        *,
        concurrency: int,
        seed: int = 0,
        arrivals: Sequence[Arrival] = (),
        starts: Sequence[float] = (),
        sample_s: float | None = None,
    ) -> None:
        self.setup = setup
        self.calendar = Calendar()
        self.turns: list[TurnRecord] = []
        self.sessions: list[SessionRecord] = []
        self.waits: list[float] = []
        self.timeline: list[tuple[float, int, int, int]] = []
        """Time, and how many sessions are on an engine, between turns (tools, users), waiting for room."""
        self._queue = iter(sessions)
        self._left = len(sessions)
        self._begun = self._ended = 0
        self._arrivals = iter(arrivals)
        self._pending: dict[str, _Pending] = {}
        self._views: dict[str, dict[int, int]] = {}
        self._loads = [0] * setup.nodes
        self._calls = itertools.count()
        self._tools: dict[str, tuple[float, float]] = {}
        self._woken: set[float] = set()
        self._router = make_router(self, seed)
        self.nodes = [Node(i, setup, self.calendar, self, self._router.queue_order) for i in range(setup.nodes)]
        self._open = bool(starts)
        for start in starts:
            self.calendar.at(start, self._start_next)
        if not starts:
            for _ in range(min(concurrency, len(sessions))):
                self._start_next()
        self._arrive_next()
        if sample_s is not None:
            self._sample(sample_s)

    def run(self) -> Figures:
        """Run to the end of the last session."""
        events = self.calendar.run(done=lambda: not self._left)
        result = figures([t for t in self.turns if not t.session_id.startswith("\0")], self.sessions)
        guests = [t for t in self.turns if t.session_id.startswith("\0")]
        result["guest_ttft_mean_s"] = sum(t.first_s - t.sent_s for t in guests) / len(guests) if guests else None
        result |= self._router.figures()
        result["wait_mean_s"] = sum(self.waits) / len(self.waits) if self.waits else None
        result["wait_max_s"] = max(self.waits, default=None)
        result["preemptions"] = sum(node.preemptions for node in self.nodes)
        result["prefill_tokens"] = sum(node.prefilled for node in self.nodes)
        whole = self.calendar.now * len(self.nodes)
        result["busy_share"] = sum(node.busy_s for node in self.nodes) / whole if whole else None
        result["sessions_left"] = self._left
        result["events"] = events
        return result

    # --- what the policy may look at ----------------------------------------------------------------

    def overlap(self, chain: Chain) -> Mapping[int, int]:
        """See :class:`Site`."""
        shared = self._views.get(chain.shared_key, {})
        own = self._views.get(chain.session, {})
        found: dict[int, int] = {}
        for node, tokens in shared.items():
            if tokens >= chain.shared_tokens:
                found[node] = chain.shared_tokens + own.get(node, 0)
            elif tokens:
                found[node] = tokens
        return found

    def load(self, node: int) -> int:
        """See :class:`Site`."""
        return self._loads[node]

    def tool(self, session: str) -> tuple[float, float] | None:
        """See :class:`Site`."""
        return self._tools.get(session)

    # --- agents ---------------------------------------------------------------------------------------

    def _start_next(self) -> None:
        session = next(self._queue, None)
        if session is None:
            return
        shared = session.shared_tokens // self.setup.block_size * self.setup.block_size
        chain = Chain(session.session_id, f"shared/{session.agent}/{shared}", shared)
        live = _Live(session, session.session_id, chain, self.calendar.now)
        live.started = self.calendar.now + session.turns[0].think_s
        self._begun += 1
        self.calendar.at(live.started, lambda: self._ask(live))

    def _sample(self, every_s: float) -> None:
        own = [p for p in self._pending.values() if not p.live.guest]
        waiting = sum(1 for p in own if p.sequence is None or p.sequence.started is None)
        self.timeline.append((self.calendar.now, len(own) - waiting, self._begun - self._ended - len(own), waiting))
        self.calendar.at(self.calendar.now + every_s, lambda: self._sample(every_s))

    def _arrive_next(self) -> None:
        arrival = next(self._arrivals, None)
        if arrival is None:
            return

        def come() -> None:
            name = f"\0guest{next(self._calls)}"
            chain = Chain(name, "shared/", 0)
            session = Session(name, "arrivals", "chat", (), 0)
            live = _Live(session, name, chain, self.calendar.now, guest=True)
            self._submit(live, arrival.prompt_tokens, arrival.output_tokens, final=True)
            self._arrive_next()

        self.calendar.at(arrival.t_s, come)

    def _ask(self, live: _Live) -> None:
        turn = live.session.turns[live.turn]
        before = live.session.turns[live.turn - 1] if live.turn else None
        if before is not None and turn.kept_tokens < before.prompt_tokens + before.output_tokens:
            for node in self.nodes:
                node.cache.rewrite(live.chain, turn.kept_tokens)
        if turn.prompt_tokens + turn.output_tokens > FITS * self.setup.capacity_tokens:
            self._finish(live, done=True)
            return
        last = live.turn == len(live.session.turns) - 1
        self._submit(live, turn.prompt_tokens, turn.output_tokens, final=last)

    def _submit(self, live: _Live, prompt: int, output: int, *, final: bool) -> None:
        now = self.calendar.now
        request = Request(f"{live.name}/{live.turn}", None if live.guest else live.name, live.chain, prompt, final)
        sequence = Running(request.request_id, live.chain, prompt, output, now)
        self._pending[request.request_id] = _Pending(live, request, now, sequence=sequence)
        self._act(self._router.turn_arrived(request, now))

    def _after_turn(self, live: _Live) -> None:
        turn = live.session.turns[live.turn]
        live.turn += 1
        if live.turn == len(live.session.turns):
            self._finish(live, done=True)
            return
        now = self.calendar.now
        pause = live.session.turns[live.turn].think_s
        if turn.tool is None:
            self.calendar.at(now + pause, lambda: self._ask(live))
            return
        tool = turn.tool
        call = f"c{next(self._calls)}"
        programs = [name for name in tool.programs if name not in ("cd", "echo")]
        self._tools[live.name] = (now, now + tool.duration_s)
        self._act(self._router.tool_started(live.name, call, "+".join(programs[:3]) or tool.name, now))

        def returned() -> None:
            then = self.calendar.now
            del self._tools[live.name]
            self._act(self._router.tool_ended(live.name, call, tool.duration_s, then))
            self.calendar.at(then + pause, lambda: self._ask(live))

        self.calendar.at(now + tool.duration_s, returned)

    def _finish(self, live: _Live, *, done: bool) -> None:
        now = self.calendar.now
        self._left -= 1
        self._ended += 1
        self.sessions.append(SessionRecord(live.name, live.started, now, done))
        self._act(self._router.session_ended(live.name, now))
        self._views.pop(live.name, None)
        if not self._open:
            self._start_next()

    # --- the router -----------------------------------------------------------------------------------

    def _act(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self._send(action)
            elif isinstance(action, Refuse):
                self._refuse(action)
            elif isinstance(action, Wake):
                self._wake(action.at)
            elif isinstance(action, Pin):
                self.nodes[action.node].cache.pin(action.session, action.until)
                self.calendar.at(action.until, self.nodes[action.node].poke)
            elif isinstance(action, Demote):
                self.nodes[action.node].cache.demote(action.session)

    def _send(self, action: Send) -> None:
        pending = self._pending[action.request_id]
        if pending.sequence is None or pending.node is not None:
            return
        pending.node = action.node
        pending.sequence.priority = action.priority
        pending.sequence.reports = self._router.reports
        self._loads[action.node] += 1
        self.nodes[action.node].submit(pending.sequence)

    def _refuse(self, action: Refuse) -> None:
        pending = self._pending.pop(action.request_id)
        now = self.calendar.now
        request = pending.request
        self.turns.append(
            TurnRecord(
                pending.live.name, pending.live.turn, pending.sent, now, now, request.prompt, 0, None, action.why
            )
        )
        if not pending.live.guest:
            self._finish(pending.live, done=False)

    def _wake(self, at: float) -> None:
        if at in self._woken:
            return
        self._woken.add(at)

        def come() -> None:
            self._woken.discard(at)
            self._act(self._router.time_passes(self.calendar.now))

        self.calendar.at(at, come)

    # --- engines --------------------------------------------------------------------------------------

    def first_token(self, node: int, sequence: Running) -> None:
        """See :class:`benchmarks.simulator.node.Listener`."""
        self._act(self._router.first_token(sequence.request_id, self.calendar.now))

    def progress(self, node: int, sequence: Running, tokens: int) -> None:
        """See :class:`benchmarks.simulator.node.Listener`."""
        self._act(self._router.progress(sequence.request_id, tokens, self.calendar.now))

    def finished(self, node: int, sequence: Running) -> None:
        """See :class:`benchmarks.simulator.node.Listener`."""
        now = self.calendar.now
        pending = self._pending.pop(sequence.request_id)
        self._loads[node] -= 1
        live, request = pending.live, pending.request
        started = sequence.started if sequence.started is not None else now
        if not live.guest:
            self.waits.append(started - pending.sent)
        self.turns.append(
            TurnRecord(
                live.name,
                live.turn,
                pending.sent,
                sequence.first_token if sequence.first_token is not None else now,
                now,
                request.prompt,
                sequence.output,
                sequence.cached,
            )
        )
        ended = self._router.turn_ended(request.request_id, cached=sequence.cached or 0, output=sequence.output, t=now)
        self._act(ended)
        if not live.guest:
            self._after_turn(live)

    def cache_changed(self, node: int, keys: set[str]) -> None:
        """See :class:`benchmarks.simulator.node.Listener`. The router hears of it later."""
        cache = self.nodes[node].cache
        changes = {key: cache.tokens_of(key) for key in sorted(keys) if not key.startswith("\0")}
        host = {key: cache.host_tokens_of(key) for key in changes} if self.setup.host_tokens else {}

        def come() -> None:
            for key, tokens in changes.items():
                if tokens:
                    self._views.setdefault(key, {})[node] = tokens
                elif key in self._views:
                    self._views[key].pop(node, None)
            if host:
                self._router.host_changed(node, host)
            self._act(self._router.cache_changed(node, changes, self.calendar.now))

        self.calendar.at(self.calendar.now + self.setup.kv_lag_s, come)
