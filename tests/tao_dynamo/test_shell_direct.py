# SPDX-License-Identifier: Apache-2.0
"""Workers reached without Dynamo's client: good ones, dying ones, and ones that speak otherwise."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tao_dynamo.errors import WireError
from tao_dynamo.shell import wire
from tao_dynamo.shell.answers import Answer, GoneError, Home
from tao_dynamo.shell.departures import Departures
from tao_dynamo.shell.direct import Plane, hindrance
from tao_dynamo.shell.relay import Pace
from tests.tao_dynamo.both_ways import both_ways
from tests.tao_dynamo.direct_world import Batches, Context, Deaf, Talk, Worker, all_begun, count_to, running, tokens
from tests.tao_dynamo.test_shell_wire import HANDSHAKE, LAST, PROLOGUE, part, plain_chunk

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def departures() -> Departures:
    return Departures()


@pytest.fixture
async def plane(departures: Departures) -> AsyncIterator[Plane]:
    made = Plane(Pace(), lambda fault: ValueError(f"{fault.group}: {fault.text}"), departures)
    yield made
    await made.close()
    await asyncio.sleep(0.01)


async def test_answers_come_whole_and_do_not_mix(plane: Plane) -> None:
    async with running(Worker(count_to)) as worker:
        sizes = [1, 500, 0, 64, 3] * 8

        async def one(number: int, size: int) -> list[int]:
            return await tokens(await plane.send({"n": size}, 7, worker.address, Context(f"r{number}")))

        answers = await asyncio.gather(*(one(number, size) for number, size in enumerate(sizes)))
        assert [len(answer) for answer in answers] == sizes
        assert all(answer == list(range(len(answer))) for answer in answers)
        assert len(worker.connections) == 1 + len(sizes)
    assert worker.headers[0]["traceparent"].startswith("00-0123456789abcdef")
    assert worker.headers[0]["request-id"] == worker.controls[0]["id"]
    assert worker.controls[0]["metadata"] == {"tenant": "a"}


async def test_plain_chunks_are_known_by_their_bytes_from_a_workers_first_answer_on() -> None:
    """Also those that come in one piece with the handshake, as a fast worker's do."""

    class Transport:
        def close(self) -> None: ...

    plain = wire.Plain()
    batches: list[list[dict[str, Any]]] = []
    end = part(b"", LAST) + part(b'"sentinel"')
    for sent in ([1000], range(1000, 1030)):
        answer = Answer(Pace(), lambda fault: ValueError(fault.text), Context("r"), plain)
        home = Home(lambda _subject, answer=answer: answer, set())  # type: ignore[misc]
        home.connection_made(Transport())  # type: ignore[arg-type]
        home.data_received(part(HANDSHAKE) + part(PROLOGUE) + b"".join(map(plain_chunk, sent)) + end)
        await answer.pour(batches.append)
    (first,), (second,) = batches
    assert second == first | {"token_ids": list(range(1000, 1030))}


async def test_a_request_too_large_for_a_worker_is_not_sent_and_disturbs_nobody(departures: Departures) -> None:
    plane = Plane(Pace(), lambda fault: ValueError(f"{fault.group}: {fault.text}"), departures, largest=2000)
    async with running(Worker(count_to)) as worker:
        answer = await plane.send({"n": 3}, 7, worker.address, Context("r1"))
        with pytest.raises(ValueError, match=r"InvalidRequest: .* takes 2\d\d\d bytes .* at most 2000 are taken"):
            await plane.send({"n": 3, "more": "x" * 2000}, 7, worker.address, Context("r2"))
        assert await tokens(answer) == [0, 1, 2]
        assert await tokens(await plane.send({"n": 1}, 7, worker.address, Context("r3"))) == [0]
        assert len(worker.controls) == 2
    assert not plane.distrusted
    await plane.close()


