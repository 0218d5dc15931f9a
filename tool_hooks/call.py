# SPDX-License-Identifier: Apache-2.0
"""One tool call, from its start to its end, told to the bus."""

from __future__ import annotations

import logging
import os
import time
import uuid
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from tool_hooks.events import MAX_COMMAND_CHARS, Kind, ToolEvent
from tool_hooks.identity import PARENT_ENV, TENANT_ENV, current_session
from tool_hooks.publisher import default_publisher

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger("tool_hooks")

PROGRESS_EVERY_S = 0.1
COMMANDS_ENV = "DYN_TAO_TOOL_COMMANDS"


class EventSink(Protocol):
    """Where events go: a :class:`~tool_hooks.publisher.Publisher`, or anything that collects them."""

    def publish(self, event: ToolEvent, /) -> bool:
        """Take an event without blocking; False when it was dropped."""
        ...


class ToolCall:
    """A tool call that tells when it starts, how far it is and when it ends.

    ``with tool_call("bash", command=line) as call: call.progress(0.4)``, and the same with ``async with``;
    or call :meth:`start` and :meth:`end` yourself. No method raises or blocks: the tool runs whether or not
    anybody hears.

    Args:
        tool_class: what kind of tool, such as ``"bash"`` or ``"web"``.
        session_id: default the enclosing :func:`tool_hooks.session`, then ``DYN_SESSION_ID``; without any,
        the tool
            runs and nothing is told.
        tool_call_id: default a fresh one.
        tool_key: what calls of like duration share; default derived by the reader from ``command``.
        command: the shell command line, if it is one; sent cut to 4096 characters, and not at all with
            ``DYN_TAO_TOOL_COMMANDS=off``.
        declared_s: how long the tool itself says it will take, in seconds.
        timeout_s: after how many seconds it will be stopped.
        tenant: whose history to learn from and add to; default ``DYN_TENANT_ID``.
        parent_session_id: the session that started this one; default ``DYN_PARENT_SESSION_ID``.
        publisher: default the process's own.
    """

    def __init__(
        self,
        tool_class: str,
        *,
        session_id: str | None = None,
        tool_call_id: str | None = None,
        tool_key: str | None = None,
        command: str | None = None,
        declared_s: float | None = None,
        timeout_s: float | None = None,
        tenant: str | None = None,
        parent_session_id: str | None = None,
        publisher: EventSink | None = None,
    ) -> None:
        self.tool_class = tool_class
        self.session_id = current_session(session_id)
        self.tool_call_id = tool_call_id or f"call-{uuid.uuid4().hex}"
        self._tool_key = tool_key
        self._command = _publishable(command)
        self._declared_s = declared_s
        self._timeout_s = timeout_s
        self._tenant = tenant or os.environ.get(TENANT_ENV) or None
        self._parent = parent_session_id or os.environ.get(PARENT_ENV) or None
        self._publisher = publisher
        self._started: float | None = None
        self._told: float = -PROGRESS_EVERY_S
        self._ended = False
        self._pid = os.getpid()

    def start(self, *, at: float | None = None) -> None:
        """Say that the tool starts now, or did at ``at`` (seconds of :func:`time.monotonic`)."""
        self._started = time.monotonic() if at is None else at
        self._tell("tool_start", status="running")

    def resume(self, *, at: float | None) -> None:
        """Take up a call that another process started at ``at``; None where that is not known."""
        self._started = at

    def progress(self, fraction: float | None = None, *, remaining_s: float | None = None) -> None:
        """Say how far the tool is: the share done in [0, 1], the seconds left, or neither (a heartbeat).

        Calls that follow one another within 0.1 s are not sent, except one that says the tool is done.
        """
        now = time.monotonic()
        if self._ended or (now - self._told < PROGRESS_EVERY_S and not (fraction is not None and fraction >= 1.0)):
            return
        self._told = now
        self._tell("tool_progress", fraction=fraction, remaining_s=remaining_s)

    def end(
        self,
        *,
        error_type: str | None = None,
        cancelled: bool = False,
        output_bytes: int | None = None,
        at: float | None = None,
    ) -> None:
        """Say that the tool has returned, now or at ``at``. The first end counts; later ones do nothing."""
        if self._ended:
            return
        self._ended = True
        returned = time.monotonic() if at is None else at
        duration_s = None if self._started is None else max(0.0, returned - self._started)
        failed = cancelled or error_type is not None
        self._tell(
            "tool_error" if failed else "tool_end",
            status="cancelled" if cancelled else "error" if failed else "succeeded",
            duration_s=duration_s,
            error_type=error_type,
            output_bytes=output_bytes,
        )

    def leave(self, error: BaseException | None) -> None:
        """End as the tool did: with an exception, or without."""
        if error is None:
            self.end()
        else:
            # By name, since importing asyncio for it would double the shim's start-up.
            name = type(error).__name__
            cancelled = isinstance(error, (KeyboardInterrupt, GeneratorExit)) or name == "CancelledError"
            self.end(error_type=name, cancelled=cancelled)

    def _tell(
        self,
        kind: Kind,
        *,
        status: str | None = None,
        fraction: float | None = None,
        remaining_s: float | None = None,
        duration_s: float | None = None,
        error_type: str | None = None,
        output_bytes: int | None = None,
    ) -> None:
        # A child forked in the middle of a call takes a copy of it along; the call stays its parent's.
        if self.session_id is None or self._pid != os.getpid():
            return
        try:
            sink = self._publisher or default_publisher()
            event = ToolEvent(
                kind=kind,
                session_id=self.session_id,
                tool_call_id=self.tool_call_id,
                tool_class=self.tool_class,
                event_time_ms=time.time_ns() // 1_000_000,
                tool_key=self._tool_key,
                command=self._command if kind == "tool_start" else None,
                declared_s=self._declared_s if kind == "tool_start" else None,
                timeout_s=self._timeout_s if kind == "tool_start" else None,
                fraction=fraction,
                remaining_s=remaining_s,
                duration_s=duration_s,
                status=status,
                tenant=self._tenant,
                parent_session_id=self._parent,
                error_type=error_type,
                output_bytes=output_bytes,
            )
            sink.publish(event)
        except Exception:
            log.warning("a tool event was not sent", exc_info=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave(error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave(error)


def _publishable(command: str | None) -> str | None:
    """A command's head, or None where the host does not want command lines on the bus."""
    if command is None or os.environ.get(COMMANDS_ENV, "").lower() in ("0", "off", "false", "no"):
        return None
    return command[:MAX_COMMAND_CHARS]


tool_call = ToolCall
