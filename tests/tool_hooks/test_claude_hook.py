# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.tool_hooks.bus import Listener, Server, environment
from tests.tool_hooks.test_call import Sink
from tests.tool_hooks.test_run import ended
from tool_hooks.claude_hook import HookInput, tell

HOOK = [sys.executable, "-m", "tool_hooks.cli", "claude-hook"]

# As Claude Code 2.1.197 wrote it, shortened.
POST = {
    "session_id": "88f54a98-852b-4e58-ac9c-43d89312503d",
    "cwd": "/proj",
    "permission_mode": "default",
    "hook_event_name": "PostToolUse",
    "tool_name": "Bash",
    "tool_input": {"command": "sleep 0.5; echo hello", "timeout": 5000, "description": "say hello"},
    "tool_response": {"stdout": "hello", "stderr": "", "interrupted": False, "isImage": False},
    "tool_use_id": "toolu_01",
    "duration_ms": 665,
}


def event(name: str, **more: Any) -> HookInput:
    fields = {**POST, "hook_event_name": name, **more}
    return msgspec.convert({key: value for key, value in fields.items() if value is not None}, HookInput)


def test_before_and_after_a_tool(tmp_path: Path) -> None:
    sink = Sink()
    tell(event("PreToolUse"), sink, session_id=None, folder=tmp_path)
    tell(event("PostToolUse"), sink, session_id=None, folder=tmp_path)
    start, end = sink.events
    assert (start.kind, start.session_id, start.tool_call_id) == ("tool_start", POST["session_id"], "toolu_01")
    assert (start.command, start.timeout_s) == ("sleep 0.5; echo hello", 5.0)
    assert (end.kind, end.status, end.tool_call_id) == ("tool_end", "succeeded", "toolu_01")
    assert end.duration_s == pytest.approx(0.665, abs=0.05)
    assert list(tmp_path.iterdir()) == []


def test_releases_that_neither_name_nor_measure_the_call(tmp_path: Path) -> None:
    sink = Sink()
    tell(event("PreToolUse", tool_use_id=None, duration_ms=None), sink, session_id=None, folder=tmp_path)
    time.sleep(0.05)
    tell(event("PostToolUse", tool_use_id=None, duration_ms=None), sink, session_id=None, folder=tmp_path)
    start, end = sink.events
    assert start.tool_call_id == end.tool_call_id
    assert end.duration_s == pytest.approx(0.05, abs=0.2)


def test_an_end_whose_start_was_not_seen_has_no_duration(tmp_path: Path) -> None:
    sink = Sink()
    tell(event("PostToolUse", duration_ms=None), sink, session_id=None, folder=tmp_path)
    assert [(e.kind, e.duration_s) for e in sink.events] == [("tool_end", None)]


def test_failed_and_interrupted_tools(tmp_path: Path) -> None:
    sink = Sink()
    tell(event("PostToolUseFailure", error="boom"), sink, session_id=None, folder=tmp_path)
    tell(event("PostToolUse", tool_response={"interrupted": True}), sink, session_id=None, folder=tmp_path)
    assert [(e.kind, e.status) for e in sink.events] == [("tool_error", "error"), ("tool_error", "cancelled")]


def test_other_events_say_nothing(tmp_path: Path) -> None:
    sink = Sink()
    tell(event("SessionStart"), sink, session_id=None, folder=tmp_path)
    assert sink.events == []


def test_starts_that_never_ended_are_forgotten(tmp_path: Path) -> None:
    for number in range(600):
        tell(event("PreToolUse", tool_use_id=f"t{number}"), Sink(), session_id=None, folder=tmp_path)
    assert len(list(tmp_path.iterdir())) <= 512


@pytest.mark.nats
def test_as_a_process_of_its_own(server: Server, listener: Listener, tmp_path: Path) -> None:
    env = environment(server, XDG_RUNTIME_DIR=str(tmp_path))
    for name in ("PreToolUse", "PostToolUse"):
        given = json.dumps({**POST, "hook_event_name": name}).encode()
        done = subprocess.run(HOOK, input=given, env=env, capture_output=True, timeout=30, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert [e.kind for e in listener.wait_for(ended)] == ["tool_start", "tool_end"]


@pytest.mark.parametrize("given", [b"", b"garbage", b"[]", b'{"session_id": 3}'])
def test_it_never_stands_in_the_tools_way(given: bytes) -> None:
    done = subprocess.run(HOOK, input=given, env=environment(None), capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.startswith(b"tao-tool claude-hook: ")


def test_a_wrong_option_does_not_forbid_the_tool() -> None:
    done = subprocess.run([*HOOK, "--nope"], input=b"", capture_output=True, timeout=30, check=False)
    assert done.returncode == 1
