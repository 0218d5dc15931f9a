# SPDX-License-Identifier: Apache-2.0
"""Requests that come in without Dynamo's server, from frontends made by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tao_dynamo.shell import ingress as module
from tao_dynamo.shell.ingress import Ingress
from tao_dynamo.shell.reply import Reply
from tests.tao_dynamo.both_ways import both_ways
from tests.tao_dynamo.ingress_world import LAST_CHUNK, PATH, Caller, Frontend, caller, chunk, eventually, nothing_left

pytestmark = pytest.mark.timeout(30)

Serve = Callable[[dict[str, Any], Reply], Awaitable[None]]
LARGE = {"text": "x" * (16 << 20)}


class World:
    """An ingress, a frontend, and a connection between them; ``serve`` is what a test wants it to be."""

    def __init__(self, serving: Ingress, frontend: Frontend, calling: Caller, port: int) -> None:
        self.ingress = serving
        self.frontend = frontend
        self.caller = calling
        self.port = port
        self.serve: Serve = count
        self.replies: list[Reply] = []

    def request(self, what: object, subject: str = "s1", **more: Any) -> bytes:
        return self.frontend.request(what, subject, **more)


async def count(request: dict[str, Any], reply: Reply) -> None:
    """As many chunks as are asked for."""
    for number in range(request["n"]):
        reply.put([chunk(number)])
        if number % 3 == 2:
            await asyncio.sleep(0)
    reply.put([LAST_CHUNK])


def told(error: Exception) -> dict[str, Any]:
    return {"message": f"{type(error).__name__}: {error}", "class": "Internal"}


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    made: list[World] = []

    async def serve(request: dict[str, Any], reply: Reply) -> None:
        made[0].replies.append(reply)
        await made[0].serve(request, reply)

    await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 1)  # Its thread's sockets stay.
    with nothing_left():
        serving = Ingress(PATH, serve, told, (ValueError,))
        frontend = Frontend(buffer=1 << 16)
        port = await serving.open("127.0.0.1")
        async with caller(port) as calling:
            made.append(World(serving, frontend, calling, port))
            yield made[0]
        await serving.close()
        frontend.close()
        await asyncio.sleep(0)


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


async def test_requests_are_answered_each_where_it_wants(world: World) -> None:
    sizes = [3, 0, 50, 1] * 5
    frames = [world.request({"n": size}, f"s{number}") for number, size in enumerate(sizes)]
    world.caller.writer.write(b"".join(frames))
    assert await world.caller.answers(len(sizes)) == [b""] * len(sizes)
    for _ in sizes:
        heard = await world.frontend.accept()
        chunks = await heard.whole()
        size = sizes[int(heard.subject[1:])]
        assert chunks == [*map(chunk, range(size)), LAST_CHUNK]
        assert heard.answer.over
        heard.socket.close()
    assert {reply.id() for reply in world.replies} == {f"r-s{number}" for number in range(len(sizes))}
    assert await world.ingress.drained(20.0)
    await eventually(lambda: all(reply.closed for reply in world.replies))
    await eventually(lambda: not world.ingress._replies and world.ingress._looking is None)


async def test_acknowledgements_come_in_order_with_words_for_what_cannot_be_served(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    other = world.request({"n": 1}, path="1f/ns/comp/other")
    world.caller.writer.write(world.request({"n": 1}) + other + world.request([1]) + world.request({"n": 1}, "s2"))
    good, elsewhere, list_, also_good = await world.caller.answers(4)
    assert (good, also_good) == (b"", b"")
    assert elsewhere == b"no endpoint '1f/ns/comp/other' here; '1f/ns/comp/generate' is served"
    assert list_ == b"a request that is a list, not a mapping"
    assert events(caplog) == ["request_not_read"]  # once a connection
    for _ in range(2):
        await (await world.frontend.accept()).whole()
    assert len(world.replies) == 2


async def test_a_request_cut_into_pieces_is_taken_once_it_is_whole(world: World) -> None:
    frame = world.request({"n": 2})
    for at in range(0, len(frame), 40):
        assert not world.replies
        world.caller.writer.write(frame[at : at + 40])
        await asyncio.sleep(0.002)
    assert await world.caller.answers(1) == [b""]
    assert len(await (await world.frontend.accept()).whole()) == 3


async def test_a_request_too_large_ends_its_connection_and_no_other(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with caller(world.port) as stranger:
        stranger.writer.write(world.request({"n": 1}) + b"\0\1p\0\2{}\xff\xff\xff\xff")
        words = b"a request of 4294967306 bytes; at most 33554432 are taken"
        assert await stranger.answers(2) == [b"", words]
        assert await stranger.reader.read() == b""
    assert events(caplog) == ["request_not_read"]
    assert len(await (await world.frontend.accept()).whole()) == 2
    assert await world.caller.ask(world.request({"n": 1})) == b""
    assert len(await (await world.frontend.accept()).whole()) == 2


async def test_refusals_that_nobody_reads_are_not_piled_up(world: World) -> None:
    request = world.request({}, path="x" * 1000)
    count = 40_000
    world.caller.writer.write(request * count)
    await eventually(lambda: any(transport.get_write_buffer_size() for transport in world.ingress._callers))
    for _ in range(50):
        await asyncio.sleep(0.002)
        assert all(transport.get_write_buffer_size() < 1 << 20 for transport in world.ingress._callers)
    answers = await world.caller.answers(count)
    assert {len(words) for words in answers} == {200}


async def test_a_look_that_fails_ends_one_reply_and_not_the_looking(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = asyncio.Event()

    async def wait(_request: dict[str, Any], _reply: Reply) -> None:
        await may_end.wait()

    world.serve = wait
    await world.caller.ask(world.request({}))
    await (await world.frontend.accept()).piece()
    (one,) = world.replies
    with monkeypatch.context() as patch:
        patch.setattr(Reply, "look", lambda _self, _now: 1 / 0)
        await eventually(lambda: one.closed)
    assert events(caplog) == ["look_failed"]
    await world.caller.ask(world.request({}, "s2"))
    other = await world.frontend.accept()
    other.socket.close()
    await eventually(world.replies[-1].is_killed)
    may_end.set()


@pytest.mark.parametrize(("error", "logged"), [(ValueError("say less"), False), (KeyError("ours"), True)])
async def test_what_serving_raises_is_told_after_what_it_gave(
    world: World, caplog: pytest.LogCaptureFixture, error: Exception, logged: bool
) -> None:
    async def break_(_request: dict[str, Any], reply: Reply) -> None:
        reply.put([chunk(1)])
        raise error

    world.serve = break_
    await world.caller.ask(world.request({}))
    heard = await world.frontend.accept()
    assert await heard.whole() == [chunk(1)]
    assert heard.answer.over
    assert heard.answer.fault is not None
    assert heard.answer.fault.text == f"{type(error).__name__}: {error}"
    assert events(caplog) == ["request_broke"] * logged
    assert all(record.exc_info for record in caplog.records)


async def test_an_error_before_any_chunk_is_told_too(world: World) -> None:
    async def break_(_request: dict[str, Any], _reply: Reply) -> None:
        raise ValueError("nothing")

    world.serve = break_
    await world.caller.ask(world.request({}))
    heard = await world.frontend.accept()
    assert await heard.whole() == []
    assert heard.answer.fault is not None
    assert heard.answer.over


@pytest.mark.parametrize("word", ["stop", "kill", ""])
async def test_a_client_that_leaves_is_noticed_though_nothing_is_said_to_it(world: World, word: str) -> None:
    async def wait(_request: dict[str, Any], reply: Reply) -> None:
        await reply.async_killed_or_stopped()
        reply.put([chunk(1)])

    world.serve = wait
    await world.caller.ask(world.request({}))
    heard = await world.frontend.accept()
    if word:
        heard.say(word)
        assert await heard.whole() == []
        assert not heard.answer.over
    else:
        heard.socket.close()
    await eventually(lambda: world.replies[0].closed)
    assert world.replies[0].is_killed() is (word != "stop")
    assert await world.ingress.drained(20.0)


async def test_a_client_that_cannot_be_reached_has_left(world: World) -> None:
    async def wait(_request: dict[str, Any], reply: Reply) -> None:
        await reply.async_killed_or_stopped()

    world.serve = wait
    nobody = Frontend()
    nobody.close()
    await world.caller.ask(nobody.request({}))
    await eventually(lambda: world.replies and world.replies[0].closed)
    assert await world.ingress.drained(20.0)


@pytest.mark.parametrize("address", ["a..b:1", "here", "127.0.0.1:http", "127.0.0.1:99999", "127.0.0.1:-1", ":0", ""])
async def test_nowhere_to_answer_to_is_said_and_nothing_is_served(
    world: World, caplog: pytest.LogCaptureFixture, address: str
) -> None:
    info = json.dumps({"address": address, "subject": "s1"})
    lost = world.request({"n": 1}, connection_info={"transport": "tcp_server", "info": info})
    assert await world.caller.ask(lost) == b""
    assert await world.ingress.drained(20.0)
    assert events(caplog) == ["nowhere_to_answer"]
    assert not world.replies
    assert await world.caller.ask(world.request({"n": 1})) == b""
    assert len(await (await world.frontend.accept()).whole()) == 2


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_place_is_looked_up_once_and_no_more_are_kept_than_so_many(
    world: World, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr(module, "_MOST_PLACES", 2)
    world.frontend.address = f"{host}:{world.frontend.port}"
    nobody = Frontend()
    nobody.close()
    for number in range(6):
        await world.caller.ask(world.request({"n": 1}, f"s{number}"))
        heard = await world.frontend.accept()
        assert len(await heard.whole()) == 2
        heard.socket.close()
        other = f"127.0.0.{number + 2}:{nobody.port}"
        info = json.dumps({"address": other, "subject": "s"})
        await world.caller.ask(
            world.request({"n": 0}, f"x{number}", connection_info={"transport": "tcp_server", "info": info})
        )
        await world.ingress.drained(20.0)
        assert len(world.ingress._places) <= 2
    await eventually(lambda: all(reply.closed for reply in world.replies))


async def test_who_is_found_late_is_looked_after_all_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    find = module._resolve

    async def find_late(address: str) -> Any:
        await asyncio.sleep(0.05)
        return await find(address)

    async def wait(_request: dict[str, Any], reply: Reply) -> None:
        await reply.async_killed_or_stopped()

    monkeypatch.setattr(module, "_resolve", find_late)
    world.serve = wait
    await world.caller.ask(world.request({}))
    (await world.frontend.accept()).say("stop")
    await eventually(world.replies[0].is_stopped)
    assert await world.ingress.drained(20.0)


async def test_a_turn_that_is_cancelled_from_within_is_broken_off(world: World) -> None:
    async def give_up(_request: dict[str, Any], reply: Reply) -> None:
        reply.put([chunk(1)])
        raise asyncio.CancelledError

    world.serve = give_up
    await world.caller.ask(world.request({}))
    heard = await world.frontend.accept()
    assert await heard.whole() == [chunk(1)]
    assert not heard.answer.over
    assert await world.ingress.drained(20.0)


async def test_it_is_drained_when_what_runs_is_done_and_not_before(world: World) -> None:
    may_end = asyncio.Event()

    async def wait(_request: dict[str, Any], reply: Reply) -> None:
        await may_end.wait()
        reply.put([chunk(1)])

    world.serve = wait
    assert await world.ingress.drained(0.0)
    assert await world.ingress.drained(float("inf"))
    await world.caller.ask(world.request({}))
    await eventually(lambda: world.replies)
    assert not await world.ingress.drained(0.0)
    assert not await world.ingress.drained(0.05)
    draining = asyncio.ensure_future(world.ingress.drained(float("inf")))
    heard = await world.frontend.accept()
    await asyncio.sleep(0.02)
    assert not draining.done()
    may_end.set()
    assert await asyncio.wait_for(draining, 20.0)
    assert await heard.whole() == [chunk(1)]
    assert heard.answer.over


async def test_who_waits_is_connected_to_before_we_leave_and_who_comes_late_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frontends give up what has not been connected to them when they see that we are gone from discovery."""
    monkeypatch.setattr(module, "LOOK_S", 3600.0)

    async def wait(_request: dict[str, Any], reply: Reply) -> None:
        await asyncio.sleep(3600.0)

    world.serve = wait
    await world.caller.ask(world.request({}))
    await eventually(lambda: world.replies)
    assert not world.frontend.called()
    world.ingress.leave()
    assert await (await world.frontend.accept()).piece()
    await world.caller.ask(world.request({}, "late"))
    assert await (await world.frontend.accept()).piece()
    assert not await world.ingress.drained(0.0)


