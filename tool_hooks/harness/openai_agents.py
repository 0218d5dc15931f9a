# SPDX-License-Identifier: Apache-2.0
"""OpenAI Agents SDK: run hooks that tell the bus about every local tool call.

await Runner.run(agent, "...", hooks=TaoRunHooks(session_id="my-session"))
"""

from __future__ import annotations

import json
from typing import Any

from agents import RunHooks

from tool_hooks.call import EventSink, ToolCall

MAX_CALLS = 4096


class TaoRunHooks(RunHooks):  # type: ignore[misc,type-arg,unused-ignore]
    """Give it to ``hooks`` of a run. The session is ``session_id``, or the one in force."""

    def __init__(self, session_id: str | None = None, *, publisher: EventSink | None = None) -> None:
        self._session_id = session_id
        self._publisher = publisher
        self._calls: dict[object, ToolCall] = {}

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:  # noqa: ARG002 - the SDK's
        """A tool starts."""
        call = ToolCall(
            str(tool.name),
            session_id=self._session_id,
            tool_call_id=getattr(context, "tool_call_id", None),
            command=_command(getattr(context, "tool_arguments", None)),
            publisher=self._publisher,
        )
        call.start()
        while len(self._calls) >= MAX_CALLS:
            del self._calls[next(iter(self._calls))]
        self._calls[_key(context, tool)] = call

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:  # noqa: ARG002
        """A tool has returned."""
        call = self._calls.pop(_key(context, tool), None)
        if call is not None:
            call.end(output_bytes=len(result.encode()) if isinstance(result, str) else None)


def _key(context: Any, tool: Any) -> object:
    return getattr(context, "tool_call_id", None) or (id(context), str(tool.name))


def _command(arguments: Any) -> str | None:
    try:
        found = json.loads(arguments)
    except (TypeError, ValueError):
        return None
    command = found.get("command") if isinstance(found, dict) else None
    return command if isinstance(command, str) else None
