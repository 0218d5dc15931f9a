# SPDX-License-Identifier: Apache-2.0
"""The harness modules against stand-ins of the few names they use; ``examples/`` runs them on the real packages."""

from __future__ import annotations

import asyncio
import importlib
import sys
import types
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.tool_hooks.test_call import Sink
from tool_hooks import session


class InterruptAgentFlow(Exception):  # noqa: N818 - mini-swe-agent's name
    pass


class Local:
    """Like mini-swe-agent's LocalEnvironment: a dict comes back, the last command raises."""

    def __init__(self, timeout: int = 30) -> None:
        self.config = types.SimpleNamespace(timeout=timeout)
        self.ran: list[str] = []

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        command = action["command"]
        self.ran.append(command)
        if command == "submit":
            raise InterruptAgentFlow
        if command == "hang":
            return {"output": "", "returncode": -1, "extra": {"exception_type": "TimeoutExpired"}}
        return {"output": "é", "returncode": 3 if command == "fail" else 0}

    def serialize(self) -> dict[str, Any]:
        return {"inner": True}


def _module(name: str, **names: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    vars(module).update(names)
    return module


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (
        _module("minisweagent"),
        _module("minisweagent.environments", get_environment_class=lambda name: {"local": Local}[name]),
        _module("minisweagent.exceptions", InterruptAgentFlow=InterruptAgentFlow),
        _module("langchain_core"),
        _module("langchain_core.callbacks", BaseCallbackHandler=object),
        _module("agents", RunHooks=object),
    ):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    yield
    for name in ("mini_swe_agent", "langchain", "openai_agents"):
        sys.modules.pop(f"tool_hooks.harness.{name}", None)


def harness(name: str) -> Any:
    return importlib.import_module(f"tool_hooks.harness.{name}")


def test_mini_swe_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink()
    monkeypatch.setattr("tool_hooks.call.default_publisher", lambda: sink)
    environment = harness("mini_swe_agent").TaoEnvironment(inner="local", session_id="s", timeout=20)
    assert environment.execute({"command": "ls", "tool_call_id": "c1"}) == {"output": "é", "returncode": 0}
    assert environment.execute({"command": "fail"}, timeout=5)["returncode"] == 3
    environment.execute({"command": "hang"})
    with pytest.raises(InterruptAgentFlow):
        environment.execute({"command": "submit"})
    assert environment.serialize() == {"inner": True}
    starts, ends = sink.events[::2], sink.events[1::2]
    assert [(e.command, e.timeout_s) for e in starts] == [("ls", 20), ("fail", 5), ("hang", 20), ("submit", 20)]
    assert starts[0].tool_call_id == "c1"
    assert [(e.status, e.error_type) for e in ends] == [
        ("succeeded", None),
        ("error", "exit 3"),
        ("cancelled", "TimeoutExpired"),
        ("succeeded", None),
    ]
    assert ends[0].output_bytes == 2


def test_mini_swe_agent_under_tao_tool_run() -> None:
    environment = harness("mini_swe_agent").TaoEnvironment(session_id="s 1", watch=True)
    environment.execute({"command": "echo 'a b'"})
    assert environment.ran == [
        f"{sys.executable} -m tool_hooks.cli run --session 's 1' --timeout 30s -- sh -c 'echo '\"'\"'a b'\"'\"''"
    ]


def test_langchain() -> None:
    sink = Sink()
    handler = harness("langchain").TaoCallbackHandler(publisher=sink)
    one, two = uuid4(), uuid4()
    handler.on_tool_start({"name": "shell"}, "", run_id=one, metadata={"thread_id": 7}, inputs={"command": "ls"})
    handler.on_tool_start({}, "", run_id=two, metadata={"session_id": "b"})
    handler.on_custom_event("tool_progress", {"fraction": 0.5}, run_id=one)
    handler.on_custom_event("other", {"fraction": 0.6}, run_id=one)
    handler.on_tool_error(ValueError("no"), run_id=two)
    handler.on_tool_end("fine", run_id=one)
    handler.on_tool_end("unknown", run_id=uuid4())
    assert [(e.session_id, e.kind, e.tool_class, e.fraction) for e in sink.events] == [
        ("7", "tool_start", "shell", None),
        ("b", "tool_start", "tool", None),
        ("7", "tool_progress", "shell", 0.5),
        ("b", "tool_error", "tool", None),
        ("7", "tool_end", "shell", None),
    ]
    assert sink.events[0].command == "ls"


async def test_openai_agents() -> None:
    sink = Sink()
    hooks = harness("openai_agents").TaoRunHooks(publisher=sink)
    tool = types.SimpleNamespace(name="shell")
    named = types.SimpleNamespace(tool_call_id="c1", tool_arguments='{"command": "ls"}')
    plain = types.SimpleNamespace()
    with session("s"):
        await hooks.on_tool_start(named, None, tool)
        await hooks.on_tool_start(plain, None, tool)
        await asyncio.sleep(0)
        await hooks.on_tool_end(named, None, tool, "out")
        await hooks.on_tool_end(plain, None, tool, object())
        await hooks.on_tool_end(plain, None, tool, object())
    assert [e.kind for e in sink.events] == ["tool_start", "tool_start", "tool_end", "tool_end"]
    assert (sink.events[0].command, sink.events[0].tool_call_id, sink.events[2].output_bytes) == ("ls", "c1", 3)
