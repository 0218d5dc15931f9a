# SPDX-License-Identifier: Apache-2.0
"""Spans of turns, sent to a receiver of OTLP over HTTP."""

from __future__ import annotations

import asyncio
import builtins
import dataclasses
import gzip
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from tao_dynamo.core.policy import DEFAULT
from tao_dynamo.shell import tracing
from tao_dynamo.shell.tracing import NoTracing, OpenTelemetry
from tests.tao_dynamo.shell_world import World

pytestmark = pytest.mark.timeout(30)

PARENT = "0123456789abcdef"


class Receiver:
    """Takes OTLP over HTTP on a free port of loopback."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.services: set[str] = set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    receiver.services |= {
                        pair.value.string_value for pair in resource.resource.attributes if pair.key == "service.name"
                    }
                    receiver.spans += [span for scope in resource.scope_spans for span in scope.spans]
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def sending(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> tracing.Tracing:
    env = {
        "OTEL_EXPORT_ENABLED": "1",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": receiver.url,
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
    }
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    return tracing.from_env(env)


def attributes(span: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in span.attributes}


async def test_a_turn_has_its_parts_in_the_frontends_trace(receiver: Receiver, sending: tracing.Tracing) -> None:
    world = World()
    world.handler.tracing = sending
    assert await world.start("s", 100, 5) == [0, 1, 2, 3, 4]
    sending.close()
    (turn,), (placement,), (forward,) = (receiver.named(f"tao.{n}") for n in ("turn", "placement", "forward"))
    assert not receiver.named("tao.wait")
    assert turn.trace_id.hex() == "0123456789abcdef0123456789abcdef"
    assert turn.parent_span_id.hex() == PARENT
    assert placement.parent_span_id == forward.parent_span_id == turn.span_id
    assert attributes(turn) == {"request": "r1", "session": "s"}
    assert attributes(placement)["prompt_tokens"] == 100
    assert attributes(forward)["node"] in ("7/0", "8/0")
    assert [event.name for event in forward.events] == ["first_token"]
    assert turn.start_time_unix_nano <= placement.start_time_unix_nano <= forward.start_time_unix_nano
    assert forward.end_time_unix_nano <= turn.end_time_unix_nano
    assert receiver.services == {"tao-router"}


async def test_a_wait_is_a_part_of_its_own_and_a_refusal_an_error(receiver: Receiver, sending: tracing.Tracing) -> None:
    world = World(dataclasses.replace(DEFAULT, idle_release_s=0.0))
    world.handler.tracing = sending
    world.worker.gate = asyncio.Event()
    first = [world.start(f"s{i}", 700, 200) for i in range(2)]
    await world.until(lambda: len(world.worker.served) == 2)
    late = world.start("late", 700, 200)
    await world.until(lambda: world.states()["waiting"] == 1)
    world.worker.gate.set()
    for turn in (*first, late):
        assert len(await turn) == 200
    with pytest.raises(Exception, match="1024"):
        await world.start("whale", 5000)
    sending.close()
    (wait,) = receiver.named("tao.wait")
    turns = {attributes(span)["session"]: span for span in receiver.named("tao.turn")}
    assert wait.parent_span_id == turns["late"].span_id
    assert wait.end_time_unix_nano > wait.start_time_unix_nano
    assert turns["late"].status.code == 0
    assert turns["whale"].status.code == 2
    assert "1024" in turns["whale"].status.message


@pytest.mark.parametrize("value", ["", "0", "false"])
def test_nothing_is_imported_unless_dynamos_switch_is_on(value: str) -> None:
    assert isinstance(tracing.from_env({"OTEL_EXPORT_ENABLED": value}), NoTracing)
    assert isinstance(tracing.from_env({}), NoTracing)


def test_without_the_packages_one_line_says_which_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **more: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with caplog.at_level(logging.WARNING, "tao.tracing"):
        made = tracing.from_env({"OTEL_EXPORT_ENABLED": "true"})
    assert isinstance(made, NoTracing)
    (record,) = caplog.records
    assert record.fields["hint"] == "pip install 'tao-dynamo[otel]'"  # type: ignore[attr-defined]
    assert str(record.fields["missing"]).startswith("opentelemetry")  # type: ignore[attr-defined]


def test_grpc_is_the_default_as_it_is_dynamos() -> None:
    made = tracing.from_env({"OTEL_EXPORT_ENABLED": "true"})
    assert isinstance(made, OpenTelemetry)
    made.close()
