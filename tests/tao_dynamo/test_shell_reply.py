# SPDX-License-Identifier: Apache-2.0
"""Answers on their way to a frontend made by hand, which stops, dies, or is not to be reached."""

from __future__ import annotations

import asyncio
import errno
import math
import socket
from collections.abc import AsyncIterator

import pytest

from tao_dynamo.shell import ingress_wire, reply
from tao_dynamo.shell.ingress_wire import Request
from tao_dynamo.shell.reply import CONNECT_S, FAREWELL_S, Reply
from tests.tao_dynamo.ingress_world import LAST_CHUNK, Frontend, chunk, eventually, nothing_left
from tests.tao_dynamo.reply_world import LARGE, answering, left, look, made

pytestmark = pytest.mark.timeout(30)

TRACE = {"traceparent": "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01", "request-id": "r1"}


@pytest.fixture
async def frontend() -> AsyncIterator[Frontend]:
    with nothing_left():
        made = Frontend(buffer=1 << 16)
        yield made
        made.close()


async def test_it_is_a_context_as_well(frontend: Frontend) -> None:
    one = Reply(Request("r1", {}, "", "s1", TRACE, {"tenant": "a"}), frontend.place)
    assert one.id() == "r1"
    assert one.metadata == {"tenant": "a"}
    assert one.trace_headers() == {"traceparent": TRACE["traceparent"]}
    assert made(frontend.place, {"request-id": "r1"}).trace_headers() is None
    assert not one.is_stopped()
    assert not one.is_killed()
    assert not frontend.called()
    one.close()


async def test_chunks_come_in_order_and_then_the_end(frontend: Frontend) -> None:
    one = answering(frontend)
    one.put([chunk(1), chunk(2, 3)])
    heard = await frontend.accept()
    chunks = await heard.until(2)
    assert chunks == [chunk(1), chunk(2, 3)]
    one.put([])
    one.put([chunk(4)])
    one.put([LAST_CHUNK])
    one.end()
    chunks = await heard.whole()
    assert heard.subject == "s1"
    assert chunks == [chunk(1), chunk(2, 3), chunk(4), LAST_CHUNK]
    assert heard.answer.over
    assert heard.answer.fault is None
    heard.socket.close()
    await left(one)
    assert one.said


async def test_an_answer_of_nothing_has_an_end(frontend: Frontend) -> None:
    one = answering(frontend)
    one.end()
    heard = await frontend.accept()
    assert await heard.whole() == []
    assert (heard.subject, heard.answer.over) == ("s1", True)
    one.close()


async def test_an_error_comes_before_the_end(frontend: Frontend) -> None:
    one = answering(frontend)
    one.put([chunk(1)])
    one.end(ingress_wire.fault({"error_type": "Unavailable", "class": "Unavailable", "message": "not now"}))
    heard = await frontend.accept()
    chunks = await heard.whole()
    assert chunks == [chunk(1)]
    assert heard.answer.fault is not None
    assert heard.answer.fault.text == "not now"
    assert heard.answer.over
    one.close()


async def test_the_last_chunk_goes_with_the_end_in_one_piece(
    frontend: Frontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply, "HOLD_S", 3600.0)
    one = answering(frontend)
    one.put([chunk(1)])
    heard = await frontend.accept()
    await heard.until(1)
    one.put([LAST_CHUNK])
    look(one)
    await asyncio.sleep(0.02)
    assert heard.now() == b""
    one.end()
    assert await heard.piece() == ingress_wire.chunk(LAST_CHUNK) + ingress_wire.ENDING
    one.close()


