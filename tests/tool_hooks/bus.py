# SPDX-License-Identifier: Apache-2.0
"""A nats-server for tests, and a subscriber that keeps what it hears."""

from __future__ import annotations

import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tool_hooks.events import Frame, ToolEvent, decode_frame

_numbers = itertools.count()
child_namespace = "test"
NATS_SERVER = Path(sys.executable).parent / "nats-server"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """One nats-server on a loopback port that stays the same over restarts."""

    def __init__(self, *options: str) -> None:
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Server:
        self._process = subprocess.Popen(
            [str(NATS_SERVER), "-a", "127.0.0.1", "-p", str(self.port), *self._options],
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + 10.0
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.02)
        raise AssertionError("nats-server did not start")

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)


class Listener:
    """Subscribes to tool events with a bare socket; ``frames`` grows as they come.

    Hears the namespaces in which a test's own process publishes, and that of the children it starts: what
    children of an earlier test say late is not heard.
    """

    def __init__(self, port: int, connect: str = "{}") -> None:
        self.frames: list[Frame] = []
        self.subjects: list[str] = []
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._file = self._socket.makefile("rb")
        namespaces = ("dynamo", "tao", child_namespace)
        heard = "".join(f"SUB namespace.{name}.agent-tool-events {n}\r\n" for n, name in enumerate(namespaces))
        self._socket.sendall(f"CONNECT {connect}\r\n{heard}PING\r\n".encode())
        while self._file.readline() != b"PONG\r\n":
            pass
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        try:
            for line in self._file:
                if line.startswith(b"PING"):
                    self._socket.sendall(b"PONG\r\n")
                match = re.match(rb"MSG (\S+) \S+ (\d+)\r\n", line)
                if match:
                    data = self._file.read(int(match[2]))
                    self._file.read(2)
                    self.subjects.append(match[1].decode())
                    self.frames.append(decode_frame(data))
        except OSError:
            return

    @property
    def events(self) -> list[ToolEvent]:
        return [frame.event for frame in self.frames]

    def wait_for(self, what: Callable[[list[ToolEvent]], bool], timeout: float = 60.0) -> list[ToolEvent]:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if what(self.events):
                return self.events
            time.sleep(0.01)
        raise AssertionError(f"not heard within {timeout} s; heard {self.events}")

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._file.close()
        self._socket.close()


def environment(server: Server | None, **more: str) -> dict[str, str]:
    """An environment for a child: no bus but ours, and a namespace that is this test's alone."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("NATS_", "DYN_"))}
    if server is not None:
        env |= {"NATS_SERVER": server.url, "DYN_NAMESPACE": child_namespace}
    return env | more


def new_child_namespace() -> None:
    """From now on children publish elsewhere than those before."""
    global child_namespace  # noqa: PLW0603 - the test that runs
    child_namespace = f"test-{next(_numbers)}"
