# SPDX-License-Identifier: Apache-2.0
"""A process beside a command that tells the bus about it, so that neither the bus nor Python's imports
delay it.

It has a session of its own and none of the command's streams. It hears over a pipe; when the pipe closes
without an end, ``tao-tool`` was killed: then it kills the command as well, as would have happened without
``tao-tool``, and reports the call as cancelled.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import TYPE_CHECKING, TypedDict

from tool_hooks.bars import Progress

if TYPE_CHECKING:
    from tool_hooks.call import ToolCall

EXIT_WAIT_S = 0.3
_FLUSH_S = 1.0
_LAST_WORDS_S = 10


class CallFacts(TypedDict, total=False):
    """What is known of the call when it starts: arguments of :class:`~tool_hooks.call.ToolCall`."""

    session_id: str | None
    tool_call_id: str | None
    tool_key: str | None
    command: str | None
    declared_s: float | None
    timeout_s: float | None
    tenant: str | None
    parent_session_id: str | None


class Reporter:
    """The command's side of the pipe. No method raises, and only ``end`` waits: at most 0.3 s."""

    def __init__(self, tool_class: str, facts: CallFacts) -> None:
        reading, self._writing = os.pipe()
        started = time.monotonic()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.setsid()
                _keep_only(reading)
                _report(reading, tool_class, facts, started)
            finally:
                os._exit(0)
        os.close(reading)
        os.set_blocking(self._writing, False)

    def runs_as(self, pid: int) -> None:
        """Name the command's process."""
        self._say(f"c {pid}")

    def progress(self, progress: Progress) -> None:
        """Pass on what a bar says."""
        fraction, remaining_s = progress
        self._say(f"p {'' if fraction is None else fraction} {'' if remaining_s is None else remaining_s}")

    def end(self, error_type: str | None, *, cancelled: bool) -> None:
        """Say that the command is over, and see the reporter off."""
        self._say(f"e {time.monotonic()} {int(cancelled)} {error_type or ''}")
        self.leave()
        deadline = time.monotonic() + EXIT_WAIT_S
        pause = 0.0005
        while not self._is_gone():
            if time.monotonic() > deadline:
                return  # a loaded host or a slow bus: it finishes by itself, within its own limit
            time.sleep(pause)
            pause = min(0.01, pause * 1.5)

    def leave(self) -> None:
        """Let go of the pipe, as a forked copy of the command's side must."""
        with contextlib.suppress(OSError):
            os.close(self._writing)

    def _is_gone(self) -> bool:
        try:
            return os.waitpid(self._pid, os.WNOHANG)[0] != 0
        except ChildProcessError:
            return True

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._writing, line.encode() + b"\n")


def _keep_only(fd: int) -> None:
    """Let go of every other file: holding the command's streams would keep their readers waiting."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    low, high = 3, os.sysconf("SC_OPEN_MAX")
    os.closerange(low, fd)
    os.closerange(fd + 1, min(high, 65536))


def _report(reading: int, tool_class: str, facts: CallFacts, started: float) -> None:
    from tool_hooks.call import ToolCall
    from tool_hooks.publisher import Publisher

    publisher = Publisher(timeout_s=1.0)
    call = ToolCall(tool_class, **facts, publisher=publisher)
    call.start(at=started)
    command_pid = 0
    buffer = b""
    while True:
        select.select([reading], [], [])
        chunk = os.read(reading, 65536)
        if not chunk:
            signal.alarm(_LAST_WORDS_S)
            if command_pid:
                with contextlib.suppress(OSError):
                    os.kill(command_pid, signal.SIGKILL)
            call.end(error_type="Killed", cancelled=True)
            publisher.close(_FLUSH_S)
            return
        buffer += chunk
        *lines, buffer = buffer.split(b"\n")
        newest = None
        for line in lines:
            verb, _, rest = line.decode().partition(" ")
            if verb == "p":
                newest = rest  # of several read at once, only the last says how far the command is
            elif verb == "c":
                command_pid = int(rest)
            else:
                _tell(call, newest)
                signal.alarm(_LAST_WORDS_S)
                at, cancelled, error_type = rest.split(" ", 2)
                call.end(error_type=error_type or None, cancelled=cancelled == "1", at=float(at))
                publisher.close(_FLUSH_S)
                return
        _tell(call, newest)


def _tell(call: ToolCall, progress: str | None) -> None:
    if progress is not None:
        fraction, _, remaining = progress.partition(" ")
        call.progress(float(fraction) if fraction else None, remaining_s=float(remaining) if remaining else None)