async def test_a_worker_that_nobody_answers_for_is_gone(plane: Plane) -> None:
    async with running(Worker(count_to)) as worker:
        address = worker.address
    with pytest.raises(GoneError, match="Unavailable"):
        await plane.send({"n": 1}, 7, address, Context("r"))


async def test_a_worker_that_breaks_off_ends_the_answer_after_what_it_sent(plane: Plane) -> None:
    async def die(talk: Talk) -> None:
        talk.chunk(1, 2)
        await talk.writer.drain()

    async with running(Worker(die)) as worker:
        answer = await plane.send({"n": 1}, 7, worker.address, Context("r"))
        batches = Batches(answer)
        assert [chunk["token_ids"] for chunk in await batches.next()] == [[1, 2]]
        with pytest.raises(GoneError, match="Stream ended before generation completed"):
            await batches.end


async def test_an_overloaded_worker_is_as_good_as_gone(plane: Plane) -> None:
    async with running(Worker(count_to, b"Server overloaded: worker pool queue full")) as worker:
        with pytest.raises(GoneError, match="overloaded"):
            await plane.send({"n": 1}, 7, worker.address, Context("r"))
    assert not plane.distrusted


async def test_a_worker_that_cannot_read_us_is_left_to_dynamos_client(plane: Plane) -> None:
    async with running(Worker(count_to, b"Failed to parse")) as worker:
        with pytest.raises(WireError, match="Failed to parse"):
            await plane.send({"n": 1}, 7, worker.address, Context("r"))
    assert plane.distrusted == {7}


async def test_a_worker_that_answers_nonsense_is_left_to_dynamos_client(plane: Plane) -> None:
    async def babble(talk: Talk) -> None:
        talk.chunk(1)
        talk.writer.write(part(b"", b"\xc1"))
        await talk.reader.read()

    async with running(Worker(babble)) as worker:
        answer = await plane.send({"n": 1}, 7, worker.address, Context("r"))
        with pytest.raises(WireError, match="unreadable"):
            await tokens(answer)
    assert plane.distrusted == {7}
    plane.instances({})
    assert not plane.distrusted


@pytest.mark.parametrize(("killed", "word"), [(False, b'"stop"'), (True, b'"kill"')])
async def test_a_client_that_leaves_is_told_to_the_worker(plane: Plane, killed: bool, word: bytes) -> None:
    heard = asyncio.get_running_loop().create_future()

    async def wait(talk: Talk) -> None:
        talk.chunk(1)
        heard.set_result(await talk.reader.read())

    async with running(Worker(wait)) as worker:
        context = Context("r")
        context.killed = killed
        answer = await plane.send({"n": 1}, 7, worker.address, context)
        batches = Batches(answer)
        await batches.next()
        context.stop()
        await batches.end
        assert (await heard).endswith(word)


async def test_who_stops_reading_ends_the_workers_work(plane: Plane) -> None:
    heard = asyncio.get_running_loop().create_future()

    async def wait(talk: Talk) -> None:
        talk.chunk(1)
        heard.set_result(await talk.reader.read())

    async with running(Worker(wait)) as worker:
        answer = await plane.send({"n": 1}, 7, worker.address, Context("r"))
        batches = Batches(answer)
        await batches.next()
        answer.close()
        await batches.end
        assert (await heard).endswith(b'"kill"')


async def test_who_fails_over_a_batch_ends_the_workers_work_and_hears_of_it(plane: Plane) -> None:
    heard = asyncio.get_running_loop().create_future()

    async def wait(talk: Talk) -> None:
        talk.chunk(1)
        heard.set_result(await talk.reader.read())

    def fail(batch: list[dict[str, Any]]) -> None:
        raise LookupError(str(batch[0]["token_ids"]))

    async with running(Worker(wait)) as worker:
        answer = await plane.send({"n": 1}, 7, worker.address, Context("r"))
        with pytest.raises(LookupError, match=r"\[1\]"):
            await answer.pour(fail)
        assert (await heard).endswith(b'"kill"')


