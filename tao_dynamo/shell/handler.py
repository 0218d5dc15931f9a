# SPDX-License-Identifier: Apache-2.0
"""Takes every request: groups turns by session, waits for room, forwards pinned, streams back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from kv_events.credit import CreditTable
from kv_events.follow import Follower
from kv_events.types import NodeId
from tao_dynamo.core.decisions import Admit, Refuse
from tao_dynamo.core.turn import Turn
from tao_dynamo.shell.bus import Bus
from tao_dynamo.shell.failures import Failures
from tao_dynamo.shell.logs import Events
from tao_dynamo.shell.loop import Driver, Ticket
from tao_dynamo.shell.outlet import Outlet, Pull
from tao_dynamo.shell.prompts import Ask, Prompts, guest_hashes, read_request
from tao_dynamo.shell.relay import Chunk, Pace, Relay
from tao_dynamo.shell.tracing import NoTracing, Trace, Tracing
from tao_dynamo.shell.workers import Workers
from tool_hooks.events import MAX_ID_CHARS
from tool_hooks.predictor import Predictor

log = Events("tao.handler")

REPORT_EVERY = 32
"""Tokens after which the core hears how long an output has grown."""


class Context(Protocol):
    """Dynamo's request context."""

    def id(self) -> str:
        """The request's id."""

    def is_stopped(self) -> bool:
        """Whether the client has left."""

    def async_killed_or_stopped(self) -> asyncio.Future[bool]:
        """Done when the client leaves."""

    def trace_headers(self) -> dict[str, str] | None:
        """W3C headers of the trace that the request belongs to."""


class Chunks(Protocol):
    """A worker's answer, in batches of what was there at one time."""

    async def pour(self, into: Callable[[list[Chunk]], None]) -> None:
        """Hand over each batch as it comes; returns at the end, or raises what ended it."""

    def close(self) -> None:
        """Nobody reads on; the worker is told so if it has not ended."""


class Forward(Protocol):
    """Sends a request to a worker; returns its answer."""

    async def __call__(self, request: dict[str, Any], node: NodeId, context: Any) -> Chunks:
        """Return the worker's chunks."""


@dataclass(slots=True)
class _Work:
    """A turn on its way, and what has come back of it."""

    request: dict[str, Any]
    ask: Ask
    ticket: Ticket
    context: Context
    turn: Turn
    first_hash: int | None
    outlet: Outlet
    trace: Trace
    produced: int = 0
    reported: int = 0
    cached: int | None = None
    started: bool = False
    finished: bool = False


