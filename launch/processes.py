# SPDX-License-Identifier: Apache-2.0
"""One child process under its guard, and the ports and pids around it."""

from __future__ import annotations

import contextlib
import os
import random
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launch import guard
from launch.health import Probe
from tao_dynamo.errors import StackError, UsageError

# Below the range from which the kernel takes the ports of outgoing connections, so that no client of another
# process can take the port between our looking and the child's binding.
_PORTS = range(20_000, 32_000)
_REPORT_S = 15.0


def port_is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could bind the TCP port on that address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(taken: set[int] | None = None) -> int:
    """A TCP port that nobody listens on and that is not in ``taken``; adds it there."""
    taken = set() if taken is None else taken
    for _ in range(200):
        port = random.SystemRandom().choice(_PORTS)
        if port not in taken and port_is_free(port, "0.0.0.0"):  # noqa: S104
            taken.add(port)
            return port
    raise StackError("no free TCP port found between 20000 and 31999 after 200 tries")


def require_free_port(flag: str, host: str, port: int) -> None:
    """Refuse a port that somebody listens on, naming the flag to change."""
    if not port_is_free(port, host):
        raise UsageError(flag, port, f"a port that is free on {host}; this one is in use")


@dataclass(frozen=True)
class Command:
    """What to run as one child.

    Attributes:
        name: unique in the graph, such as ``worker-0``; also the log file's name.
        argv: program and arguments.
        env: variables on top of the supervisor's own; a value of None removes one.
        ready: what must hold before the child counts as healthy (see ``launch.health``).
        module: the Python module that must be there for it, if it is a Python program.
        shows: what to say about it once it is healthy, such as its URL.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str | None] = field(default_factory=dict)
    ready: Probe | None = None
    shows: str = ""
    module: str = ""


class Child:
    """A running command under its guard.

    ``pid`` is the command's own (kill that one to see what a crash does), ``guard_pid`` its guard's.
    """

    def __init__(self, command: Command, log_path: Path, *, grace_s: float = 10.0) -> None:
        self.name = command.name
        self.log_path = log_path
        report_read, report_write = os.pipe()
        # The write end stays open in this process alone and is never inherited: its end is our end.
        life_read, self._life = os.pipe()
        env = dict(os.environ)
        for key, value in command.env.items():
            if value is None:
                env.pop(key, None)
            else:
                env[key] = value
        guarded = [sys.executable, "-I", "-S", str(Path(guard.__file__)), str(report_write), str(life_read)]
        guarded += [str(grace_s), "--", *command.argv]
        self._ended = threading.Event()
        self.returncode: int | None = None
        try:
            with log_path.open("ab") as log:
                self._process = subprocess.Popen(
                    guarded,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=env,
                    pass_fds=(report_write, life_read),
                    start_new_session=True,
                )
        except BaseException:
            os.close(self._life)
            os.close(report_read)
            raise
        finally:
            os.close(report_write)
            os.close(life_read)
        self.guard_pid = self._process.pid
        self.pid = _read_pid(report_read, self.name)
        threading.Thread(target=self._wait, name=f"wait-{self.name}", daemon=True).start()

    def _wait(self) -> None:
        code = self._process.wait()
        # If the guard itself was killed, the kernel has killed the command but not what the command had started.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        os.close(self._life)
        self.returncode = code
        self._ended.set()

    @property
    def alive(self) -> bool:
        """Whether the guard, and so the command or what it left, still runs."""
        return not self._ended.is_set()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The exit code (128 + n for signal n), or None if it still runs after ``timeout_s`` seconds."""
        self._ended.wait(timeout_s)
        return self.returncode

    def send(self, number: int) -> None:
        """Send a signal to the command itself, as an operator or a fault would."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def ask_to_stop(self) -> None:
        """Ask the guard to end the command and all it started; returns at once."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the command, all of its group and the guard now."""
        if self.alive:
            for group in (self.pid, self.guard_pid):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, signal.SIGKILL)
            self._ended.wait(5.0)


def _read_pid(report_fd: int, name: str) -> int:
    """The command's pid as the guard reports it."""
    try:
        ready, _, _ = select.select([report_fd], [], [], _REPORT_S)
        text = os.read(report_fd, 32).strip() if ready else b""
    finally:
        os.close(report_fd)
    if not text:
        raise StackError(f"{name}: its guard did not start within {_REPORT_S:g} s")
    return int(text)


def exit_words(code: int | None) -> str:
    """An exit code in words: ``exit code 2``, ``killed by SIGKILL``."""
    if code is None:
        return "still running"
    if code > 128:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(code - 128).name}"
    return f"exit code {code}"


def shell_words(argv: Sequence[str]) -> str:
    """A command line that can be pasted into a shell."""
    return shlex.join(argv)