async def test_a_client_that_left_before_the_worker_answered_is_answered_to_nobody(plane: Plane) -> None:
    begin, heard = asyncio.Event(), asyncio.get_running_loop().create_future()

    class Slow(Worker):
        async def _answer(self, control: dict[str, Any], request: dict[str, Any]) -> None:
            await begin.wait()
            await super()._answer(control, request)

    async def wait(talk: Talk) -> None:
        heard.set_result(await talk.reader.read())

    async with running(Slow(wait)) as worker:
        context = Context("r")
        answer = await plane.send({"n": 1}, 7, worker.address, context)
        context.stop()
        assert await tokens(answer) == []
        begin.set()
        assert (await heard).endswith(b'"kill"')


async def test_a_worker_that_leaves_before_it_answered_fails_its_requests(plane: Plane) -> None:
    class Silent(Worker):
        async def _answer(self, control: dict[str, Any], request: dict[str, Any]) -> None: ...

    async with running(Silent(count_to)) as worker:
        answer = await plane.send({"n": 1}, 7, worker.address, Context("r"))
        plane.instances({8: "elsewhere:1/x"})
        with pytest.raises(GoneError):
            await tokens(answer)


@pytest.mark.parametrize("sent", [[], [1, 2]], ids=["before its first token", "in mid-answer"])
async def test_a_worker_that_hangs_and_loses_its_lease_fails_what_it_began(
    plane: Plane, departures: Departures, monkeypatch: pytest.MonkeyPatch, sent: list[int]
) -> None:
    began = asyncio.Event()

    async def hang(talk: Talk) -> None:
        if sent:
            talk.chunk(*sent)
        await talk.writer.drain()
        began.set()
        await talk.reader.read()

    monkeypatch.setattr("tao_dynamo.shell.departures.SILENCE_S", 0.05)
    async with running(Worker(hang)) as worker:
        answer = await plane.send({"n": 1}, 7, worker.address, Context("r"))
        batches = Batches(answer)
        await began.wait()
        if sent:
            assert [chunk["token_ids"] for chunk in await batches.next()] == [sent]
        else:
            await all_begun(answer)
        plane.instances({8: "elsewhere:1/x"})
        departures.instances({8})
        with pytest.raises(GoneError, match="Stream ended before generation completed"):
            await batches.end


async def test_a_worker_that_leaves_to_drain_finishes_what_it_began(plane: Plane, departures: Departures) -> None:
    left = asyncio.Event()

    async def drain(talk: Talk) -> None:
        if talk.request["n"]:
            talk.chunk(1)
        await talk.writer.drain()
        await left.wait()
        talk.chunk(2)
        talk.end()

    async with running(Worker(drain)) as worker:
        answers = [await plane.send({"n": n}, 7, worker.address, Context(f"r{n}")) for n in (0, 1)]
        await all_begun(*answers)
        plane.instances({})
        departures.instances(())
        left.set()
        assert await asyncio.gather(*(tokens(answer) for answer in answers)) == [[2], [1, 2]]


async def test_a_worker_that_never_begins_to_answer_is_gone(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Worker):
        async def _answer(self, control: dict[str, Any], request: dict[str, Any]) -> None: ...

    monkeypatch.setattr("tao_dynamo.shell.answers.BEGIN_S", 0.05)
    monkeypatch.setattr("tao_dynamo.shell.direct.LOOK_S", 0.01)
    async with running(Silent(count_to)) as worker:
        with pytest.raises(GoneError, match="no answer was begun"):
            await tokens(await plane.send({"n": 1}, 7, worker.address, Context("r")))


