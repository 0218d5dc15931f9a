# SPDX-License-Identifier: Apache-2.0
"""Cases C1, C3 and C16 over a real nats-server: what was pinned down with an injected clock holds on the wire too."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import nats
import pytest

from kv_events.credit import CreditTable
from kv_events.reader import BusOptions, EventReader
from tests.kv_events.events import A, B, C, FakeSource, chain, message, stored
from tests.kv_events.test_reader import SUBJECT, Ears, Server, until


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    one = Server()
    await one.start()
    yield one
    one.stop()


@asynccontextmanager
async def listening(server: Server, ears: Ears) -> AsyncIterator[EventReader]:
    reader = EventReader(BusOptions(servers=(server.url,), reconnect_wait_s=0.1), [SUBJECT], ears)
    await reader.start()
    await until(lambda: reader.connected)
    try:
        yield reader
    finally:
        await reader.close()
        await ears.follower.close()


@asynccontextmanager
async def publishing(server: Server) -> AsyncIterator[Any]:
    client = await nats.connect(server.url)
    try:
        yield client
    finally:
        await client.close()


@pytest.mark.nats
@pytest.mark.parametrize(("publisher", "published_at"), [(2, 0), (1, 99)], ids=["new publisher", "same publisher"])
async def test_c1_the_engine_restarts_under_the_same_worker_id(
    server: Server, publisher: int, published_at: int, caplog: pytest.LogCaptureFixture
) -> None:
    ears = Ears(FakeSource())
    index = ears.follower.index
    credit = CreditTable(index)
    for node in (A, C):
        index.set_block_size(node, 16)
    credit.turn("s", {16: chain(range(1, 501))}, 0.0)
    async with listening(server, ears), publishing(server) as client:
        for at in range(1, 501):
            await client.publish(SUBJECT, message([stored([at], at - 1 if at > 1 else None, at=at)], at - 1))
        await client.publish(SUBJECT, message([stored([1, 2], node=C)], 0, publisher=9))
        await until(lambda: credit.resident("s") == {A: 8000, C: 32})
        with caplog.at_level(logging.WARNING):
            again = message([stored([9001])], 0, publisher=publisher, published_at=published_at)
            await client.publish(SUBJECT, again)
            await until(lambda: index.overlap(chain([9001])) == {A: 1})
        assert credit.resident("s") == {C: 32}
        assert ears.follower.stream.counters.restarts == 1
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        await client.publish(SUBJECT, message([stored([9002], 9001, at=2)], 1, publisher=publisher))
        await until(lambda: index.overlap(chain([9001, 9002])) == {A: 2})


@pytest.mark.nats
async def test_c3_a_gap_one_dump_and_an_event_that_comes_while_it_is_read(server: Server) -> None:
    source = FakeSource(stored(range(1, 16)), as_of={A: 15})
    source.open.clear()
    ears = Ears(source)
    index = ears.follower.index
    async with listening(server, ears), publishing(server) as client:
        for at in (*range(1, 11), 14, 15):
            await client.publish(SUBJECT, message([stored([at], at - 1 if at > 1 else None, at=at)], at - 1))
            if at <= 10:
                unbroken = stored([at], at - 1 if at > 1 else None, node=B, at=at)
                await client.publish(SUBJECT, message([unbroken], at - 1, publisher=2))
        await until(lambda: source.asked == 1)
        assert (index.is_stale(A), index.is_stale(B)) == (True, False)
        await client.publish(SUBJECT, message([stored([16], 15, at=16)], 15))
        await client.publish(SUBJECT, message([stored([11], 10, node=B, at=11)], 10, publisher=2))
        await until(lambda: index.overlap(chain(range(1, 12))).get(B) == 11)
        assert index.overlap(chain(range(1, 17)))[A] == 10
        source.open.set()
        await until(lambda: not index.is_stale(A))
        assert index.overlap(chain(range(1, 17)))[A] == 16
        await client.publish(SUBJECT, message([stored([17], 16, at=17)], 16))
        await until(lambda: index.overlap(chain(range(1, 18)))[A] == 17)
        assert ears.follower.stream.cursor(A) == 17
        await asyncio.sleep(0.2)
        assert source.asked == ears.follower.counters.resyncs == 1


@pytest.mark.nats
async def test_c16_every_replica_fetches_once_after_an_outage_and_one_that_leaves_disturbs_nobody(
    server: Server,
) -> None:
    sources = [FakeSource(stored([1, 2])) for _ in range(2)]
    first, second = (Ears(source) for source in sources)
    async with listening(server, second):
        async with listening(server, first):
            async with publishing(server) as client:
                await client.publish(SUBJECT, message([stored([1])], 0))
                await until(lambda: all(len(ears.batches) == 1 for ears in (first, second)))
            server.stop()
            await until(lambda: all(ears.follower.index.is_stale(A) for ears in (first, second)))
            assert all(ears.follower.index.overlap(chain([1, 2])) == {A: 1} for ears in (first, second))
            await server.start()
            await until(lambda: not any(ears.follower.index.is_stale(A) for ears in (first, second)))
            await asyncio.sleep(0.2)
            assert [source.asked for source in sources] == [1, 1]
        async with publishing(server) as client:
            await client.publish(SUBJECT, message([stored([3], 2, at=2)], 1))
            await until(lambda: second.follower.index.overlap(chain([1, 2, 3])) == {A: 3})
        assert len(first.batches) == 1
