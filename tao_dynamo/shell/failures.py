# SPDX-License-Identifier: Apache-2.0
"""Errors on their way to the frontend, so that each gets the right HTTP status and none marks the router as down.

The frontend takes WorkerUnavailable, StreamIncomplete, EngineShutdown, CannotConnect and Disconnected as faults of
the instance that it called, which is the router, and then answers 503 to everybody for seconds.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from dynamo.llm import exceptions as dynamo_errors

from tao_dynamo.core.decisions import Refuse, RefuseReason
from tao_dynamo.shell.wire import Fault

OVERLOADED = 529
"""The status that Dynamo itself answers when its queues are full."""
UNAVAILABLE = 503

_GONE = (
    dynamo_errors.WorkerUnavailable,
    dynamo_errors.StreamIncomplete,
    dynamo_errors.EngineShutdown,
    dynamo_errors.CannotConnect,
    dynamo_errors.Disconnected,
)
_GONE_TEXTS = ("unavailable:", "stream ended before", "not found", "no responders", "connection", "disconnected")
_KEPT: tuple[type[Exception], ...] = (
    dynamo_errors.InvalidArgument,
    dynamo_errors.ConnectionTimeout,
    dynamo_errors.Cancelled,
    dynamo_errors.HttpError,
)

_WRONG = (dynamo_errors.InvalidArgument, ValueError, TypeError)
_KINDS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], tuple[str, str, str]], ...] = (
    (dynamo_errors.Cancelled, ("Cancelled", "Cancelled", "backend.cancelled")),
    (dynamo_errors.ConnectionTimeout, ("ConnectionTimeout", "DeadlineExceeded", "backend.connection_timeout")),
    (_WRONG, ("InvalidArgument", "InvalidRequest", "backend.invalid_argument")),
)
_UNKNOWN = ("Unknown", "Internal", "backend.unknown")
_HTTP = {
    UNAVAILABLE: ("Unavailable", "Unavailable", "backend.unavailable"),
    OVERLOADED: ("ResourceExhausted", "CapacityExhausted", "capacity.exhausted"),
}
_HTTP_WRONG = ("InvalidArgument", "InvalidRequest", "request.invalid")
_HTTP_BROKEN = ("Unknown", "Internal", "runtime.internal")


class Failures(Protocol):
    """Turns errors and refusals into what the frontend wants to hear."""

    def worker_gone(self, error: Exception) -> bool:
        """Whether the error says that the worker could not be reached, or is no more."""

    def translate(self, error: Exception, started: bool) -> Exception:
        """Return what to raise instead; ``started``: tokens have been sent already."""

    def refused(self, refusal: Refuse) -> Exception:
        """Return what to raise for a turn that is refused."""

    def wrong(self, text: str) -> Exception:
        """Return what to raise for a request that is wrong in itself."""


class DynamoFailures:
    """For Dynamo 1.6's frontend; statuses were seen by raising each error."""

    SAID = (dynamo_errors.InvalidArgument, dynamo_errors.HttpError)
    """Refusals: what they are is in their text, and where they come from of no use to anybody."""
    EXPECTED = (*_KEPT, RuntimeError, ValueError)
    """What turns end with, where nothing is wrong with the router; see :meth:`translate`."""

    @staticmethod
    def sent(fault: Fault) -> Exception:
        """Return the exception that Dynamo's client raises for an error sent by a worker."""
        if fault.kind == "InvalidArgument" and fault.public:
            return dynamo_errors.InvalidArgument(fault.text)  # type: ignore[no-any-return]
        return ValueError(f"{fault.group}: {fault.text}")

    @staticmethod
    def told(error: Exception) -> dict[str, Any]:
        """Return what Dynamo's server sends a frontend for an exception; :meth:`sent` reads the like."""
        text = str(error)
        if isinstance(error, dynamo_errors.HttpError):
            kind, group, reason = _HTTP.get(error.code, _HTTP_WRONG if error.code < 500 else _HTTP_BROKEN)
            text = json.dumps({"message": error.message, "code": error.code}, separators=(",", ":"))
            return {"error_type": kind, "class": group, "reason": reason, "message": text, "diagnostic": text}
        kind, group, reason = next((kind for known, kind in _KINDS if isinstance(error, known)), _UNKNOWN)
        if not isinstance(error, dynamo_errors.DynamoException):
            text = f"{type(error).__name__}: {text}"
        told: dict[str, Any] = {"error_type": {"Backend": kind}, "class": group, "reason": reason}
        told |= {"message": text, "diagnostic": text}
        if isinstance(error, dynamo_errors.InvalidArgument):
            told["public"] = {"type": "message", "message": text}
        return told

    def worker_gone(self, error: Exception) -> bool:
        """Whether the error says that the worker could not be reached, or is no more."""
        if isinstance(error, _GONE):
            return True
        if isinstance(error, _KEPT):
            return False
        text = str(error).lower()
        return any(part in text for part in _GONE_TEXTS)

    def translate(self, error: Exception, started: bool) -> Exception:
        """Return what to raise instead; ``started``: tokens have been sent already."""
        if isinstance(error, _KEPT):
            return error
        if self.worker_gone(error):
            when = "in mid-stream" if started else "before its first token, on every node that was tried"
            return RuntimeError(f"the worker was lost {when}: {error}")
        return error if isinstance(error, ValueError) else RuntimeError(str(error))

    def refused(self, refusal: Refuse) -> Exception:
        """Return what to raise for a turn that is refused."""
        if refusal.reason is RefuseReason.OVERLOAD:
            return dynamo_errors.HttpError(OVERLOADED, refusal.text)  # type: ignore[no-any-return]
        if refusal.reason is RefuseReason.NO_NODES:
            return dynamo_errors.HttpError(UNAVAILABLE, refusal.text)  # type: ignore[no-any-return]
        return dynamo_errors.InvalidArgument(refusal.text)  # type: ignore[no-any-return]

    def wrong(self, text: str) -> Exception:
        """Return what to raise for a request that is wrong in itself."""
        return dynamo_errors.InvalidArgument(text)  # type: ignore[no-any-return]