class Handler:
    """The ``generate`` endpoint. Everything it works with is given, so that it runs without Dynamo in tests."""

    def __init__(
        self,
        driver: Driver,
        forward: Forward,
        *,
        credit: CreditTable,
        predictor: Predictor,
        prompts: Prompts,
        bus: Bus,
        workers: Workers,
        failures: Failures,
        retries: int = 3,
    ) -> None:
        self.counters: Counter[str] = Counter()
        self.pace = Pace()
        self.tracing: Tracing = NoTracing()
        self.on_credit: Callable[[int, int], None] = lambda _predicted, _confirmed: None
        self._driver = driver
        self._forward = forward
        self._credit = credit
        self._predictor = predictor
        self._prompts = prompts
        self._bus = bus
        self._workers = workers
        self._failures = failures
        self._retries = retries
        self._live: Counter[str] = Counter()
        self._serial = 0
        credit.on_forget = self._forget

    @property
    def follower(self) -> Follower | None:
        """Who compares what should be announced with what is."""
        return self._bus.follower

    async def generate(self, request: dict[str, Any], context: Context) -> AsyncIterator[Chunk]:
        """Serve one request; its chunks are asked for one by one."""
        outlet = Pull()
        work = asyncio.get_running_loop().create_task(self.serve(request, context, outlet))
        async for chunk in outlet.until(work):
            yield chunk

    async def serve(self, request: dict[str, Any], context: Context, outlet: Outlet) -> None:
        """Serve one request; its chunks are put into the outlet.

        Raises:
            Exception: the turn failed or is refused, as Dynamo's frontend wants to hear it.
        """
        ask = read_request(request)
        self._check(ask, context.id())
        if ask.final and ask.session_id is not None and (not ask.tokens or ask.max_tokens == 0):
            self.counters["session_ends"] += 1
            self._end_session(ask.session_id)
            outlet.put([{"token_ids": [], "finish_reason": "stop", "index": 0}])
            return
        trace = self.tracing.turn(context.trace_headers, request=context.id(), session=ask.session_id or "")
        trace.part("placement", prompt_tokens=len(ask.tokens))
        error: BaseException | None = None
        turn = self._turn(ask, context)
        first_hash = turn.hashes[0] if turn.hashes else None
        session = ask.session_id
        if session is not None:
            self._live[session] += 1
        ticket = self._driver.arrive(turn)
        try:
            await self._serve(_Work(request, ask, ticket, context, turn, first_hash, outlet, trace))
        except BaseException as caught:
            error = caught
            raise
        finally:
            trace.end(error)
            self._driver.leave(ticket)
            if session is not None:
                self._live[session] -= 1
                if not self._live[session]:
                    del self._live[session]
                if ask.final:
                    self._end_session(session)

    def _check(self, ask: Ask, request_id: str) -> None:
        """See that the request can be served at all.

        Raises:
            Exception: it cannot.
        """
        for name, value in (("session", ask.session_id), ("parent session", ask.parent_session_id)):
            if value is not None and len(value) > MAX_ID_CHARS:
                self.counters["refused_long_ids"] += 1
                raise self._wrong(
                    request_id, f"a {name} id of {len(value)} characters; at most {MAX_ID_CHARS} are taken"
                )
        refused = ask.session_id is None and self._driver.scheduler.policy.never_fits == "refuse"
        if refused and (needed := len(ask.tokens) + ask.least_output) > self._workers.largest_node:
            self.counters["refused_never_fits"] += 1
            room = self._workers.largest_node
            raise self._wrong(
                request_id, f"the request needs {needed} tokens of KV room; the largest node holds {room}"
            )

    def _wrong(self, request_id: str, text: str) -> Exception:
        log.info("turn_refused", request=request_id, text=text)
        return self._failures.wrong(text)

    def _turn(self, ask: Ask, context: Context) -> Turn:
        """Describe the request to the core; feed credit and readiness first, since placing looks at them."""
        t = self._driver.clock()
        request_id = context.id()
        if self._driver.is_live(request_id):
            self._serial += 1
            self.counters["reused_request_ids"] += 1
            request_id = f"{request_id}+{self._serial}"
        sizes = self._bus.block_sizes if ask.blocks_known else set()
        overlap: dict[NodeId, int] = {}
        if ask.session_id is not None:
            self.counters["session_turns"] += 1
            chains = self._prompts.take(ask.session_id, ask, sizes)
            self._credit.turn(ask.session_id, chains, t)
            self._bus.tenants.turn(ask.session_id, ask.salt)
            if not self._live[ask.session_id]:
                self._predictor.resumed(ask.session_id, t)
        else:
            self.counters["guest_turns"] += 1
            chains = guest_hashes(ask, sizes)
            if self.follower is not None:
                for size, chain in chains.items():
                    for node, blocks in self.follower.index.overlap(chain, size).items():
                        overlap[node] = blocks * size
        size = min(chains, default=16)
        return Turn(
            request_id=request_id,
            session_id=ask.session_id,
            prompt_tokens=len(ask.tokens),
            expected_output=self._expected_output(ask),
            priority=ask.priority,
            strict_priority=ask.strict_priority,
            parent_session_id=ask.parent_session_id,
            hashes=chains.get(size, ()),
            block_size=size,
            final=ask.final,
            overlap=overlap,
        )

    def _expected_output(self, ask: Ask) -> int | None:
        if ask.least_output and len(ask.tokens) + ask.least_output > self._workers.largest_node:
            return ask.least_output  # so that the core sees that no node can ever hold it
        return ask.expected_output if ask.expected_output is not None else _bounded(ask.max_tokens)

    async def _serve(self, work: _Work) -> None:
        scheduler = self._driver.scheduler
        context, ticket = work.context, work.ticket
        ok = False
        tries = 0
        try:
            while True:
                if ticket.answer is None:
                    work.trace.part("wait")
                admit = await self._answer(ticket, context)
                if admit is None:
                    return
                node = admit.node
                _pin(work.request, node)
                work.trace.part(
                    "forward", node=str(node), credit_tokens=admit.credit_tokens, waited_s=admit.waited_s, tries=tries
                )
                try:
                    await self._stream(work, admit)
                except Exception as error:
                    ok = work.finished
                    if ok or context.is_stopped():
                        return
                    if work.started or tries >= self._retries or not self._failures.worker_gone(error):
                        self.counters["failed_turns"] += 1
                        log.warning(
                            "turn_failed",
                            request=ticket.request_id,
                            session=work.ask.session_id,
                            node=node,
                            tokens=work.produced,
                            error=error,
                        )
                        raise self._failures.translate(error, work.started) from error
                    tries += 1
                    self.counters["displaced_turns"] += 1
                    log.warning("turn_displaced", request=ticket.request_id, node=node, error=error)
                    self._displace(work, node)
                    continue
                # A client may hang up on the last token, before the stream's own end is here.
                ok = work.finished or not context.is_stopped()
                return
        finally:
            if ok:
                self._driver.feed(
                    scheduler.turn_ended,
                    ticket.request_id,
                    cached_tokens=work.cached,
                    output_tokens=work.produced,
                )
            elif context.is_stopped():
                self.counters["cancelled_turns"] += 1
                self._driver.feed(scheduler.turn_cancelled, ticket.request_id)
            else:
                self._driver.feed(scheduler.turn_ended, ticket.request_id, ok=False)

    async def _answer(self, ticket: Ticket, context: Context) -> Admit | None:
        """Wait until the turn is admitted; None if the client leaves first.

        Raises:
            Exception: the turn is refused, as Dynamo's frontend wants to hear it.
        """
        if ticket.answer is None:
            self.counters["waited_turns"] += 1
            stopped = asyncio.ensure_future(context.async_killed_or_stopped())
            try:
                await asyncio.wait((ticket.future(), stopped), return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopped.cancel()
        if context.is_stopped():
            return None
        answer = ticket.answer
        if isinstance(answer, Refuse):
            self.counters[f"refused_{answer.reason.value}"] += 1
            log.info("turn_refused", request=ticket.request_id, reason=answer.reason.value, text=answer.text)
            session = answer.session_id
            if session is not None and self._driver.scheduler.explain(session, self._driver.clock()) is None:
                self._credit.forget(session)  # refused on arrival, so the core never had it
            raise self._failures.refused(answer)
        return answer

    async def _stream(self, work: _Work, admit: Admit) -> None:
        feed, grown = self._driver.feed, self._driver.scheduler.tokens
        answer = await self._forward(work.request, admit.node, work.context)
        relay = Relay(work.outlet.put, self.pace)

        def take(batch: list[Chunk]) -> None:
            for chunk in batch:
                work.produced += len(chunk.get("token_ids") or ())
                usage = chunk.get("completion_usage")
                if usage:
                    self._note_usage(usage, work)
                if chunk.get("finish_reason") is not None:
                    work.finished = True
            relay.add(batch)
            if work.produced - work.reported >= REPORT_EVERY:
                feed(grown, admit.request_id, work.produced - work.reported)
                work.reported = work.produced
            if not work.started and work.produced:
                work.started = True
                self._first_token(admit, work)

        try:
            await answer.pour(take)
        finally:
            answer.close()
            relay.close()

    def _first_token(self, admit: Admit, work: _Work) -> None:
        work.trace.event("first_token")
        self._driver.feed(self._driver.scheduler.first_token, admit.request_id)
        self._workers.trust(admit.node.worker_id)
        if self.follower is not None and work.first_hash is not None:
            self.follower.ran(admit.node, (work.first_hash,))
        if admit.session_id is not None and work.cached is not None:
            self.counters["credit_predicted_tokens"] += admit.credit_tokens
            self.counters["credit_confirmed_tokens"] += work.cached
            self.counters["turns_with_credit"] += admit.credit_tokens > 0
            self.on_credit(admit.credit_tokens, work.cached)

    @staticmethod
    def _note_usage(usage: dict[str, Any], work: _Work) -> None:
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        if isinstance(cached, int):
            work.cached = cached

    def _displace(self, work: _Work, node: NodeId) -> None:
        """The worker is gone before the first token: the turn goes back for another node."""
        if work.turn.session_id is None:
            # A request without a session holds room under its own name: end it, and let it arrive anew.
            self._driver.feed(self._driver.scheduler.turn_ended, work.ticket.request_id, ok=False)
            self._workers.suspect(node.worker_id)
            self._driver.arrive(work.turn, work.ticket)
            return
        self._driver.displaced(work.ticket)
        self._workers.suspect(node.worker_id)

    def _end_session(self, session_id: str) -> None:
        self._driver.feed(self._driver.scheduler.session_ended, session_id)
        self._forget(session_id)

    def _forget(self, session_id: str) -> None:
        """Keep no more of a session: it has ended, expired, or never got in."""
        self._prompts.forget(session_id)
        self._predictor.forget(session_id)
        self._bus.tenants.forget(session_id)


def _pin(request: dict[str, Any], node: NodeId) -> None:
    routing = request.get("routing")
    pinned = dict(routing) if isinstance(routing, dict) else {}
    pinned["backend_instance_id"], pinned["dp_rank"] = node.worker_id, node.dp_rank
    request["routing"] = pinned


def _bounded(max_tokens: int | None) -> int | None:
    """A limit below what the core would guess is the better guess; a large one says nothing."""
    return max_tokens if max_tokens is not None and 0 < max_tokens <= 256 else None