async def test_it_is_not_drained_while_a_client_has_not_been_sent_all(world: World) -> None:
    async def much(_request: dict[str, Any], reply: Reply) -> None:
        reply.put([LARGE])
        reply.put([LAST_CHUNK])

    world.serve = much
    await world.caller.ask(world.request({}))
    heard = await world.frontend.accept()
    assert not await world.ingress.drained(0.05)
    draining = asyncio.ensure_future(world.ingress.drained(float("inf")))
    assert await heard.whole() == [LARGE, LAST_CHUNK]
    assert heard.answer.over
    assert await asyncio.wait_for(draining, 20.0)


async def test_closing_breaks_off_what_runs_and_takes_nothing_more(world: World) -> None:
    async def wait(request: dict[str, Any], reply: Reply) -> None:
        reply.put([LARGE if request["n"] else chunk(1)])
        await asyncio.sleep(3600.0)

    world.serve = wait
    for number in range(2):
        await world.caller.ask(world.request({"n": number}, f"s{number}"))
    first, second = await world.frontend.accept(), await world.frontend.accept()
    await world.ingress.close()
    for heard in (first, second):
        await heard.whole()
        assert not heard.answer.over
    assert all(reply.closed and reply.is_killed() for reply in world.replies)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await world.caller.ask(world.request({"n": 0}))
    with pytest.raises(OSError, match="onnect"):
        await asyncio.open_connection("127.0.0.1", world.port)
    assert len(world.replies) == 2


