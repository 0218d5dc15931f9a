# SPDX-License-Identifier: Apache-2.0
"""How turns come in, and what becomes of them when the router leaves; with a runtime made by hand."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from dynamo.llm import exceptions as errors

from tao_dynamo.shell import endpoints as module
from tao_dynamo.shell.endpoints import DRAIN_VARIABLE, Endpoints
from tao_dynamo.shell.wire import Address
from tests.tao_dynamo.ingress_world import Frontend, Heard, caller, chunk, eventually

pytestmark = pytest.mark.timeout(30)

INSTANCE = 0x5EED77289285DF28
PATH = f"{INSTANCE:x}/tao/router/generate"
OLD = f"127.0.0.1:1/{PATH}"


class Transport:
    def __init__(self, address: str) -> None:
        self.address = address


class Instance:
    def __init__(self, instance_id: int, address: str) -> None:
        self.instance_id = instance_id
        self.transport = Transport(address)


class Endpoint:
    """Of a runtime of Dynamo's; discovery shows ``instances``, and its record is in ``file``."""

    def __init__(self, runtime: Runtime, path: str) -> None:
        self.runtime = runtime
        self.path = path

    async def serve_endpoint(self, handler: Callable[..., Any], **options: Any) -> None:
        self.runtime.served[self.path] = handler
        await self.runtime.ended.wait()

    def connection_id(self) -> int:
        return INSTANCE

    async def client(self) -> Endpoint:
        return self

    def instances(self) -> list[Instance]:
        return self.runtime.instances

    async def unregister_endpoint_instance(self) -> None:
        if self.runtime.stubborn:
            raise RuntimeError("discovery is gone")
        self.runtime.file.unlink()


class Runtime:
    def __init__(self, folder: Path) -> None:
        self.served: dict[str, Any] = {}
        self.ended = asyncio.Event()
        self.instances = [Instance(7, "127.0.0.1:2/7/tao/router/generate"), Instance(INSTANCE, OLD)]
        self.stubborn = False
        self.file = folder / f"v1/instances/tao%2Frouter%2Fgenerate%2F{INSTANCE:x}"
        self.file.parent.mkdir(parents=True)
        self.file.write_text(json.dumps({"transport": {"tcp": OLD}}))

    def endpoint(self, path: str) -> Endpoint:
        return Endpoint(self, path)

    def address(self) -> Address:
        """Where its record says that turns are taken."""
        return Address.parse(json.loads(self.file.read_bytes())["transport"]["tcp"])


class Config:
    direct_streams = True

    def path(self, endpoint: str) -> str:
        return f"tao.router.{endpoint}"


