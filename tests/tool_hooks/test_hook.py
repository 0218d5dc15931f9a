# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.tool_hooks.test_call import Sink
from tool_hooks import session, tool_hook, wrap


def test_a_decorated_function_is_a_tool_call() -> None:
    sink = Sink()

    @tool_hook(publisher=sink, declared_s=2.0)
    def search(query: str) -> str:
        """Find it."""
        return query.upper()

    with session("s"):
        assert search("a") == "A"
    assert search.__doc__ == "Find it."
    assert [(e.kind, e.tool_class) for e in sink.events] == [("tool_start", "search"), ("tool_end", "search")]
    assert sink.events[0].declared_s == 2.0


def test_the_bare_decorator_keeps_the_function_as_it_is() -> None:
    @tool_hook
    def double(n: int) -> int:
        return 2 * n

    assert double(4) == 8
    assert double.__name__ == "double"


async def test_async_functions_and_generators() -> None:
    sink = Sink()
    hook = tool_hook(publisher=sink)

    @hook
    async def fetch() -> int:
        assert sink.kinds == ["tool_start"]
        return 1

    @hook
    def lines() -> Iterator[int]:
        yield from (1, 2)

    @hook
    async def stream() -> AsyncIterator[int]:
        yield 1
        assert sink.kinds[-1] == "tool_start"
        yield 2

    with session("s"):
        assert await fetch() == 1
        assert list(lines()) == [1, 2]
        assert [n async for n in stream()] == [1, 2]
    assert sink.kinds == ["tool_start", "tool_end"] * 3


async def test_a_plain_function_that_returns_an_awaitable_lasts_until_it_is_done() -> None:
    sink = Sink()

    async def later() -> int:
        return 7

    class Executor:
        def execute(self, command: str) -> Any:
            return later()

    with session("s"):
        pending = wrap(Executor(), publisher=sink).execute("ls")
        assert sink.kinds == ["tool_start"]
        assert await pending == 7
    assert sink.kinds == ["tool_start", "tool_end"]


class Environment:
    """Like a harness's: state, other methods, and one that executes."""

    def __init__(self) -> None:
        self.config = {"cwd": "/"}

    def execute(self, command: Any, cwd: str = "", *, timeout: int | None = None) -> str:
        return f"ran {command} in {self.config['cwd']}"

    def describe(self) -> str:
        return "environment"


def test_wrap_passes_everything_on_but_the_one_method() -> None:
    sink = Sink()
    inner = Environment()
    outer = wrap(inner, tool_class="bash", session_id="s", publisher=sink)
    assert outer.execute({"command": "ls -l"}, timeout=30) == "ran {'command': 'ls -l'} in /"
    assert outer.describe() == "environment"
    outer.config = {"cwd": "/tmp"}
    assert inner.config == {"cwd": "/tmp"}
    assert (sink.events[0].command, sink.events[0].timeout_s, sink.events[0].tool_class) == ("ls -l", 30.0, "bash")


def test_wrap_takes_run_and_callables() -> None:
    sink = Sink()

    class Tool:
        def run(self, text: str) -> str:
            return text

    def plain(text: str) -> str:
        return text

    class Caller:
        def __call__(self, text: str) -> str:
            return text

    for executor, call in ((Tool(), "run"), (plain, "__call__"), (Caller(), "__call__")):
        wrapped: Any = wrap(executor, session_id="s", publisher=sink)
        assert (wrapped("x") if call == "__call__" else wrapped.run("x")) == "x"
    assert [e.tool_class for e in sink.events[::2]] == ["Tool", "plain", "Caller"]


async def test_wrap_knows_an_async_callable_object() -> None:
    sink = Sink()

    class Caller:
        async def __call__(self, text: str) -> str:
            assert sink.kinds == ["tool_start"]
            return text

    assert await wrap(Caller(), session_id="s", publisher=sink)("x") == "x"
    assert sink.kinds == ["tool_start", "tool_end"]


def test_an_object_that_executes_nothing_is_refused() -> None:
    with pytest.raises(TypeError, match="execute, run"):
        wrap(object())
