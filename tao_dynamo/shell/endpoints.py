# SPDX-License-Identifier: Apache-2.0
"""The router's endpoints: what is served, and how turns come in."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from typing import Any

from dynamo.common.utils.token_ids import token_ids_to_list
from dynamo.llm.exceptions import HttpError
from dynamo.runtime import DistributedRuntime

from tao_dynamo.errors import DiscoveryError, WireError
from tao_dynamo.shell import status
from tao_dynamo.shell.config import Config
from tao_dynamo.shell.direct import hindrance
from tao_dynamo.shell.failures import OVERLOADED, DynamoFailures
from tao_dynamo.shell.handler import Handler
from tao_dynamo.shell.ingress import Ingress
from tao_dynamo.shell.kv_router import OnCall
from tao_dynamo.shell.logs import Events
from tao_dynamo.shell.outlet import Push, threads
from tao_dynamo.shell.readdress import readdress
from tao_dynamo.shell.relay import Chunk
from tao_dynamo.shell.reply import Reply
from tao_dynamo.shell.sockets import turns_at_once
from tao_dynamo.shell.sources import Sources
from tao_dynamo.shell.wire import Address, largest, whole

log = Events("tao.endpoints")

TURNS = "generate"
OTHERS = ("best_worker_id", "get_overlap_scores", "status")
PORT_VARIABLE = "DYN_TCP_RPC_PORT"
DRAIN_VARIABLE = "DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS"
_POLL_S = 0.02
_SEEN_S = 10.0


class Endpoints:
    """All of them, in one component.

    Args:
        handler: serves turns.
        kv_router: Dynamo's, which knows overlap scores.
        sources: of the status.
    """

    def __init__(self, handler: Handler, kv_router: OnCall, sources: Sources) -> None:
        self._handler = handler
        self._kv_router = kv_router
        self._sources = sources
        self._pushers = threads()
        self._ingress: Ingress | None = None
        self._turns: Any = None
        self._draining: asyncio.Future[None] | None = None
        self._leaving = False
        self._most = turns_at_once()

    async def serve(self, runtime: DistributedRuntime, config: Config, env: Mapping[str, str]) -> None:
        """Serve until the runtime ends."""
        labels = [("service", "tao_router")]

        def serve(name: str) -> asyncio.Future[None]:
            endpoint = runtime.endpoint(config.path(name))
            serving = endpoint.serve_endpoint(getattr(self, name), graceful_shutdown=True, metrics_labels=labels)
            task: asyncio.Future[None] = asyncio.ensure_future(serving)
            return task

        serving = [serve(name) for name in (TURNS, *OTHERS)]
        try:
            self._turns = runtime.endpoint(config.path(TURNS))
            because = (_fixed_port(env) or hindrance(env)) if config.direct_streams else "--no-tao-direct-streams"
            if not because:
                because = await self._go_direct(config.path(TURNS), env, serving)
            if because and not self._leaving:
                log.info("turns_by_dynamo", because=because)
            await asyncio.gather(*serving)
            if self._ingress is not None:
                # The runtime ends by itself when it loses its lease in discovery, and Dynamo's server then waits too.
                self._ingress.leave()
                await self._drained(self._ingress, env)
        finally:
            for one in serving:
                one.cancel()

    async def leave(self, env: Mapping[str, str]) -> None:
        """Be found no longer, and let the turns finish that came in here; Dynamo's server waits for its own."""
        self._leaving = True
        if self._ingress is None:
            return
        self._ingress.leave()
        try:
            await self._turns.unregister_endpoint_instance()
        except Exception as error:  # noqa: BLE001 - it leaves all the same
            log.warning("not_withdrawn", error=error)
        await self._drained(self._ingress, env)

    async def close(self) -> None:
        """Stop everything that is ours."""
        if self._draining is not None:
            self._draining.cancel()
        if self._ingress is not None:
            await self._ingress.close()
        self._pushers.shutdown(wait=False, cancel_futures=True)

    # --- the endpoints

    def generate(self, request: dict[str, Any], context: Any, response_sender: Any = None) -> AsyncIterator[Chunk]:
        """Serve one turn that came by Dynamo's server.

        Dynamo gives a response sender to a handler that has an argument of that name, but not in calls from inside the
        process or for health checks: these ask for the chunks one by one.
        """
        if response_sender is None:
            return self._handler.generate(request, context)
        return self._push(request, context, Push(response_sender, self._pushers))

    async def best_worker_id(
        self, token_ids: Any, router_config_override: Any = None, cache_namespace: str | None = None
    ) -> AsyncIterator[int]:
        """The worker that Dynamo's KV router would choose for these tokens; nothing is booked."""
        worker, _rank, _blocks = await (await self._kv_router.get()).best_worker(
            token_ids_to_list(token_ids), router_config_override, cache_namespace=cache_namespace
        )
        yield worker

    async def get_overlap_scores(self, request: dict[str, Any]) -> AsyncIterator[Any]:
        """Blocks of these tokens on each worker and tier, as Dynamo's KV router knows them."""
        yield await (await self._kv_router.get()).get_overlap_scores(
            token_ids_to_list(request["token_ids"]),
            request.get("router_config_override"),
            request.get("block_mm_infos"),
            request.get("lora_name"),
            request.get("include_shared", True),
            request.get("cache_namespace"),
        )

    async def status(self, request: dict[str, Any] | None = None) -> AsyncIterator[dict[str, Any]]:
        """The status; with ``{"session": id}`` what is known of that session."""
        body = request if isinstance(request, dict) else {}
        yield status.explain(self._sources, body) if body.get("session") else status.status(self._sources)

    # --- inside

    async def _drained(self, ingress: Ingress, env: Mapping[str, str]) -> None:
        """Let the turns finish: once, whoever asks first, and however many wait for it."""
        if self._draining is None:
            self._draining = asyncio.ensure_future(self._drain(ingress, env))
        await asyncio.shield(self._draining)

    async def _drain(self, ingress: Ingress, env: Mapping[str, str]) -> None:
        seconds = whole(env.get(DRAIN_VARIABLE))
        if not await ingress.drained(math.inf if seconds is None else seconds):
            log.warning("not_drained", variable=DRAIN_VARIABLE, seconds=seconds)

    async def _go_direct(self, path: str, env: Mapping[str, str], serving: list[asyncio.Future[None]]) -> str:
        """Take turns by an ingress of our own. Returns why it cannot be: Dynamo's server then goes on taking them."""
        try:
            place = await self._found(serving)
        except WireError as error:
            return str(error)
        if place is None:
            return "discovery does not show where they are taken"
        ingress = Ingress(place.path, self._turn, DynamoFailures.told, DynamoFailures.EXPECTED, largest=largest(env))
        try:
            port = await ingress.open(place.host)
            self._ingress = ingress  # from now on turns may come, and be told to leave
            key = f"{path.replace('.', '/')}/{self._turns.connection_id():x}"
            await readdress(env, key, str(place), str(Address(place.host, port, place.path)))
        except (OSError, DiscoveryError) as error:
            self._ingress = None
            await ingress.close()
            return str(error)
        log.info("turns_direct", host=place.host, port=port)
        return ""

    async def _found(self, serving: list[asyncio.Future[None]]) -> Address | None:
        """Where discovery says that turns are taken."""
        client = await self._turns.client()
        mine = self._turns.connection_id()
        until = asyncio.get_running_loop().time() + _SEEN_S
        while not any(one.done() for one in serving) and asyncio.get_running_loop().time() < until:
            for one in client.instances():
                if one.instance_id == mine:
                    return Address.parse(one.transport.address)
            await asyncio.sleep(_POLL_S)
        return None

    async def _turn(self, request: dict[str, Any], reply: Reply) -> None:
        if self._ingress is not None and self._ingress.serving > self._most:
            # Workers' answers could not be accepted any longer, of turns that run already.
            text = f"{self._most} turns at once are as many as the router may have file descriptors for"
            self._handler.counters["refused_descriptors"] += 1
            log.warning("turn_refused", request=reply.id(), text=text)
            raise HttpError(OVERLOADED, text)
        await self._handler.serve(request, reply, reply)

    async def _push(self, request: dict[str, Any], context: Any, outlet: Push) -> AsyncIterator[Chunk]:
        """A generator, since that is what Dynamo runs, of no chunks, since they are pushed."""
        try:
            await self._handler.serve(request, context, outlet)
        except DynamoFailures.SAID as error:
            # Dynamo writes the traceback of whatever is raised here, by no hook of Python's: a short one, then.
            raise error.with_traceback(None) from None
        finally:
            await outlet.drained()
        return
        yield


def _fixed_port(env: Mapping[str, str]) -> str:
    """Requests are to come to a port that somebody opened for them. Dynamo's server has it; ours would be another."""
    port = env.get(PORT_VARIABLE, "")
    return f"{PORT_VARIABLE}={port}" if port.strip("0") else ""
