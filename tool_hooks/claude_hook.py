# SPDX-License-Identifier: Apache-2.0
"""``tao-tool claude-hook``: told by Claude Code's PreToolUse and PostToolUse hooks, tells the bus.

Each hook is a process of its own, so the start of a call is kept in a small file until its end. Claude Code
sends the hook's ``session_id`` to the model as ``x-claude-code-session-id`` too, so both name the same
session. The hook prints nothing and always succeeds: an exit code of 2 would forbid the tool.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from tool_hooks.call import EventSink, ToolCall

_MAX_INPUT = 16 << 20
_MAX_STARTS = 512
_FLUSH_S = 0.3


class HookInput(msgspec.Struct):
    """What Claude Code writes to a hook's standard input, as far as it is used here."""

    session_id: str = ""
    hook_event_name: str = ""
    tool_name: str = ""
    tool_input: dict[str, Any] = {}
    tool_use_id: str | None = None
    duration_ms: float | None = None
    tool_response: Any = None
    error: Any = None


def hook(stream: BinaryIO, session_id: str | None = None) -> int:
    """Read one hook event and publish it. The exit code is always 0."""
    from tool_hooks.publisher import Publisher

    try:
        given = msgspec.json.decode(stream.read(_MAX_INPUT), type=HookInput)
        publisher = Publisher(timeout_s=_FLUSH_S)
        tell(given, publisher, session_id=session_id, folder=starts_folder())
        publisher.close(_FLUSH_S)
    except Exception as error:  # noqa: BLE001 - the tool must run whatever is wrong here
        sys.stderr.write(f"tao-tool claude-hook: {error}\n")
    return 0


def tell(given: HookInput, sink: EventSink, *, session_id: str | None, folder: Path) -> None:
    """Publish the start or the end that a hook event stands for; other events say nothing."""
    session = session_id or given.session_id
    call_id = given.tool_use_id or _call_id(given)
    command = given.tool_input.get("command")
    timeout_ms = given.tool_input.get("timeout")
    call = ToolCall(
        given.tool_name or "tool",
        session_id=session,
        tool_call_id=call_id,
        command=command if isinstance(command, str) else None,
        timeout_s=timeout_ms / 1000.0 if isinstance(timeout_ms, (int, float)) and timeout_ms > 0 else None,
        publisher=sink,
    )
    kept = folder / hashlib.sha256(f"{session}\0{call_id}".encode()).hexdigest()[:32]
    if given.hook_event_name == "PreToolUse":
        _keep_start(kept)
        call.start()
    elif given.hook_event_name in ("PostToolUse", "PostToolUseFailure"):
        kept_at = _take_start(kept)
        # Newer releases measure the call themselves, without what their hooks take.
        call.resume(at=kept_at if given.duration_ms is None else time.monotonic() - given.duration_ms / 1000.0)
        failed = given.hook_event_name == "PostToolUseFailure" or given.error is not None
        response = given.tool_response if isinstance(given.tool_response, dict) else {}
        interrupted = response.get("interrupted") is True
        call.end(error_type="ToolError" if failed else None, cancelled=interrupted)


def starts_folder() -> Path:
    """Where starts are kept: readable by this user alone."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    folder = Path(base) / f"tao-tool-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    return folder


def _call_id(given: HookInput) -> str:
    """Before Claude Code gave calls an id, the same input twice at once was the only way to mix two up."""
    return hashlib.sha256(msgspec.json.encode([given.tool_name, given.tool_input], order="sorted")).hexdigest()[:32]


def _keep_start(kept: Path) -> None:
    others = list(kept.parent.iterdir())
    if len(others) >= _MAX_STARTS:  # calls that never ended: forget the older half
        for path in sorted(others, key=lambda path: path.stat().st_mtime)[: _MAX_STARTS // 2]:
            path.unlink(missing_ok=True)
    kept.write_text(repr(time.monotonic()), encoding="ascii")


def _take_start(kept: Path) -> float | None:
    with contextlib.suppress(OSError, ValueError):
        at = float(kept.read_text(encoding="ascii"))
        kept.unlink()
        return at if at <= time.monotonic() else None
    return None
