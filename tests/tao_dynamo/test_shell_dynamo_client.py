# SPDX-License-Identifier: Apache-2.0
"""Answers that come through Dynamo's client, of workers that leave."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from dynamo.runtime import Context

from kv_events.types import NodeId
from tao_dynamo.shell.answers import GoneError
from tao_dynamo.shell.dynamo_client import DynamoDiscovery, Forwarder
from tao_dynamo.shell.ingress_wire import Request
from tao_dynamo.shell.reply import Reply

pytestmark = pytest.mark.timeout(30)


class FakeClient:
    """Dynamo's, of workers that answer with two chunks, the second when they are told to."""

    def __init__(self, live: list[int]) -> None:
        self.live = live
        self.go_on = asyncio.Event()
        self.context: Any = None

    def instance_ids(self) -> list[int]:
        return self.live

    def instances(self) -> list[Any]:
        return [SimpleNamespace(instance_id=one, transport=SimpleNamespace(address="a:1/x")) for one in self.live]

    async def direct(self, _request: Any, _worker_id: int, **more: Any) -> AsyncIterator[dict[str, Any]]:
        self.context = more["context"]
        return self._chunks()

    async def _chunks(self) -> AsyncIterator[dict[str, Any]]:
        yield {"token_ids": [1]}
        await self.go_on.wait()
        yield {"token_ids": [2]}


class FakeWatch:
    def get_model_cards(self) -> dict[str, str]:
        return {}

    def shutdown(self) -> None: ...


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_worker_that_left_may_finish_unless_it_hangs(monkeypatch: pytest.MonkeyPatch, hangs: bool) -> None:
    if hangs:
        monkeypatch.setattr("tao_dynamo.shell.departures.SILENCE_S", 0.05)
    client = FakeClient([7, 8])
    discovery = DynamoDiscovery(client, FakeWatch)
    discovery.instance_ids()
    answer = await Forwarder(client, discovery)({}, NodeId(7, 0), None)
    got: list[int] = []
    first = asyncio.Event()

    def take(batch: list[dict[str, Any]]) -> None:
        got.extend(token for chunk in batch for token in chunk["token_ids"])
        first.set()

    pouring = asyncio.create_task(answer.pour(take))
    await first.wait()
    client.live = [8]
    discovery.instance_ids()
    if hangs:
        with pytest.raises(GoneError, match="Stream ended before"):
            await pouring
        assert got == [1]
    else:
        client.go_on.set()
        await pouring
        assert got == [1, 2]
    answer.close()


async def test_whoever_ends_the_turn_ends_the_reading() -> None:
    client = FakeClient([7])
    answer = await Forwarder(client, DynamoDiscovery(client, FakeWatch))({}, NodeId(7, 0), None)
    pouring = asyncio.create_task(answer.pour(lambda _: None))
    await asyncio.sleep(0.01)
    pouring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pouring
    answer.close()


async def test_a_worker_that_left_is_heard_of_though_its_address_was_never_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tao_dynamo.shell.departures.SILENCE_S", 0.05)

    class Lagging(FakeClient):
        def instances(self) -> list[Any]:
            return [one for one in super().instances() if one.instance_id != 7]

    client = Lagging([7, 8])
    discovery = DynamoDiscovery(client, FakeWatch)
    discovery.instance_ids()
    answer = await Forwarder(client, discovery)({}, NodeId(7, 0), None)
    pouring = asyncio.create_task(answer.pour(lambda _batch: None))
    await asyncio.sleep(0)
    client.live = [8]
    discovery.instance_ids()
    with pytest.raises(GoneError, match="Stream ended before"):
        await asyncio.wait_for(pouring, 10)


async def test_for_a_turn_that_came_in_directly_dynamos_client_has_a_context_of_its_own_kind() -> None:
    client = FakeClient([7])
    reply = Reply(Request("r1", {}, "", "s", {}, {"tenant": "a"}), (int(socket.AF_INET), ("127.0.0.1", 1)))
    await Forwarder(client, DynamoDiscovery(client, FakeWatch))({}, NodeId(7, 0), reply)
    assert isinstance(client.context, Context)
    assert client.context.id() == "r1"
    assert client.context.metadata["tenant"] == "a"
    assert not client.context.is_stopped()
    reply.close()
    await asyncio.sleep(0)
    assert client.context.is_stopped()
