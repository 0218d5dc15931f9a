# SPDX-License-Identifier: Apache-2.0
"""LangChain and LangGraph: a callback handler that tells the bus about every tool run.

    graph.invoke(state, {"callbacks": [TaoCallbackHandler()], "configurable": {"thread_id": "my-session"}})

The session is the handler's ``session_id``; else ``session_id`` or LangGraph's ``thread_id`` of the run's metadata;
else the one in force. A tool says how far it is with ``dispatch_custom_event("tool_progress", {"fraction": 0.4})``.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler

from tool_hooks.call import EventSink, ToolCall

MAX_CALLS = 4096
PROGRESS_EVENT = "tool_progress"


class TaoCallbackHandler(BaseCallbackHandler):  # type: ignore[misc,unused-ignore]
    """Give it to ``callbacks`` of any run. It never raises into the run."""

    # In the run's own thread and order, also under asyncio: no method of it waits.
    run_inline = True

    def __init__(self, session_id: str | None = None, *, publisher: EventSink | None = None) -> None:
        self._session_id = session_id
        self._publisher = publisher
        self._calls: dict[UUID, ToolCall] = {}

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,  # noqa: ARG002 - LangChain's signature
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        inputs: dict[str, Any] | None = None,
        **_more: Any,
    ) -> None:
        """A tool starts."""
        facts = metadata or {}
        session = self._session_id or facts.get("session_id") or facts.get("thread_id")
        command = (inputs or {}).get("command")
        call = ToolCall(
            str((serialized or {}).get("name") or "tool"),
            session_id=None if session is None else str(session),
            tool_call_id=str(run_id),
            command=command if isinstance(command, str) else None,
            publisher=self._publisher,
        )
        call.start()
        while len(self._calls) >= MAX_CALLS:
            del self._calls[next(iter(self._calls))]
        self._calls[run_id] = call

    def on_custom_event(self, name: str, data: Any, *, run_id: UUID, **_more: Any) -> None:
        """A tool says how far it is."""
        call = self._calls.get(run_id)
        if name == PROGRESS_EVENT and call is not None and isinstance(data, dict):
            call.progress(data.get("fraction"), remaining_s=data.get("remaining_s"))

    def on_tool_end(self, output: Any, *, run_id: UUID, **_more: Any) -> None:
        """A tool has returned."""
        call = self._calls.pop(run_id, None)
        if call is not None:
            call.end(error_type="ToolError" if getattr(output, "status", None) == "error" else None)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **_more: Any) -> None:
        """A tool has raised."""
        call = self._calls.pop(run_id, None)
        if call is not None:
            call.leave(error)
