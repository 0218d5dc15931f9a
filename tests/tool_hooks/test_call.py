# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import time

import pytest

from tool_hooks import current_session, session, tool_call
from tool_hooks.events import ToolEvent


class Sink:
    """Keeps what is published."""

    def __init__(self) -> None:
        self.events: list[ToolEvent] = []

    def publish(self, event: ToolEvent) -> bool:
        self.events.append(event)
        return True

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


class BrokenSink:
    def publish(self, event: ToolEvent) -> bool:
        raise RuntimeError("the bus is on fire")


def test_a_call_tells_start_progress_and_end() -> None:
    sink = Sink()
    with tool_call("bash", session_id="s", command="make", declared_s=3, timeout_s=9, publisher=sink) as call:
        call.progress(0.4)
        time.sleep(0.02)
    start, progress, end = sink.events
    assert (start.kind, start.session_id, start.command, start.declared_s, start.timeout_s) == (
        "tool_start",
        "s",
        "make",
        3,
        9,
    )
    assert (progress.kind, progress.fraction) == ("tool_progress", 0.4)
    assert (end.kind, end.status) == ("tool_end", "succeeded")
    assert end.duration_s is not None
    assert 0.02 <= end.duration_s < 1.0
    assert len({event.tool_call_id for event in sink.events}) == 1


def test_an_exception_passes_through_and_is_told() -> None:
    sink = Sink()
    with pytest.raises(ZeroDivisionError), tool_call("x", session_id="s", publisher=sink):
        _ = 1 / 0
    assert (sink.events[-1].kind, sink.events[-1].status, sink.events[-1].error_type) == (
        "tool_error",
        "error",
        "ZeroDivisionError",
    )


async def test_async_calls_and_cancelling() -> None:
    sink = Sink()

    async def tool() -> None:
        async with tool_call("x", session_id="s", publisher=sink) as call:
            call.progress()
            await asyncio.sleep(30)

    task = asyncio.create_task(tool())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sink.kinds == ["tool_start", "tool_progress", "tool_error"]
    assert sink.events[-1].status == "cancelled"


def test_progress_is_thinned_but_the_last_word_is_not_lost() -> None:
    sink = Sink()
    with tool_call("x", session_id="s", publisher=sink) as call:
        for percent in range(101):
            call.progress(percent / 100)
    assert [event.fraction for event in sink.events if event.kind == "tool_progress"] == [0.0, 1.0]


def test_the_first_end_counts_and_nothing_follows_it() -> None:
    sink = Sink()
    call = tool_call("x", session_id="s", publisher=sink)
    call.start()
    call.end(cancelled=True)
    call.end()
    call.progress(0.5)
    assert sink.kinds == ["tool_start", "tool_error"]


def test_session_from_argument_context_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert current_session() is None
    monkeypatch.setenv("DYN_SESSION_ID", "env")
    assert current_session() == "env"
    with session("context"):
        assert current_session() == "context"
        assert current_session("argument") == "argument"
    assert current_session() == "env"


async def test_sessions_of_tasks_do_not_mix() -> None:
    sink = Sink()

    async def agent(name: str) -> None:
        with session(name):
            await asyncio.sleep(0)
            async with tool_call(name, publisher=sink):
                await asyncio.sleep(0)

    await asyncio.gather(*(agent(f"s{n}") for n in range(20)))
    assert all(event.session_id == event.tool_class for event in sink.events)
    assert len(sink.events) == 40


def test_without_a_session_the_tool_runs_and_nothing_is_told() -> None:
    sink = Sink()
    with tool_call("x", publisher=sink) as call:
        call.progress(0.5)
    assert sink.events == []


def test_a_broken_sink_does_not_reach_the_tool() -> None:
    with tool_call("x", session_id="s", publisher=BrokenSink()) as call:
        call.progress(0.5)
        done = True
    assert done


def test_commands_can_be_kept_off_the_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYN_TAO_TOOL_COMMANDS", "off")
    sink = Sink()
    with tool_call("bash", session_id="s", command="curl -H 'Authorization: secret'", publisher=sink):
        pass
    assert sink.events[0].command is None


def test_tenant_and_parent_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYN_TENANT_ID", "acme")
    monkeypatch.setenv("DYN_PARENT_SESSION_ID", "boss")
    sink = Sink()
    with tool_call("x", session_id="s", publisher=sink):
        pass
    assert {(event.tenant, event.parent_session_id) for event in sink.events} == {("acme", "boss")}
