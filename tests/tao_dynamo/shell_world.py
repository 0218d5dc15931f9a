# SPDX-License-Identifier: Apache-2.0
"""The whole shell without Dynamo: real core, tables and handler; workers, contexts and streams by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from kv_events.credit import CreditTable
from kv_events.follow import Follower
from kv_events.index import BlockIndex
from kv_events.types import NodeId
from solver.front import solve
from solver.planner import Planner
from solver.problem import Plan, Problem
from tao_dynamo.core.decisions import Refuse
from tao_dynamo.core.policy import DEFAULT, Policy
from tao_dynamo.core.scheduler import Scheduler
from tao_dynamo.shell.bus import Bus
from tao_dynamo.shell.handler import Handler
from tao_dynamo.shell.loop import Driver
from tao_dynamo.shell.prompts import Prompts
from tao_dynamo.shell.sources import Sources
from tao_dynamo.shell.workers import Workers
from tests.tao_dynamo.test_shell_workers import FakeDiscovery, card
from tool_hooks.predictor import Predictor


class GoneError(Exception):
    """A worker that cannot be reached."""


class RefusedError(Exception):
    """What a refused turn gets."""


class FakeFailures:
    def worker_gone(self, error: Exception) -> bool:
        return isinstance(error, GoneError)

    def translate(self, error: Exception, started: bool) -> Exception:
        return RuntimeError(f"started={started}: {error}")

    def refused(self, refusal: Refuse) -> Exception:
        return RefusedError(refusal.text)

    def wrong(self, text: str) -> Exception:
        return RefusedError(text)


class FakeContext:
    def __init__(self, name: str) -> None:
        self._name = name
        self._stopped = asyncio.get_running_loop().create_future()

    def id(self) -> str:
        return self._name

    def is_stopped(self) -> bool:
        return self._stopped.done()

    def async_killed_or_stopped(self) -> asyncio.Future[bool]:
        return asyncio.shield(self._stopped)

    def trace_headers(self) -> dict[str, str] | None:
        return {"traceparent": "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"}

    def stop(self) -> None:
        self._stopped.set_result(True)


class FakeSolver:
    """Solves on the spot; ``fail`` makes it raise so many times, ``hold`` keeps plans back."""

    def __init__(self) -> None:
        self.fail = 0
        self.calls = 0
        self.gate: asyncio.Event | None = None

    async def solve_async(self, problem: Problem, budget_ms: float) -> Plan:
        self.calls += 1
        if self.fail:
            self.fail -= 1
            raise OSError("no solver")
        plan = solve(problem, method="bfd")
        if self.gate is not None:
            await self.gate.wait()
        return plan


class FakeAnswer:
    """A stream, each chunk a batch."""

    def __init__(self, chunks: AsyncIterator[dict[str, Any]]) -> None:
        self._chunks = chunks

    async def pour(self, into: Callable[[list[dict[str, Any]]], None]) -> None:
        async for chunk in self._chunks:
            into([chunk])

    def close(self) -> None:
        """Nobody reads on."""


class FakeWorker:
    """Answers a request by ``max_tokens`` chunks; ``gate`` holds them back until it is set."""

    def __init__(self) -> None:
        self.served: list[tuple[NodeId, dict[str, Any]]] = []
        self.dead: set[int] = set()
        self.deaths = 0
        """Requests that are yet to find their worker gone, whichever it is."""
        self.break_after: int | None = None
        self.gate: asyncio.Event | None = None

    async def __call__(self, request: dict[str, Any], node: NodeId, context: FakeContext) -> FakeAnswer:
        if self.deaths or node.worker_id in self.dead:
            self.deaths = max(0, self.deaths - 1)
            raise GoneError(f"worker {node.worker_id}")
        self.served.append((node, request))
        return FakeAnswer(self._chunks(request, context))

    async def _chunks(self, request: dict[str, Any], context: FakeContext) -> AsyncIterator[dict[str, Any]]:
        usage = {"prompt_tokens_details": {"cached_tokens": 16}}
        for number in range(request["stop_conditions"]["max_tokens"]):
            if number == self.break_after:
                raise GoneError("in mid-stream")
            if context.is_stopped():
                return
            yield {"token_ids": [number], "index": 0} | ({"completion_usage": usage} if number == 0 else {})
            if self.gate is not None:
                stop = context.async_killed_or_stopped()
                await asyncio.wait((asyncio.ensure_future(self.gate.wait()), stop), return_when="FIRST_COMPLETED")
        yield {"token_ids": [], "finish_reason": "length", "index": 0, "completion_usage": usage}


class World:
    """Two workers, 7 and 8, of ``blocks`` blocks of 16 tokens."""

    def __init__(self, policy: Policy = DEFAULT, blocks: int = 64) -> None:
        index = BlockIndex()
        self.index = index
        self.credit = CreditTable(index)
        self.predictor = Predictor()
        self.solver = FakeSolver()
        self.worker = FakeWorker()
        self.driver = Driver(
            Scheduler(policy, credit=self.credit, readiness=self.predictor), self.solver, fallback=lambda: NodeId(8, 0)
        )
        self.bus = Bus(self.driver, self.credit, self.predictor)
        self.bus.follower = Follower(index, None, self.bus)
        self.discovery = FakeDiscovery([7, 8], {7: card(blocks), 8: card(blocks)})
        self.workers = Workers(self.discovery, self.bus, clock=self.driver.clock)
        self.workers.sync()
        self.prompts = Prompts()
        self.handler = Handler(
            self.driver,
            self.worker,  # type: ignore[arg-type]
            credit=self.credit,
            predictor=self.predictor,
            prompts=self.prompts,
            bus=self.bus,
            workers=self.workers,
            failures=FakeFailures(),
        )
        self.context: dict[str, FakeContext] = {}
        self.contexts = 0

    def start(self, session: str | None, prompt: int, output: int = 4, **more: Any) -> asyncio.Task[list[int]]:
        """Begin a turn; the task gives its tokens."""
        self.contexts += 1
        name = more.pop("request_id", f"r{self.contexts}")
        context = self.context[name] = FakeContext(name)
        agent = {"session_id": session} | more.pop("agent", {}) if session else None
        request = {
            "token_ids": list(range(prompt)),
            "stop_conditions": {"max_tokens": output},
            "routing": {"expected_output_tokens": output},
            "agent_context": agent,
        } | more
        return asyncio.create_task(self._collect(request, context))

    async def _collect(self, request: dict[str, Any], context: FakeContext) -> list[int]:
        out: list[int] = []
        async for chunk in self.handler.generate(request, context):
            out += chunk["token_ids"]
        return out

    async def until(self, condition: Callable[[], object]) -> None:
        """Let everything run until the condition holds."""
        for _ in range(400):
            if condition():
                return
            await asyncio.sleep(0.005)
        raise AssertionError("it never came true")

    def states(self) -> dict[str, int]:
        return self.driver.scheduler.statistics(self.driver.clock()).sessions_by_state

    def reserved(self) -> int:
        return sum(node.reserved for node in self.driver.scheduler.statistics(self.driver.clock()).nodes)

    def sources(self) -> Sources:
        """Everything that metrics and status ask."""
        return Sources(
            driver=self.driver,
            handler=self.handler,
            bus=self.bus,
            workers=self.workers,
            index=self.index,
            predictor=self.predictor,
            planner=Planner(),
            reader=None,
        )
