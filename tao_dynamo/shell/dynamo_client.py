# SPDX-License-Identifier: Apache-2.0
"""The workers, as Dynamo's client knows them, and the way of a request to one of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol

from kv_events.types import NodeId
from tao_dynamo.errors import WireError
from tao_dynamo.shell.answers import GoneError
from tao_dynamo.shell.departures import Departures
from tao_dynamo.shell.direct import Plane
from tao_dynamo.shell.handler import Chunks
from tao_dynamo.shell.logs import Events
from tao_dynamo.shell.relay import Chunk
from tao_dynamo.shell.reply import Reply

log = Events("tao.client")


class CardWatch(Protocol):
    """Dynamo's watch of model cards, which comes with a subscription to every forward pass of every worker."""

    def get_model_cards(self) -> Mapping[str, str]:
        """JSON of the cards seen, by worker."""

    def shutdown(self) -> None:
        """Stop."""


class DynamoDiscovery:
    """The live set from a client's watch, the cards from Dynamo's model-card watch.

    ``addresses`` has what is known of where workers take requests; ``plane``, if there is one, is told of it, and
    ``departures`` of who lives. Cards are watched only while that of a live worker is missing: a forward pass is a
    message, thousands a second.

    Args:
        client: Dynamo's, of the workers' endpoint.
        watch: starts a watch of the model cards.
    """

    def __init__(self, client: Any, watch: Callable[[], CardWatch]) -> None:
        self.addresses: dict[int, str] = {}
        self.plane: Plane | None = None
        self.departures = Departures()
        self._client = client
        self._watch = watch
        self._watching: CardWatch | None = None
        self._cards: dict[int, str] = {}

    def instance_ids(self) -> list[int]:
        """Ids of the live workers."""
        live = list(self._client.instance_ids())
        self.departures.instances(live)
        if self.addresses.keys() != set(live):
            known = {one.instance_id: one.transport for one in self._client.instances()}
            self.addresses = {worker: known[worker].address for worker in live if worker in known}
            if self.plane is not None:
                self.plane.instances(self.addresses)
        return live

    def cards(self) -> Mapping[int, str]:
        """JSON of each live worker's card, as far as it is known."""
        live = set(self._client.instance_ids())
        self._cards = {worker: card for worker, card in self._cards.items() if worker in live}
        if live - self._cards.keys():
            if self._watching is None:
                self._watching = self._watch()
            seen = {int(worker): card for worker, card in self._watching.get_model_cards().items()}
            self._cards |= {worker: card for worker, card in seen.items() if worker in live}
        elif self._watching is not None:
            self._watching.shutdown()
            self._watching = None
        return self._cards


class OneByOne:
    """The answer that Dynamo's client gives, each chunk a batch. It tells the worker itself when nobody reads on.

    Args:
        chunks: the client's.
        worker_id: whose they are.
        departures: told of the answer while it is under way.
    """

    def __init__(self, chunks: AsyncIterator[Chunk], worker_id: int, departures: Departures) -> None:
        self.heard = float("-inf")
        self._chunks = chunks
        self._worker_id = worker_id
        self._departures = departures
        self._reading: asyncio.Task[None] | None = None
        self._lost = False
        departures.begin(worker_id, self)

    async def pour(self, into: Callable[[list[Chunk]], None]) -> None:
        """Hand over each batch as it comes; returns at the end.

        Raises:
            GoneError: the worker has left, and is heard of no longer.
        """
        self._reading = asyncio.get_running_loop().create_task(self._read(into))
        try:
            await self._reading
        except asyncio.CancelledError:
            if not self._lost:
                raise
            raise GoneError("Unavailable: Stream ended before generation completed") from None

    def lost(self) -> None:
        """The worker has left, and is heard of no longer."""
        self._lost = True
        if self._reading is not None:
            self._reading.cancel()

    def close(self) -> None:
        """Nobody reads on."""
        self._departures.end(self._worker_id, self)

    async def _read(self, into: Callable[[list[Chunk]], None]) -> None:
        clock = asyncio.get_running_loop().time
        async for chunk in self._chunks:
            self.heard = clock()
            into([chunk])


class Forwarder:
    """Sends requests to workers: directly where that can be done, else through Dynamo's client.

    Args:
        client: Dynamo's, of the workers' endpoint.
        discovery: where workers take requests.
    """

    def __init__(self, client: Any, discovery: DynamoDiscovery) -> None:
        self.ways: Counter[str] = Counter()
        self._client = client
        self._discovery = discovery

    def go_direct(self, plane: Plane) -> None:
        """Use this plane from now on."""
        self._discovery.plane = plane

    async def __call__(self, request: dict[str, Any], node: NodeId, context: Any) -> Chunks:
        """Send a request; returns the answer.

        Raises:
            Exception: the worker cannot be reached.
        """
        plane = self._discovery.plane
        address = self._discovery.addresses.get(node.worker_id)
        if plane is not None and address is not None and node.worker_id not in plane.distrusted:
            try:
                answer = await plane.send(request, node.worker_id, address, context)
            except WireError as error:
                log.warning("direct_stream_failed", worker=node.worker_id, error=error, instead="Dynamo's client")
            else:
                self.ways["direct"] += 1
                return answer
        self.ways["client"] += 1
        chunks = await self._client.direct(request, node.worker_id, annotated=False, context=_dynamos(context))
        return OneByOne(chunks, node.worker_id, self._discovery.departures)

    async def close(self) -> None:
        """Close what was opened here."""
        if self._discovery.plane is not None:
            await self._discovery.plane.close()


def _dynamos(context: Any) -> Any:
    """The context as Dynamo's client wants it, its own: for a turn that came in directly, one that stops with ours."""
    if not isinstance(context, Reply):
        return context
    from dynamo.runtime import Context

    theirs = Context(context.id(), {str(key): str(value) for key, value in context.metadata.items()})
    context.async_killed_or_stopped().add_done_callback(lambda left: left.cancelled() or theirs.stop_generating())
    return theirs
