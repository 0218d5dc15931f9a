# SPDX-License-Identifier: Apache-2.0
"""``tao-tool run``: a command as it would run by itself, and the bus hears of it.

Of the command's streams, pipes and sockets are passed on through a pump, for the bars in them; a terminal
on all three streams is passed on through a terminal of the command's own; anything else the command
inherits.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import stat
from collections.abc import Sequence
from typing import NoReturn

from tool_hooks.pump import Flow, Pump, Teller, wait
from tool_hooks.reporter import CallFacts, Reporter
from tool_hooks.signal_watch import SignalWatch

NOT_FOUND = 127
NOT_EXECUTABLE = 126
_CANCELS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGQUIT)


def run(command: Sequence[str], tool_class: str, facts: CallFacts, *, watch: bool = True) -> NoReturn:
    """Run a command and leave with its exit code, or by the signal that ended it. Does not return.

    Without a session, or where no process can be started beside it, the command simply replaces this process.
    """
    if not facts.get("session_id") or not all(_is_open(fd) for fd in (0, 1, 2)):
        execute(command)
    try:
        reporter = Reporter(tool_class, facts)
        signals = SignalWatch()
    except OSError:
        execute(command)
    tell = reporter.progress if watch else None
    if tell is not None and _on_own_terminal():
        from tool_hooks.run_terminal import run_in_terminal

        status = run_in_terminal(command, signals, reporter, tell)
    else:
        status = _run_with_pumps(command, signals, reporter, tell)
    code = os.waitstatus_to_exitcode(status)
    died_of = signal.Signals(-code) if code < 0 else None
    error_type = died_of.name if died_of else f"exit {code}" if code else None
    reporter.end(error_type, cancelled=died_of in _CANCELS)
    signals.close()
    leave_like(status)


def execute(command: Sequence[str]) -> NoReturn:
    """Become the command."""
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(signal.Signals[name], signal.SIG_DFL)
    try:
        os.execvp(command[0], list(command))  # noqa: S606 - no shell is the point
    except OSError as error:
        with contextlib.suppress(OSError):
            os.write(2, f"tao-tool: {command[0]}: {error.strerror}\n".encode())
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)


def leave_like(status: int) -> NoReturn:
    """End as a process ended whose wait status this is: by the same signal, or with the same exit code."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        os.kill(os.getpid(), -code)
        code = 128 - code
    os._exit(code)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _on_own_terminal() -> bool:
    """Whether all three streams are one terminal, we are in its foreground, and keys typed ahead would not be lost."""
    try:
        if not (os.ttyname(0) == os.ttyname(1) == os.ttyname(2) and os.tcgetpgrp(0) == os.getpgrp()):
            return False
    except OSError:
        return False
    from tool_hooks.run_terminal import gives_keys_back

    return gives_keys_back()


def _run_with_pumps(command: Sequence[str], signals: SignalWatch, reporter: Reporter, tell: Teller | None) -> int:
    pumps, streams = _make_pumps(tell)
    pid = os.fork()
    if pid == 0:
        signals.restore_in_child()
        for fd, end in streams.items():
            os.dup2(end, fd)
        execute(command)
    for end in set(streams.values()):
        os.close(end)
    reporter.runs_as(pid)
    status = None
    while status is None or any(pump.flow in (Flow.MOVED, Flow.BLOCKED) for pump in pumps):
        ready = wait(pumps, [signals.fd])
        for number in signals.take() if signals.fd in ready else ():
            if number == signal.SIGCHLD:
                found, code = os.waitpid(pid, os.WNOHANG) if status is None else (0, 0)
                status = code if found else status
            elif not signals.was_for_group(number):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        for pump in pumps:
            pump.run(ready, anyway=status is not None)
    leave_behind(pumps, reporter, signals)
    return status


def _make_pumps(tell: Teller | None) -> tuple[list[Pump], dict[int, int]]:
    """The pumps, and for each of the command's streams that is not inherited the end of a pipe to give it."""
    pumps: list[Pump] = []
    streams: dict[int, int] = {}
    seen: dict[tuple[int, int], int] = {}
    for fd in (1, 2) if tell is not None else ():
        what = os.fstat(fd)
        if not (stat.S_ISFIFO(what.st_mode) or stat.S_ISSOCK(what.st_mode)):
            continue
        # Both streams on one pipe share a pump, or their order would be lost.
        key = (what.st_dev, what.st_ino)
        if key not in seen:
            reading, writing = os.pipe()
            os.set_blocking(reading, False)
            pumps.append(Pump(reading, fd, tell))
            seen[key] = writing
        streams[fd] = seen[key]
    return pumps, streams


def leave_behind(pumps: Sequence[Pump], reporter: Reporter, signals: SignalWatch) -> None:
    """Where a job in the background still holds a stream, leave a process that goes on passing it on."""
    if all(pump.ended for pump in pumps) or os.fork() != 0:
        return
    reporter.leave()
    signals.leave()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    for fd in {0, 1, 2} - {pump.target for pump in pumps}:
        os.close(fd)
    with contextlib.suppress(Exception):
        while not all(pump.ended for pump in pumps):
            ready = wait(pumps, [])
            for pump in pumps:
                pump.run(ready)
    os._exit(0)