async def test_a_worker_that_never_takes_a_request_is_gone(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tao_dynamo.shell.direct.ACKNOWLEDGE_S", 0.05)
    monkeypatch.setattr("tao_dynamo.shell.direct.LOOK_S", 0.01)
    async with running(Deaf(count_to)) as worker:
        with pytest.raises(GoneError, match="took no request for"):
            await plane.send({"n": 1}, 7, worker.address, Context("r"))


async def test_a_request_that_no_worker_takes_ends_though_its_client_has_left(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tao_dynamo.shell.direct.ACKNOWLEDGE_S", 0.2)
    monkeypatch.setattr("tao_dynamo.shell.direct.LOOK_S", 0.01)
    async with running(Deaf(count_to)) as worker:
        context = Context("r")
        sending = asyncio.create_task(plane.send({"n": 1}, 7, worker.address, context))
        await asyncio.sleep(0.05)
        context.stop()
        with pytest.raises(GoneError, match="took no request for"):
            await asyncio.wait_for(sending, 10)


async def test_a_crowd_of_answers_at_one_time_is_taken_in(plane: Plane) -> None:
    together = asyncio.Event()

    class Crowd(Worker):
        async def _answer(self, control: dict[str, Any], request: dict[str, Any]) -> None:
            await together.wait()
            await super()._answer(control, request)

    async with running(Crowd(count_to)) as worker:
        answers = [await plane.send({"n": 2}, 7, worker.address, Context(f"r{i}")) for i in range(400)]
        together.set()
        assert await asyncio.gather(*(tokens(answer) for answer in answers)) == [[0, 1]] * 400


async def test_a_stranger_on_the_answers_port_disturbs_nobody(plane: Plane) -> None:
    async with running(Worker(count_to)) as worker:
        assert len(await tokens(await plane.send({"n": 3}, 7, worker.address, Context("r1")))) == 3
        info = json.loads(worker.controls[0]["connection_info"]["info"])
        host, _, port = info["address"].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n" + bytes(64))
        assert await reader.read() == b""
        writer.close()
        assert len(await tokens(await plane.send({"n": 3}, 7, worker.address, Context("r2")))) == 3


@pytest.mark.parametrize(
    ("env", "version", "why_not"),
    [
        ({}, "1.6.1", ""),
        ({"DYN_REQUEST_PLANE": "tcp"}, "1.6.7", ""),
        ({"DYN_REQUEST_PLANE": "nats"}, "1.6.1", "DYN_REQUEST_PLANE=nats"),
        ({"DYN_RESPONSE_PLANE": "quic"}, "1.6.1", "DYN_RESPONSE_PLANE=quic"),
        ({"DYN_TCP_TLS_CERT_PATH": "cert.pem"}, "1.6.1", "DYN_TCP_TLS_CERT_PATH is set"),
        ({"DYN_TCP_RESPONSE_STREAM_PORT": "19555"}, "1.6.1", "DYN_TCP_RESPONSE_STREAM_PORT is set"),
        ({"DYN_TCP_RESPONSE_STREAM_HOST": "192.0.2.20"}, "1.6.1", "DYN_TCP_RESPONSE_STREAM_HOST is set"),
        ({"DYN_TCP_RESPONSE_STREAM_PORT": ""}, "1.6.1", ""),
        ({}, "1.7.0", "ai-dynamo-runtime 1.7.0 is none of 1.6."),
        ({}, "1.60.0", "ai-dynamo-runtime 1.60.0 is none of 1.6."),
    ],
)
def test_only_known_planes_of_known_versions_are_spoken(env: dict[str, str], version: str, why_not: str) -> None:
    assert hindrance(env, version) == why_not


@pytest.mark.dynamo
def test_it_gives_what_dynamos_own_client_gives() -> None:
    """Against a worker of Dynamo's own, in a process of its own: same chunks, same errors, same cancellation."""
    seen = both_ways("direct_parity")
    assert set(seen) == {"ok", "empty", "invalid", "value", "runtime", "shutdown", "unavailable", "stopped"}
    for what, (dynamo, direct) in seen.items():
        assert direct == dynamo, what
    assert seen["ok"][0][0] == [{"token_ids": [1], "big": 2**63 + 5, "half": 0.5, "none": None}] * 3
    assert seen["invalid"][0][1].startswith("InvalidArgument")
    assert seen["stopped"][0][2] is True