async def test_the_last_chunk_goes_by_itself_where_no_end_comes(
    frontend: Frontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = answering(frontend)
    one.put([chunk(1), LAST_CHUNK])
    heard = await frontend.accept()
    chunks = await heard.until(2)
    assert chunks == [chunk(1), LAST_CHUNK]
    assert not heard.answer.complete
    one.put([LAST_CHUNK])  # Of another choice.
    assert await heard.until(3) == [chunk(1), LAST_CHUNK, LAST_CHUNK]
    one.end()
    assert len(await heard.whole()) == 3
    one.close()


async def test_what_follows_a_last_chunk_comes_after_it(frontend: Frontend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several choices, each has a last chunk."""
    monkeypatch.setattr(reply, "HOLD_S", 3600.0)
    one = answering(frontend)
    one.put([LAST_CHUNK])
    one.put([LAST_CHUNK | {"index": 1}])
    one.put([chunk(3)])
    heard = await frontend.accept()
    chunks = await heard.until(3)
    assert chunks == [LAST_CHUNK, LAST_CHUNK | {"index": 1}, chunk(3)]
    one.end()
    chunks = await heard.whole()
    assert len(chunks) == 3
    assert heard.answer.over
    one.close()


async def test_it_connects_at_the_first_look_where_no_chunk_comes(frontend: Frontend) -> None:
    one = answering(frontend)
    assert not frontend.called()
    look(one)
    heard = await frontend.accept()
    assert await heard.piece() == ingress_wire.opening("s1")
    look(one)
    assert not one.closed
    assert not one.said
    one.close()


@pytest.mark.parametrize("word", ["stop", "kill"])
async def test_a_client_that_leaves_is_heard_and_gets_no_more(frontend: Frontend, word: str) -> None:
    one = answering(frontend)
    leaving = one.async_killed_or_stopped()
    assert one.async_killed_or_stopped() is leaving
    one.put([chunk(1)])
    heard = await frontend.accept()
    await heard.until(1)
    heard.say(word)
    await eventually(lambda: look(one) or one.is_stopped())  # type: ignore[func-returns-value]
    assert await leaving is True
    assert await one.async_killed_or_stopped() is True
    assert one.is_killed() is (word == "kill")
    assert not one.closed
    one.put([chunk(2)])
    one.put([LAST_CHUNK])
    one.end()
    assert one.closed
    chunks = await heard.whole()
    assert chunks == [chunk(1)]
    assert not heard.answer.complete
    assert not heard.answer.over


async def test_the_first_word_stands(frontend: Frontend) -> None:
    """As with Dynamo's server, which reads no further."""
    one = answering(frontend)
    look(one)
    heard = await frontend.accept()
    heard.say("stop")
    await eventually(lambda: look(one) or one.is_stopped())  # type: ignore[func-returns-value]
    heard.say("kill")
    for _ in range(5):
        await asyncio.sleep(0.001)
        look(one)
    assert not one.is_killed()
    one.close()


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("more", [False, True])
async def test_a_connection_that_is_lost_is_a_client_that_left(frontend: Frontend, reset: bool, more: bool) -> None:
    one = answering(frontend)
    leaving = one.async_killed_or_stopped()
    one.put([chunk(1)])
    heard = await frontend.accept()
    await heard.until(1)
    heard.reset() if reset else heard.socket.close()
    if more:  # Sending hears of it as well.
        for _ in range(3):
            one.put([chunk(2)])
            await asyncio.sleep(0.01)
    await left(one)
    assert one.is_killed()
    assert await leaving is True
    one.put([chunk(2)])
    one.end()


@pytest.mark.parametrize("how", ["refused", "no way there"])
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("chunks", [0, 1, 300])
async def test_a_client_that_cannot_be_connected_to_has_left(how: str, ends: bool, chunks: int) -> None:
    with nothing_left():
        nobody = Frontend()
        nobody.close()
        one = made((int(socket.AF_INET), ("255.255.255.255", 1)) if how == "no way there" else nobody.place)
        for number in range(chunks):
            one.put([chunk(number)])
        if ends:
            one.end()
        await left(one)
        assert one.is_killed()
        assert one.said


@pytest.mark.parametrize("short_of", ["file descriptors", "ports"])
async def test_what_cannot_be_connected_for_want_of_anything_is_kept_and_tried_again(
    frontend: Frontend, monkeypatch: pytest.MonkeyPatch, short_of: str
) -> None:
    class Short(socket.socket):
        def __init__(self, *args: int) -> None:
            if short_of == "file descriptors":
                raise OSError(errno.EMFILE, "too many open files")
            super().__init__(*args)

        def connect_ex(self, _address: object) -> int:
            return errno.EADDRNOTAVAIL

    one, other = answering(frontend), answering(frontend)
    with monkeypatch.context() as patch:
        patch.setattr(reply.socket, "socket", Short)
        for number in range(3):
            one.put([chunk(number)])
            look(one)
        one.end()
        other.put([chunk(7)])
        look(other, CONNECT_S + 1.0)
        assert not one.is_stopped()
        assert not one.said
        # For ever it is not tried.
        assert other.is_killed()
        assert other.trouble is not None
    look(one)
    heard = await frontend.accept()
    assert await heard.whole() == [chunk(0), chunk(1, 2)]  # what waits is joined
    assert heard.answer.over
    assert one.said
    one.close()


async def test_a_client_that_talks_without_end_is_closed(frontend: Frontend) -> None:
    one = answering(frontend)
    one.put([chunk(1)])
    heard = await frontend.accept()
    await heard.until(1)
    heard.socket.send(bytes(64_000))
    await left(one)
    assert one.is_stopped()


async def test_a_client_that_does_not_close_is_closed(frontend: Frontend) -> None:
    one = answering(frontend)
    one.put([chunk(1)])
    heard = await frontend.accept()
    await heard.until(1)
    look(one, math.inf)
    assert one.closed is False  # Until its end, an answer takes what it takes.
    one.end()
    await heard.whole()
    assert heard.answer.over
    look(one, FAREWELL_S - 1.0)
    assert not one.closed
    look(one, FAREWELL_S + 1.0)
    assert one.closed
    assert await heard.piece() == b""


async def test_closing_twice_and_whatever_comes_after_it_is_nothing(frontend: Frontend) -> None:
    one = answering(frontend)
    one.put([LARGE])
    one.put([LAST_CHUNK])
    one.close()
    one.close()
    one.put([chunk(1)])
    one.end()
    look(one)
    assert one.closed
    assert one.said
