# SPDX-License-Identifier: Apache-2.0
"""Chunks on their way out: pushed or pulled, in order, and never at the expense of other turns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tao_dynamo.errors import SlowClientError
from tao_dynamo.shell.outlet import FROM_THE_LOOP, MOST_BEHIND, Pull, Push, threads

pytestmark = pytest.mark.timeout(20)


def chunk(number: int) -> dict[str, Any]:
    return {"token_ids": [number], "index": 0}


class Sender:
    """Dynamo's: takes 128 chunks until somebody reads, then blocks."""

    def __init__(self) -> None:
        self.got: list[int] = []
        self.sent_by: set[int] = set()
        self.room = threading.Semaphore(128)
        self.closed = False

    def send(self, obj: dict[str, Any]) -> None:
        if self.closed:
            raise RuntimeError("response stream is closed; the consumer dropped the response stream")
        if not self.room.acquire(timeout=10):
            raise RuntimeError("nobody reads")
        self.sent_by.add(threading.get_ident())
        self.got += obj["token_ids"]

    def close(self) -> None:
        raise AssertionError("Dynamo closes it")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    made = threads()
    yield made
    made.shutdown()


async def test_a_short_turn_is_pushed_from_the_loop_at_once(pool: ThreadPoolExecutor) -> None:
    sender = Sender()
    push = Push(sender, pool)
    for number in range(FROM_THE_LOOP):
        push.put([chunk(number)])
        assert sender.got[-1] == number
    await push.drained()
    assert sender.sent_by == {threading.get_ident()}


async def test_a_client_that_does_not_read_holds_nobody_up(pool: ThreadPoolExecutor) -> None:
    sender = Sender()
    push = Push(sender, pool)
    for number in range(1000):
        push.put([{"token_ids": [number], "index": number}])  # indexes differ: nothing is joined
    drained = asyncio.create_task(push.drained())
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert not drained.done()
    assert len(sender.got) <= 128
    for _ in range(1000):
        sender.room.release()
    await drained
    assert sender.got == list(range(1000))


async def test_chunks_are_joined_while_the_client_is_behind(pool: ThreadPoolExecutor) -> None:
    sender = Sender()
    sends = 0

    def send(obj: dict[str, Any], plain_send: Any = sender.send) -> None:
        nonlocal sends
        sends += 1
        plain_send(obj)

    sender.send = send  # type: ignore[method-assign]
    push = Push(sender, pool)
    for number in range(5000):
        push.put([chunk(number)])
    await push.drained()
    assert sender.got == list(range(5000))
    assert sends < 128


async def test_many_clients_that_do_not_read_hold_up_none_that_does(pool: ThreadPoolExecutor) -> None:
    stuck = [Sender() for _ in range(40)]
    pushes = [Push(sender, pool) for sender in stuck]
    for push in pushes:
        for number in range(300):
            push.put([{"token_ids": [number], "index": number}])  # indexes differ: nothing is joined
    good = Sender()
    good.room = threading.Semaphore(10_000)
    push = Push(good, pool)
    for number in range(300):
        push.put([chunk(number)])
    await push.drained()
    assert good.got == list(range(300))
    for sender in stuck:
        for _ in range(300):
            sender.room.release()
    await asyncio.gather(*(push.drained() for push in pushes))
    assert all(sender.got == list(range(300)) for sender in stuck)


async def test_what_waits_for_a_client_that_never_reads_is_bounded(pool: ThreadPoolExecutor) -> None:
    sender, pull = Sender(), Pull()
    push = Push(sender, pool)
    apart = [{"token_ids": [number], "index": number} for number in range(MOST_BEHIND)]  # nothing is joined
    for outlet in (push, pull):
        outlet.put(apart)
        with pytest.raises(SlowClientError, match="does not read"):
            outlet.put([*apart, *apart])
    sender.closed = True
    sender.room.release()
    await push.drained()
    assert sender.got == list(range(len(sender.got)))


async def test_what_waits_stays_as_it_is_when_more_is_refused() -> None:
    pull = Pull()
    pull.put([{"token_ids": [number], "index": number} for number in range(MOST_BEHIND)])
    pull._chunks[-1]["token_ids"] = last = [7]
    more = [{"token_ids": [8], "index": MOST_BEHIND - 1}, *({"token_ids": [9], "index": n} for n in (0, 1))]
    with pytest.raises(SlowClientError):
        pull.put(more)
    assert last == [7]
    assert len(pull._chunks) == MOST_BEHIND


async def test_after_the_client_has_left_chunks_are_dropped(pool: ThreadPoolExecutor) -> None:
    sender = Sender()
    push = Push(sender, pool)
    push.put([chunk(0)])
    sender.closed = True
    for number in range(1, 300):
        push.put([chunk(number)])
    await push.drained()
    assert sender.got == [0]


async def puller(pull: Pull, work: asyncio.Task[None]) -> AsyncIterator[int]:
    async for item in pull.until(work):
        for token in item["token_ids"]:
            yield token


async def test_pulled_chunks_come_in_order_and_the_error_after_them() -> None:
    pull = Pull()

    async def work() -> None:
        for number in range(10):
            pull.put([chunk(number)])
            await asyncio.sleep(0)
        raise ConnectionError("gone")

    got: list[int] = []

    async def read() -> None:
        async for token in puller(pull, asyncio.create_task(work())):
            got.append(token)  # noqa: PERF401 - what came before the error is kept

    with pytest.raises(ConnectionError, match="gone"):
        await read()
    assert got == list(range(10))


async def test_who_stops_pulling_ends_the_work() -> None:
    pull = Pull()

    async def work() -> None:
        pull.put([chunk(1)])
        await asyncio.sleep(3600)

    task = asyncio.create_task(work())
    chunks = pull.until(task)
    assert (await anext(chunks))["token_ids"] == [1]
    await chunks.aclose()
    await asyncio.wait((task,))
    assert task.cancelled()