class Handler:
    """Serves turns; each waits until it may end."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.begun: list[Any] = []
        self.error: Exception | None = None
        self.counters: Counter[str] = Counter()

    async def serve(self, request: dict[str, Any], context: Any, outlet: Any) -> None:
        self.begun.append(request)
        await self.may_end.wait()
        outlet.put([chunk(1)])
        if self.error is not None:
            raise self.error

    async def generate(self, request: dict[str, Any], context: Any) -> AsyncIterator[Any]:
        yield "pulled"


class World:
    def __init__(self, folder: Path) -> None:
        self.env = {"DYN_DISCOVERY_BACKEND": "file", "DYN_FILE_KV": str(folder)}
        self.runtime = Runtime(folder)
        self.config = Config()
        self.handler = Handler()
        self.frontend = Frontend()
        self.endpoints = Endpoints(self.handler, None, None)  # type: ignore[arg-type]
        self.serving: asyncio.Task[None] | None = None

    async def start(self, *, direct: bool = True) -> None:
        serve = self.endpoints.serve(self.runtime, self.config, self.env)  # type: ignore[arg-type]
        self.serving = asyncio.create_task(serve)
        await eventually(lambda: len(self.runtime.served) == 4)
        if direct:
            await eventually(lambda: self.endpoints._ingress is not None)

    async def ask(self) -> Heard:
        """Begin a turn; returns the connection that is made for its answer."""
        address = self.runtime.address()
        async with caller(address.port) as calling:
            assert await calling.ask(self.frontend.request({"n": 1}, path=address.path)) == b""
        return await self.frontend.accept()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    made.runtime.ended.set()
    made.handler.may_end.set()
    if made.serving is not None:
        await made.serving
    await made.endpoints.close()
    made.frontend.close()


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


async def test_turns_come_in_directly_once_discovery_shows_the_router(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    instances, world.runtime.instances = world.runtime.instances, []
    await world.start(direct=False)
    await asyncio.sleep(0.05)
    assert str(world.runtime.address()) == OLD
    world.runtime.instances = instances
    await eventually(lambda: world.endpoints._ingress is not None)
    address = world.runtime.address()
    assert (address.host, address.path) == ("127.0.0.1", PATH)
    assert set(world.runtime.served) == {
        f"tao.router.{name}" for name in ("generate", "best_worker_id", "get_overlap_scores", "status")
    }
    assert events(caplog) == ["turns_direct"]
    world.handler.may_end.set()
    heard = await world.ask()
    assert await heard.whole() == [chunk(1)]
    assert world.handler.begun == [{"n": 1}]


async def test_a_refusal_is_told_as_dynamo_tells_it(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.start()
    world.handler.error = errors.HttpError(529, "too many turns wait")
    world.handler.may_end.set()
    heard = await world.ask()
    assert await heard.whole() == [chunk(1)]
    assert heard.answer.fault is not None
    assert heard.answer.fault.kind == "ResourceExhausted"
    assert "too many turns wait" in heard.answer.fault.text
    assert not events(caplog)


async def test_the_largest_request_is_dynamos_own_setting(world: World) -> None:
    world.env["DYN_TCP_MAX_MESSAGE_SIZE"] = "100"
    await world.start()
    address = world.runtime.address()
    async with caller(address.port) as calling:
        answer = await calling.ask(world.frontend.request({"n": 1}, path=address.path))
    assert answer.endswith(b"at most 100 are taken")


@pytest.mark.parametrize("why", ["not shown", "no record", "another address", "other discovery"])
async def test_where_that_cannot_be_turns_come_in_by_dynamos_server(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    caplog.set_level("INFO")
    if why == "not shown":
        monkeypatch.setattr(module, "_SEEN_S", 0.1)
        world.runtime.instances = world.runtime.instances[:1]
    elif why == "no record":
        world.runtime.file.unlink()
    elif why == "another address":
        world.runtime.file.write_text(json.dumps({"transport": {"tcp": OLD.replace(":1/", ":3/")}}))
    else:
        world.env["DYN_DISCOVERY_BACKEND"] = "kubernetes"
    await world.start(direct=False)
    await eventually(lambda: events(caplog))
    assert events(caplog) == ["turns_by_dynamo"]
    assert world.endpoints._ingress is None
    assert world.serving is not None
    assert not world.serving.done()
    await world.endpoints.leave(world.env)


@pytest.mark.parametrize("why", ["option", "plane", "TLS", "port"])
async def test_it_is_not_tried_where_it_is_not_wanted_or_not_understood(
    world: World, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    caplog.set_level("INFO")
    if why == "option":
        world.config.direct_streams = False
    elif why == "plane":
        world.env["DYN_REQUEST_PLANE"] = "nats"
    elif why == "port":
        world.env["DYN_TCP_RPC_PORT"] = "23456"
    else:
        world.env["DYN_TCP_TLS_CERT_PATH"] = "cert.pem"
    await world.start(direct=False)
    await eventually(lambda: events(caplog))
    assert str(world.runtime.address()) == OLD
    assert events(caplog) == ["turns_by_dynamo"]


@pytest.mark.parametrize("stubborn", [False, True])
async def test_leaving_withdraws_the_record_and_lets_turns_finish(
    world: World, caplog: pytest.LogCaptureFixture, stubborn: bool
) -> None:
    world.runtime.stubborn = stubborn
    await world.start()
    heard = await world.ask()
    leaving = asyncio.create_task(world.endpoints.leave(world.env))
    await eventually(lambda: stubborn or not world.runtime.file.exists())
    await asyncio.sleep(0.02)
    assert not leaving.done()
    world.handler.may_end.set()
    await leaving
    assert await heard.whole() == [chunk(1)]
    assert heard.answer.over
    assert events(caplog) == ["not_withdrawn"] * stubborn


async def test_a_turn_that_takes_too_long_is_broken_off(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.start()
    heard = await world.ask()
    world.env[DRAIN_VARIABLE] = "0"
    await world.endpoints.leave(world.env)
    assert events(caplog) == ["not_drained"]
    await world.endpoints.close()
    assert await heard.whole() == []
    assert not heard.answer.over


@pytest.mark.parametrize("text", ["", "soon", "-1", "nan", "0.05", " 0", "0_0"])
async def test_without_a_readable_limit_it_waits(world: World, text: str) -> None:
    await world.start()
    heard = await world.ask()
    world.env[DRAIN_VARIABLE] = text
    leaving = asyncio.create_task(world.endpoints.leave(world.env))
    await asyncio.sleep(0.05)
    assert not leaving.done()
    world.handler.may_end.set()
    await leaving
    assert await heard.whole() == [chunk(1)]


async def test_a_runtime_that_ends_by_itself_lets_turns_finish_too(world: World) -> None:
    """As when its lease in discovery is lost."""
    await world.start()
    heard = await world.ask()
    world.runtime.ended.set()
    await asyncio.sleep(0.05)
    assert world.serving is not None
    assert not world.serving.done()
    world.handler.may_end.set()
    await world.serving
    assert await heard.whole() == [chunk(1)]
    assert heard.answer.over


async def test_a_runtime_that_ends_while_it_is_left_lets_turns_finish_too(world: World) -> None:
    await world.start()
    heard = await world.ask()
    leaving = asyncio.create_task(world.endpoints.leave(world.env))
    await eventually(lambda: not world.runtime.file.exists())
    world.runtime.ended.set()
    await asyncio.sleep(0.05)
    assert world.serving is not None
    assert not world.serving.done()
    world.handler.may_end.set()
    await leaving
    await world.serving
    assert await heard.whole() == [chunk(1)]


async def test_more_turns_than_there_are_file_descriptors_for_are_refused(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.endpoints._most = 1
    await world.start()
    first = await world.ask()
    second = await world.ask()
    assert await second.whole() == []
    assert second.answer.fault is not None
    assert second.answer.fault.kind == "ResourceExhausted"
    assert events(caplog) == ["turn_refused"]
    assert world.handler.counters["refused_descriptors"] == 1
    world.handler.may_end.set()
    assert await first.whole() == [chunk(1)]


class Sender:
    """Dynamo's response sender."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, obj: Any) -> None:
        self.sent.append(obj)


async def test_a_turn_that_comes_by_dynamos_server_is_pushed_or_pulled(world: World) -> None:
    world.handler.may_end.set()
    sender = Sender()
    assert [got async for got in world.endpoints.generate({"n": 2}, None, sender)] == []
    assert sender.sent == [chunk(1)]
    assert [got async for got in world.endpoints.generate({"n": 2}, None)] == ["pulled"]


@pytest.mark.parametrize(("error", "short"), [(errors.HttpError(529, "no"), True), (KeyError("ours"), False)])
async def test_the_traceback_of_a_refusal_is_short(world: World, error: Exception, short: bool) -> None:
    world.handler.may_end.set()
    world.handler.error = error
    with pytest.raises(type(error)) as caught:
        _ = [got async for got in world.endpoints.generate({}, None, Sender())]
    assert any("serve" in entry.name for entry in caught.traceback) is not short
