# SPDX-License-Identifier: Apache-2.0
"""The router as a Dynamo component: builds the parts, serves the endpoints, goes quietly."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from typing import Any

import msgspec
from dynamo.common.native_offloading import get_native_offloading_capacity_tokens
from dynamo.llm import (
    FpmEventSubscriber,
    KvRouter,
    KvRouterConfig,
    ModelInput,
    ModelRuntimeConfig,
    ModelType,
    WorkerType,
    register_model,
)
from dynamo.runtime import DistributedRuntime

from kv_events.credit import CreditTable
from kv_events.follow import Follower
from kv_events.index import BlockIndex
from kv_events.reader import BusOptions, EventReader, endpoint_subjects, tool_subject
from kv_events.types import NodeId
from solver.planner import Planner
from tao_dynamo.core.scheduler import Scheduler
from tao_dynamo.errors import ConfigError, StackError
from tao_dynamo.page.server import PageServer, is_loopback
from tao_dynamo.page.shared import Shared
from tao_dynamo.shell import garbage, status, tracing, wire
from tao_dynamo.shell.bus import Bus, RouterDump
from tao_dynamo.shell.config import Config, check_model_folder
from tao_dynamo.shell.direct import Plane, hindrance
from tao_dynamo.shell.dynamo_client import DynamoDiscovery, Forwarder
from tao_dynamo.shell.endpoints import Endpoints
from tao_dynamo.shell.failures import DynamoFailures
from tao_dynamo.shell.handler import Handler
from tao_dynamo.shell.kv_router import OnCall
from tao_dynamo.shell.logs import Events
from tao_dynamo.shell.loop import Driver
from tao_dynamo.shell.metrics import Metrics
from tao_dynamo.shell.prompts import Prompts
from tao_dynamo.shell.snapshot import snapshot
from tao_dynamo.shell.sockets import allow_many
from tao_dynamo.shell.sources import Sources
from tao_dynamo.shell.tenants import Tenants
from tao_dynamo.shell.workers import Card, Workers, mismatch
from tool_hooks.bus_check import check_bus
from tool_hooks.predictor import Predictor

log = Events("tao.service")


class Service:
    """One router.

    Args:
        runtime: Dynamo's.
        config: what it was told.
    """

    def __init__(self, runtime: DistributedRuntime, config: Config) -> None:
        self._runtime = runtime
        self._config = config
        self._tasks: list[asyncio.Task[None]] = []
        policy = config.policy
        self.index = BlockIndex()
        self.credit = CreditTable(
            self.index,
            half_life_s=policy.credit_half_life_s,
            stale_discount=policy.stale_discount,
            max_sessions=policy.max_sessions,
        )
        self.predictor = Predictor(
            policy.predictor,
            horizon_s=policy.horizon_s,
            refresh_s=policy.refresh_s,
            max_sessions=policy.max_sessions,
        )
        self.planner = Planner(method=policy.solver)
        self.driver = Driver(
            Scheduler(policy, credit=self.credit, readiness=self.predictor), self.planner, fallback=self._any_node
        )
        self.bus = Bus(
            self.driver,
            self.credit,
            self.predictor,
            use_kv_events=config.use_kv_events,
            tenants=Tenants(config.shared_namespaces, policy.max_sessions),
        )
        self._next_node = 0
        self.endpoints: Endpoints | None = None
        self._tracing = tracing.from_env(os.environ)
        self._forward: Forwarder | None = None
        self._page: PageServer | None = None

    async def start(self) -> None:
        """Find the workers, warm up, listen.

        Raises:
            ConfigError: the workers and the flags do not go together.
        """
        config = self._config
        endpoint = self._runtime.endpoint(config.endpoint)
        self._client = await endpoint.client()

        def watch_cards() -> FpmEventSubscriber:
            subscriber = FpmEventSubscriber(endpoint)
            subscriber.start_tracking()
            return subscriber

        discovery = DynamoDiscovery(self._client, watch_cards)
        self._forward = Forwarder(self._client, discovery)
        self.workers = Workers(
            discovery,
            self.bus,
            clock=self.driver.clock,
            block_size=config.block_size,
            node_capacity=config.node_capacity,
            host_tokens=get_native_offloading_capacity_tokens,
        )
        self.handler = Handler(
            self.driver,
            self._forward,
            credit=self.credit,
            predictor=self.predictor,
            prompts=Prompts(config.policy.max_sessions),
            bus=self.bus,
            workers=self.workers,
            failures=DynamoFailures(),
            retries=config.retries,
        )
        self.handler.tracing = self._tracing
        if config.direct_streams and not hindrance(os.environ):
            largest = wire.largest(os.environ)
            self._forward.go_direct(Plane(self.handler.pace, DynamoFailures.sent, discovery.departures, largest))
        self.planner.start(wait_s=0)
        card = await self._first_card()
        self.workers.model = card.model_name if not card.adapter else None
        block_size = config.block_size or card.block_size or 16
        settings = KvRouterConfig(**config.kv_router)
        self.kv_router = OnCall(lambda: KvRouter(endpoint=endpoint, block_size=block_size, kv_router_config=settings))
        self.kv_router.wake()
        reader = await self._listen()
        self.sources = Sources(
            driver=self.driver,
            handler=self.handler,
            bus=self.bus,
            workers=self.workers,
            index=self.index,
            predictor=self.predictor,
            planner=self.planner,
            reader=reader,
            streams=self._forward.ways,
        )
        self.shared = Shared(lambda: snapshot(self.sources))
        await self._open_page()
        self._spawn(self.workers.run(), "workers")
        self._spawn(self.bus.run(), "bus")
        await self._warm()
        garbage.spare()
        await self._register(card, block_size)

    async def serve(self) -> None:
        """Serve the endpoints until the runtime ends."""
        self.endpoints = Endpoints(self.handler, self.kv_router, self.sources)
        self._observe(self._runtime.endpoint(self._config.path("generate")))
        self._runtime.set_health_status(True)
        await self.endpoints.serve(self._runtime, self._config, os.environ)

    async def leave(self) -> None:
        """Take no more turns, and let what runs finish."""
        if self.endpoints is not None:
            await self.endpoints.leave(os.environ)

    async def close(self) -> None:
        """Stop everything of ours."""
        self.driver.close()
        if self._page is not None:
            await self._page.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.bus.follower is not None:
            await self.bus.follower.close()
        sources = getattr(self, "sources", None)
        if sources is not None and sources.reader is not None:
            await sources.reader.close()
        if self._forward is not None:
            await self._forward.close()
        if self.endpoints is not None:
            await self.endpoints.close()
        await asyncio.to_thread(self._tracing.close)
        await asyncio.to_thread(self.planner.close)

    # --- inside

    async def _first_card(self) -> Card:
        """Wait for a worker, and see that it goes with the flags."""
        said = False
        while True:
            self.workers.sync()
            if self.workers.nodes:
                return next(iter(self.workers.nodes.values()))
            sizes = {card.block_size for card in self.workers.known_cards() if card.block_size}
            ours = self._config.block_size
            if ours is not None and sizes and ours not in sizes:
                raise mismatch(ours, min(sizes))
            if not said:
                said = True
                log.info("waiting_for_workers", endpoint=self._config.endpoint)
            await asyncio.sleep(0.1)

    async def _listen(self) -> EventReader | None:
        config = self._config
        if config.event_plane != "nats":
            log.warning("no_event_bus", event_plane=config.event_plane, hint="set DYN_EVENT_PLANE=nats everywhere")
            return None
        subjects = endpoint_subjects(config.endpoint, TOPICS) if config.use_kv_events else []
        namespaces = dict.fromkeys((*config.shared_namespaces, *config.tool_namespaces))
        subjects += [tool_subject(namespace) for namespace in namespaces]
        if config.use_kv_events:
            self.bus.follower = Follower(self.index, RouterDump(self.kv_router.dump_events), self.bus)
            for node, size in self.bus.publishing_nodes():
                self.bus.follower.node_joined(node, size)
        reader = EventReader(BusOptions.from_env(), subjects, self.bus)
        await reader.start()
        return reader

    async def _warm(self) -> None:
        """Wait until the index knows what the workers hold, or the grace is over."""
        clock = self.driver.clock
        until = clock() + self._config.ready_grace_s
        while clock() < until:
            listening = self.bus.connected or self.bus.follower is None
            if listening and not self.bus.stale_nodes:
                break
            await asyncio.sleep(0.05)
        else:
            log.warning("not_warm", stale_nodes=self.bus.stale_nodes, bus_connected=self.bus.connected)
        log.info("warm", nodes=len(self.workers.nodes), blocks=self.index.stats().blocks)

    async def _register(self, card: Card, block_size: int) -> None:
        config = self._config
        path, name = config.model_path or card.model_path, config.model_name or card.model_name
        check_model_folder(path, offline=os.environ.get("HF_HUB_OFFLINE") == "1")
        runtime_config = ModelRuntimeConfig()
        if parser := config.tool_call_parser or card.tool_call_parser:
            runtime_config.tool_call_parser = parser
        if parser := config.reasoning_parser or card.reasoning_parser:
            runtime_config.reasoning_parser = parser
        endpoint = self._runtime.endpoint(config.path("generate"))
        try:
            for adapter in (None, *config.adapters):
                await register_model(
                    ModelInput.Tokens,
                    ModelType.Chat | ModelType.Completions,
                    endpoint,
                    path,
                    name,
                    worker_type=WorkerType.Aggregated,
                    runtime_config=runtime_config,
                    kv_cache_block_size=block_size,
                    lora_name=adapter,
                    base_model_path=path if adapter else None,
                    ignore_weights=True,
                )
        except Exception as error:
            raise ConfigError("--model-path", path, f"a model that Dynamo can register ({error})") from error
        log.info(
            "registered",
            model=name,
            adapters=",".join(config.adapters),
            endpoint=config.path("generate"),
            workers=config.endpoint,
        )

    def _observe(self, endpoint: Any) -> None:
        metrics = Metrics(self.sources)
        self.driver.on_wait = metrics.observe("turn_wait_seconds")
        self.driver.on_pause_wait = metrics.observe("pause_seconds")
        self.driver.on_solve = metrics.observe("solve_seconds")
        self.bus.on_eta_error = metrics.observe("eta_error_seconds")
        predicted, confirmed = metrics.observe("credit_predicted_tokens"), metrics.observe("credit_confirmed_tokens")

        def credit(forecast: int, seen: int) -> None:
            predicted(forecast)
            confirmed(seen)

        self.handler.on_credit = credit
        endpoint.metrics.register_prometheus_expfmt_callback(metrics.expose)
        self._runtime.register_engine_route("tao/status", self._status_route)
        self._runtime.register_engine_route("tao/explain", self._explain_route)
        self._runtime.register_engine_route("tao/snapshot", self._snapshot_route)

    async def _status_route(self, _body: Mapping[str, Any]) -> dict[str, Any]:
        return status.status(self.sources)

    async def _snapshot_route(self, _body: Mapping[str, Any]) -> dict[str, Any]:
        told: dict[str, Any] = msgspec.to_builtins((await self.shared.get()).snapshot)
        return told

    async def _explain_route(self, body: object) -> dict[str, Any]:
        return status.explain(self.sources, body)

    async def _open_page(self) -> None:
        """Serve the page. A router that cannot have one says so and goes on."""
        host, port = self._config.page_host, self._config.page_port
        if port is None:
            return
        self._page = PageServer(
            self.shared, lambda session: status.explain(self.sources, {"session": session}), host=host, port=port
        )
        try:
            url = await self._page.start()
        except StackError as error:
            log.warning("no_page", error=error)
            return
        log.info("page", url=url)
        if not is_loopback(host):
            log.warning("page_open", host=host, hint="whoever reaches it sees the ids of all sessions")

    def _any_node(self) -> NodeId | None:
        nodes = list(self.workers.nodes)
        self._next_node += 1
        return nodes[self._next_node % len(nodes)] if nodes else None

    def _spawn(self, work: Any, name: str) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work, name=f"tao {name}"))


TOPICS = ("kv-events", "kv_metrics")
"""What is heard of the workers. Not their forward passes: hundreds a second, and ``kv_metrics`` tell the load."""


async def _runtime(loop: asyncio.AbstractEventLoop, config: Config) -> DistributedRuntime:
    """Dynamo's runtime, which connects to NATS at once.

    Raises:
        TaoError: the bus does not take us, or there is no runtime to be had.
    """
    try:
        return DistributedRuntime(
            loop, os.environ.get("DYN_DISCOVERY_BACKEND", "etcd"), os.environ.get("DYN_REQUEST_PLANE", "tcp")
        )
    except Exception as error:
        if config.event_plane == "nats":
            # Dynamo does not say why; whoever speaks the protocol itself can.
            await asyncio.to_thread(check_bus, os.environ)
        raise StackError(f"Dynamo's runtime does not start: {error}") from error


async def run(config: Config) -> int:
    """Run a router until it is told to stop; returns the exit status."""
    loop = asyncio.get_running_loop()
    log.info("file_descriptors", limit=allow_many())
    runtime = await _runtime(loop, config)
    service = Service(runtime, config)
    stopping = asyncio.Event()

    leaving: set[asyncio.Task[None]] = set()

    async def leave() -> None:
        try:
            await service.leave()
        finally:
            # Dynamo withdraws the endpoints, lets what runs there finish, and then ends serve_endpoint.
            runtime.shutdown()

    def stop(name: str) -> None:
        log.info("stopping", signal=name, live_turns=service.driver.live_turns)
        stopping.set()
        if not leaving:
            leaving.add(loop.create_task(leave()))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    ended = asyncio.ensure_future(stopping.wait())
    try:
        starting = asyncio.ensure_future(service.start())
        await asyncio.wait((starting, ended), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return 0
        starting.result()
        with contextlib.suppress(asyncio.CancelledError):
            await service.serve()
    finally:
        ended.cancel()
        await service.close()
        if not stopping.is_set():
            runtime.shutdown()
    return 0
