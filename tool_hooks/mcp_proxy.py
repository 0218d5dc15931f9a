# SPDX-License-Identifier: Apache-2.0
"""``tao-tool mcp``: stands between an MCP client and a server on stdio, and changes nothing.

It sees ``tools/call``, the answers, and the progress that MCP itself reports (the client must have asked
for it with a ``progressToken``). Source: Model Context Protocol, revision 2025-06-18, transports (stdio)
and progress.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from tool_hooks.call import EventSink, ToolCall
from tool_hooks.pump import Flow, Pump, wait
from tool_hooks.run_command import execute
from tool_hooks.signal_watch import SignalWatch

MAX_CALLS = 1024
MAX_LINE = 8 << 20
SESSION_META = "dynamo/session_id"
_FLUSH_S = 0.3

_Id: TypeAlias = int | str


class _Params(msgspec.Struct):
    name: str | None = None
    arguments: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)
    request_id: _Id | None = msgspec.field(name="requestId", default=None)
    progress_token: _Id | None = msgspec.field(name="progressToken", default=None)
    progress: float | None = None
    total: float | None = None


class _Result(msgspec.Struct):
    is_error: bool = msgspec.field(name="isError", default=False)


class _Message(msgspec.Struct):
    id: _Id | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


_decode = msgspec.json.Decoder(_Message | list[_Message]).decode
_decode_params = msgspec.json.Decoder(_Params).decode
_decode_result = msgspec.json.Decoder(_Result).decode


class McpWatch:
    """Follows the calls of one client, from the lines that pass in either direction. Pure but for the sink."""

    def __init__(self, session_id: str | None = None, publisher: EventSink | None = None) -> None:
        self._session_id = session_id
        self._publisher = publisher
        self._calls: dict[_Id, ToolCall] = {}
        self._tokens: dict[_Id, ToolCall] = {}

    def from_client(self, message: _Message) -> None:
        """See a request or a notification of the client."""
        if message.method == "tools/call" and message.id is not None:
            params = _decode_params(message.params)
            meta = params.meta or {}
            session = meta.get(SESSION_META) or self._session_id
            command = (params.arguments or {}).get("command")
            call = ToolCall(
                params.name or "mcp",
                session_id=session if isinstance(session, str) else None,
                tool_key=f"mcp {params.name}",
                command=command if isinstance(command, str) else None,
                publisher=self._publisher,
            )
            call.start()
            _put(self._calls, message.id, call)
            token = meta.get("progressToken")
            if isinstance(token, (int, str)):
                _put(self._tokens, token, call)
        elif message.method == "notifications/cancelled":
            request_id = _decode_params(message.params).request_id
            if request_id is not None:
                self._end(request_id, error_type="Cancelled", cancelled=True)

    def from_server(self, message: _Message) -> None:
        """See an answer or a notification of the server."""
        if message.method == "notifications/progress":
            params = _decode_params(message.params)
            call = None if params.progress_token is None else self._tokens.get(params.progress_token)
            if call is not None:
                done, total = params.progress, params.total
                call.progress(done / total if done is not None and total else None)
        elif message.method is None and message.id is not None and message.id in self._calls:
            if bytes(message.error):
                self._end(message.id, error_type="McpError")
            else:
                failed = bool(bytes(message.result)) and _decode_result(message.result).is_error
                self._end(message.id, error_type="isError" if failed else None)

    def server_left(self) -> None:
        """The server is gone: what it had not answered never will be."""
        for request_id in list(self._calls):
            self._end(request_id, error_type="ServerExit", cancelled=True)

    def _end(self, request_id: _Id, *, error_type: str | None, cancelled: bool = False) -> None:
        call = self._calls.pop(request_id, None)
        if call is not None:
            call.end(error_type=error_type, cancelled=cancelled)
            for token in [token for token, other in self._tokens.items() if other is call]:
                del self._tokens[token]


class LineTap:
    """Cuts a stream into lines and gives each JSON-RPC message in them to ``see``; what is no message is
    passed over.
    """

    def __init__(self, see: Callable[[_Message], None]) -> None:
        self._see = see
        self._rest = b""

    def __call__(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE:
            self._rest = b""
        for line in lines:
            if line.strip():
                with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    found = _decode(line)
                    for message in found if isinstance(found, list) else [found]:
                        self._see(message)


def proxy(command: Sequence[str], session_id: str | None = None) -> int:
    """Start the server and pass everything through until it ends; gives its exit code (128 + n for a
    signal).
    """
    signals = SignalWatch()
    to_server, server_in = os.pipe()
    server_out, from_server = os.pipe()
    pid = os.fork()
    if pid == 0:
        signals.restore_in_child()
        os.dup2(to_server, 0)
        os.dup2(from_server, 1)
        execute(command)
    os.close(to_server)
    os.close(from_server)
    watch = McpWatch(session_id)
    sending = Pump(os.dup(0), server_in, None, tap=LineTap(watch.from_client))
    answering = Pump(server_out, 1, None, tap=LineTap(watch.from_server))
    status: int | None = None
    while status is None or answering.flow in (Flow.MOVED, Flow.BLOCKED):
        ready = wait([p for p in (sending, answering) if not p.ended], [signals.fd])
        for number in signals.take() if signals.fd in ready else ():
            if number == signal.SIGCHLD:
                found, code = os.waitpid(pid, os.WNOHANG) if status is None else (0, 0)
                status = code if found else status
            elif not signals.was_for_group(number):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        was_open = not sending.ended
        sending.run(ready)
        if sending.ended and was_open:
            os.close(server_in)
        answering.run(ready, anyway=status is not None)
    watch.server_left()
    from tool_hooks.publisher import default_publisher

    default_publisher().close(_FLUSH_S)
    signals.close()
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _put(table: dict[_Id, ToolCall], key: _Id, call: ToolCall) -> None:
    """Keep a call; past the limit the oldest is forgotten (its end will then be the reader's guess)."""
    while len(table) >= MAX_CALLS:
        del table[next(iter(table))]
    table[key] = call
