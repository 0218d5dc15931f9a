# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.tool_hooks.bus import Listener, Server, environment
from tests.tool_hooks.test_call import Sink
from tests.tool_hooks.test_run import ended
from tool_hooks.mcp_proxy import MAX_CALLS, LineTap, McpWatch


def message(**fields: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **fields}).encode() + b"\n"


def call(number: int, token: str | None = None, **meta: Any) -> bytes:
    facts = {**({} if token is None else {"progressToken": token}), **meta}
    return message(id=number, method="tools/call", params={"name": "grep", "arguments": {"q": 1}, "_meta": facts})


class Both:
    """A watch between two line taps, and what it told."""

    def __init__(self, session_id: str | None = "s") -> None:
        self.sink = Sink()
        self.watch = McpWatch(session_id, self.sink)
        self.client = LineTap(self.watch.from_client)
        self.server = LineTap(self.watch.from_server)


def test_a_call_its_progress_and_its_answer() -> None:
    both = Both()
    both.client(message(id=1, method="initialize", params={}) + call(2, "p")[:20])
    both.client(call(2, "p")[20:])
    both.server(message(id=1, result={}))
    both.server(message(method="notifications/progress", params={"progressToken": "p", "progress": 1, "total": 4}))
    both.server(message(id=2, result={"content": []}))
    assert [(e.kind, e.fraction, e.status) for e in both.sink.events] == [
        ("tool_start", None, "running"),
        ("tool_progress", 0.25, None),
        ("tool_end", None, "succeeded"),
    ]
    assert {e.tool_class for e in both.sink.events} == {"grep"}


@pytest.mark.parametrize(
    ("answer", "error_type"),
    [({"result": {"isError": True}}, "isError"), ({"error": {"code": -1, "message": "no"}}, "McpError")],
)
def test_errors_are_told(answer: dict[str, Any], error_type: str) -> None:
    both = Both()
    both.client(call(1))
    both.server(message(id=1, **answer))
    assert (both.sink.events[-1].kind, both.sink.events[-1].error_type) == ("tool_error", error_type)


def test_a_cancelled_call_and_one_that_the_server_took_along() -> None:
    both = Both()
    both.client(call(1) + call(2))
    both.client(message(method="notifications/cancelled", params={"requestId": 1}))
    both.watch.server_left()
    assert [(e.kind, e.status, e.error_type) for e in both.sink.events[2:]] == [
        ("tool_error", "cancelled", "Cancelled"),
        ("tool_error", "cancelled", "ServerExit"),
    ]


def test_progress_without_a_total_is_a_heartbeat_and_of_a_stranger_nothing() -> None:
    both = Both()
    both.client(call(1, "p"))
    for token in ("p", "q"):
        both.server(message(method="notifications/progress", params={"progressToken": token, "progress": 7}))
    assert [(e.kind, e.fraction) for e in both.sink.events[1:]] == [("tool_progress", None)]


def test_a_session_of_the_requests_own() -> None:
    both = Both(session_id=None)
    both.client(call(1, **{"dynamo/session_id": "theirs"}))
    assert both.sink.events[0].session_id == "theirs"


def test_garbage_batches_and_answers_to_nobody_pass() -> None:
    both = Both()
    for tap in (both.client, both.server):
        tap(b"\n{not json}\n\xff\xfe\n[1,2]\n42\n" + message(id=99, result={}) + b'{"method":"tools/call","id":3}\n')
    both.client(b"[" + call(4).strip() + b"," + call(5).strip() + b"]\n")
    assert len(both.sink.events) == 2


def test_memory_is_bounded() -> None:
    both = Both()
    for number in range(2 * MAX_CALLS):
        both.client(call(number, f"p{number}"))
    both.client(b"x" * (9 << 20))
    assert len(both.watch._calls) == MAX_CALLS
    assert len(both.client._rest) == 0


ECHO_SERVER = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {"got": request}}), flush=True)
print("bye", file=sys.stderr)
sys.exit(6)
"""


@pytest.mark.nats
def test_the_proxy_changes_nothing_and_tells_the_bus(server: Server, listener: Listener) -> None:
    sent = call(1) + message(id=2, method="ping", params={"é": "x" * 300_000})
    env = environment(server)
    command = [sys.executable, "-c", ECHO_SERVER]
    bare = subprocess.run(command, env=env, input=sent, capture_output=True, timeout=60, check=False)
    proxy = [sys.executable, "-m", "tool_hooks.cli", "mcp", "--session", "m1", "--", *command]
    ours = subprocess.run(proxy, env=env, input=sent, capture_output=True, timeout=60, check=False)
    assert (ours.returncode, ours.stdout, ours.stderr) == (bare.returncode, bare.stdout, bare.stderr)
    assert [(e.kind, e.session_id) for e in listener.wait_for(ended)] == [("tool_start", "m1"), ("tool_end", "m1")]


@pytest.mark.nats
def test_a_signal_to_the_proxy_reaches_the_server(server: Server) -> None:
    script = (
        "import signal, sys, time; signal.signal(15, lambda n, f: sys.exit(9)); print('up', flush=True); time.sleep(60)"
    )
    proxy = [sys.executable, "-m", "tool_hooks.cli", "mcp", "--", sys.executable, "-c", script]
    with subprocess.Popen(
        proxy, env=environment(server), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        time.sleep(0.1)
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 9
