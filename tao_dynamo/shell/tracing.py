# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry spans of a turn, as part of the trace that Dynamo's frontend began.

Switched on by the variables that switch Dynamo's own spans on: ``OTEL_EXPORT_ENABLED``, and for where they go
``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`` or ``OTEL_EXPORTER_OTLP_ENDPOINT``, with ``..._PROTOCOL`` grpc (the default) or
http/protobuf. A turn is the span ``tao.turn`` with these parts, each a span: ``placement`` (its prompt is hashed, its
credits are looked up, the core is asked), ``wait`` (only if there was no room at once), ``forward`` (until the last
token, with the event ``first_token``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tao_dynamo import __version__
from tao_dynamo.shell.logs import Events
from tao_dynamo.shell.options import TRUE

log = Events("tao.tracing")

ENABLED = "OTEL_EXPORT_ENABLED"
SERVICE = "tao-router"
CLOSE_S = 3.0


class Trace(Protocol):
    """The spans of one turn."""

    def part(self, name: str, **attributes: str | float | bool) -> None:
        """Begin a part of the turn; the one before it ends."""

    def event(self, name: str) -> None:
        """Something happened within the present part."""

    def end(self, error: BaseException | None = None) -> None:
        """The turn is over."""


class NoTrace:
    """For turns that are not traced."""

    def part(self, name: str, **attributes: str | float | bool) -> None:
        """Begin nothing."""

    def event(self, name: str) -> None:
        """Note nothing."""

    def end(self, error: BaseException | None = None) -> None:
        """End nothing."""


NO_TRACE = NoTrace()


class Tracing(Protocol):
    """Begins the spans of turns."""

    def turn(self, headers: Callable[[], Mapping[str, str] | None], **attributes: str | float | bool) -> Trace:
        """Begin a turn; ``headers`` gives the W3C headers of the trace that it belongs to."""

    def close(self) -> None:
        """Send what is left."""


class NoTracing:
    """Where no spans are wanted."""

    def turn(self, headers: Callable[[], Mapping[str, str] | None], **attributes: str | float | bool) -> Trace:  # noqa: ARG002
        """Begin nothing."""
        return NO_TRACE

    def close(self) -> None:
        """Nothing is left."""


class OpenTelemetry:
    """Spans by OpenTelemetry's SDK; how they are sampled and batched is for its own ``OTEL_*`` variables to say.

    Args:
        exporter: where they go.
        service: the name of this service, unless ``OTEL_SERVICE_NAME`` says another.

    Raises:
        ModuleNotFoundError: the SDK is not installed.
    """

    def __init__(self, exporter: Any, service: str = SERVICE) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        resource = Resource.create({"service.name": service, "service.version": __version__})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("tao_dynamo", __version__)
        self._read_headers = TraceContextTextMapPropagator().extract

    def turn(self, headers: Callable[[], Mapping[str, str] | None], **attributes: str | float | bool) -> Trace:
        """Begin a turn; ``headers`` gives the W3C headers of the trace that it belongs to."""
        parent = self._read_headers(dict(headers() or {}))
        return _Spans(self._tracer, parent, attributes)

    def close(self) -> None:
        """Send what is left, unless its receiver cannot be reached for a while."""
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(CLOSE_S)


class _Spans:
    """The spans of one turn. Never raises: a turn must not fail of being watched."""

    def __init__(self, tracer: Any, parent: Any, attributes: Mapping[str, str | int | float | bool]) -> None:
        from opentelemetry.trace import SpanKind, set_span_in_context

        self._tracer = tracer
        self._turn = tracer.start_span("tao.turn", context=parent, kind=SpanKind.SERVER, attributes=dict(attributes))
        self._inside = set_span_in_context(self._turn, parent)
        self._part: Any = None

    def part(self, name: str, **attributes: str | float | bool) -> None:
        """Begin a part of the turn; the one before it ends."""
        if self._part is not None:
            self._part.end()
        self._part = self._tracer.start_span(f"tao.{name}", context=self._inside, attributes=attributes)

    def event(self, name: str) -> None:
        """Something happened within the present part."""
        if self._part is not None:
            self._part.add_event(name)

    def end(self, error: BaseException | None = None) -> None:
        """The turn is over."""
        from opentelemetry.trace import Status, StatusCode

        for span in (self._part, self._turn):
            if span is not None:
                if error is not None:
                    span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
                span.end()
        self._part = None


def from_env(env: Mapping[str, str]) -> Tracing:
    """What the environment asks for; without the packages that it takes one line says which to install."""
    if env.get(ENABLED, "").strip().lower() not in TRUE:
        return NoTracing()
    try:
        tracing = OpenTelemetry(_exporter(env), env.get("OTEL_SERVICE_NAME") or SERVICE)
    except ModuleNotFoundError as error:
        log.warning("no_spans", missing=error.name, hint="pip install 'tao-dynamo[otel]'", because=f"{ENABLED} is set")
        return NoTracing()
    log.info("spans", protocol=_protocol(env))
    return tracing


def _protocol(env: Mapping[str, str]) -> str:
    return env.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or env.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "grpc"


def _exporter(env: Mapping[str, str]) -> Any:
    # Endpoint, headers, timeout and certificates are read from the environment by the exporters themselves.
    if _protocol(env).startswith("http"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as OverHttp

        return OverHttp()
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OverGrpc

    return OverGrpc()