async def test_a_turn_that_is_slow_to_be_cancelled_hinders_no_closing(world: World) -> None:
    """And what comes meanwhile is not begun."""
    begun = asyncio.Event()

    async def wait(_request: dict[str, Any], reply: Reply) -> None:
        begun.set()
        try:
            await asyncio.sleep(3600.0)
        finally:
            await asyncio.sleep(0.05)

    world.serve = wait
    await world.caller.ask(world.request({}))
    await begun.wait()
    closing = asyncio.ensure_future(world.ingress.close())
    await asyncio.sleep(0)
    world.caller.writer.write(world.request({}, "late"))
    await closing
    assert len(world.replies) == 1


async def test_a_host_that_is_not_ours_cannot_be_listened_on() -> None:
    ingress = Ingress(PATH, count, told)
    with pytest.raises(OSError, match="bind"):
        await ingress.open("192.0.2.77")
    await ingress.close()


@pytest.mark.dynamo
def test_it_does_what_dynamos_own_server_does() -> None:
    """One handler behind each, in a process of its own: the same bytes, the same context, the same cancellation."""
    seen = both_ways("ingress_parity")
    assert {"ok", "empty", "invalid", "overloaded", "unavailable", "bad", "cancelled", "stop", "kill"} < set(seen)
    for what, (dynamo, ours) in seen.items():
        assert ours == dynamo, what
    assert seen["ok"][0]["seen"]["metadata"] == {"tenant": "a", "x": "y"}
    assert [len(seen[what][0]["messages"]) for what in ("empty", "stop", "kill")] == [4, 4, 4]
    marks = {what: seen[what][0]["seen"]["marks"][-1] for what in ("ok", "stop", "kill", "stop then kill")}
    assert marks == {"ok": [False, False], "stop": [True, False], "kill": [True, True], "stop then kill": [True, False]}
