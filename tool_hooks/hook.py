# SPDX-License-Identifier: Apache-2.0
"""Put the shim around what runs the tools: a function, or an object that executes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast, overload

from tool_hooks.call import EventSink, ToolCall

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_METHODS = ("execute", "run", "__call__")


@overload
def tool_hook(function: F) -> F: ...
@overload
def tool_hook(
    *,
    tool_class: str | None = None,
    tool_key: str | None = None,
    declared_s: float | None = None,
    timeout_s: float | None = None,
    publisher: EventSink | None = None,
) -> Callable[[F], F]: ...
def tool_hook(
    function: F | None = None,
    *,
    tool_class: str | None = None,
    tool_key: str | None = None,
    declared_s: float | None = None,
    timeout_s: float | None = None,
    publisher: EventSink | None = None,
) -> F | Callable[[F], F]:
    """Decorate a tool, plain or async: every call of it becomes a tool call on the bus.

    ``tool_class`` is the function's name unless given; the other arguments are those of
    :class:`~tool_hooks.call.ToolCall`. The session is the one in force when the tool is called.
    """

    def decorate(tool: F) -> F:
        name = tool_class or str(getattr(tool, "__name__", type(tool).__name__))

        def call(_args: tuple[Any, ...], _kwargs: dict[str, Any]) -> ToolCall:
            return ToolCall(name, tool_key=tool_key, declared_s=declared_s, timeout_s=timeout_s, publisher=publisher)

        return cast("F", _around(tool, call))

    return decorate if function is None else decorate(function)


def wrap(
    executor: T,
    *,
    tool_class: str | None = None,
    session_id: str | None = None,
    publisher: EventSink | None = None,
) -> T:
    """Put the shim around any object with ``execute``, ``run`` or ``__call__``; of several, the first of
    these.

    The object that comes back behaves as the executor: everything but that one method is passed on to it. A
    command line is looked for in the first argument (a string, or a mapping with ``command``), a time limit
    in ``timeout``.

    Raises:
        TypeError: the object has none of the three methods.
    """
    method = next((name for name in _METHODS if callable(getattr(executor, name, None))), None)
    if method is None:
        raise TypeError(f"{type(executor).__name__} has none of {', '.join(_METHODS)}")
    name = tool_class or str(getattr(executor, "__name__", type(executor).__name__))

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> ToolCall:
        return ToolCall(
            name,
            session_id=session_id,
            command=_command(args, kwargs),
            timeout_s=_timeout_s(kwargs),
            publisher=publisher,
        )

    around = _around(getattr(executor, method), call)
    return cast("T", _Wrapped(executor, method, around))


class _Wrapped:
    """Passes everything to the executor but one method."""

    __slots__ = ("_tao_around", "_tao_executor", "_tao_method")

    def __init__(self, executor: Any, method: str, around: Callable[..., Any]) -> None:
        object.__setattr__(self, "_tao_executor", executor)
        object.__setattr__(self, "_tao_method", method)
        object.__setattr__(self, "_tao_around", around)

    def __getattr__(self, name: str) -> Any:
        return self._tao_around if name == self._tao_method else getattr(self._tao_executor, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._tao_executor, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (self._tao_around if self._tao_method == "__call__" else self._tao_executor)(*args, **kwargs)

    def __repr__(self) -> str:
        return f"wrap({self._tao_executor!r})"


def _around(
    tool: Callable[..., Any], make_call: Callable[[tuple[Any, ...], dict[str, Any]], ToolCall]
) -> Callable[..., Any]:
    """A function of the tool's own kind (plain, async, generator, async generator) with a tool call around
    it.
    """
    run = tool if inspect.isroutine(tool) else getattr(tool, "__call__", tool)  # noqa: B004 - its kind is asked for
    around: Callable[..., Any]
    if inspect.iscoroutinefunction(run):

        async def around(*args: Any, **kwargs: Any) -> Any:
            async with make_call(args, kwargs):
                return await tool(*args, **kwargs)

    elif inspect.isasyncgenfunction(run):

        async def around(*args: Any, **kwargs: Any) -> Any:
            async with make_call(args, kwargs):
                async for item in tool(*args, **kwargs):
                    yield item

    elif inspect.isgeneratorfunction(run):

        def around(*args: Any, **kwargs: Any) -> Any:
            with make_call(args, kwargs):
                return (yield from tool(*args, **kwargs))

    else:

        def around(*args: Any, **kwargs: Any) -> Any:
            call = make_call(args, kwargs)
            call.start()
            try:
                result = tool(*args, **kwargs)
            except BaseException as error:
                call.leave(error)
                raise
            # A plain function that hands out an awaitable: the call lasts until that is done.
            if inspect.isawaitable(result):
                return _finish(call, result)
            call.end()
            return result

    return functools.wraps(tool, updated=())(around)


async def _finish(call: ToolCall, result: Any) -> Any:
    try:
        found = await result
    except BaseException as error:
        call.leave(error)
        raise
    call.end()
    return found


def _command(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    for candidate in (kwargs.get("command"), *args[:1]):
        if isinstance(candidate, dict):
            candidate = candidate.get("command")  # noqa: PLW2901 - looks one level into it
        if isinstance(candidate, str):
            return candidate
    return None


def _timeout_s(kwargs: dict[str, Any]) -> float | None:
    timeout = kwargs.get("timeout")
    return float(timeout) if isinstance(timeout, (int, float)) and timeout > 0 else None
