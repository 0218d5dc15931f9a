# SPDX-License-Identifier: Apache-2.0
"""The guard: a tiny process between the supervisor and each child, so that nothing is ever left running.

    guard.py REPORT_FD LIFE_FD GRACE_S -- command …

It starts the command in a process group of its own, writes the command's pid to ``REPORT_FD``, and waits. Whatever
ends first ends the rest:

- the command exits or is killed: what it left behind (its group, and orphans that the kernel hands to the guard,
  which is their subreaper) is ended too, and the guard exits with the command's code (128 + n for signal n);
- the supervisor asks (SIGTERM) or is gone, even by SIGKILL (``LIFE_FD``, the read end of a pipe that only the
  supervisor holds open, reads end-of-file): the group gets SIGTERM, and SIGKILL after ``GRACE_S`` seconds;
- the guard is killed: the kernel kills the command (PR_SET_PDEATHSIG), and the supervisor its group.

A parent-death signal alone would not do: it reaches no grandchildren, and it fires when the *thread* that started
the process ends. This file runs as ``python -I -S guard.py`` and imports the standard library only, so it is there
in 20 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from pathlib import Path
from types import FrameType

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LEFTOVER_GRACE_S = 0.5
PARENT_CHECK_S = 2.0


def _prctl(option: int, value: int) -> None:
    """``prctl(2)`` where there is one; elsewhere the pipe and the process group must do."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _start(command: list[str]) -> int:
    """Fork the command into a process group of its own; returns its pid."""
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):  # whichever of the two comes first makes the group
            os.setpgid(pid, pid)
        return pid
    try:
        os.setpgid(0, 0)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    os._exit(127)


def _orphans() -> list[int]:
    """The living processes whose parent is now the guard (Linux; elsewhere none are seen)."""
    try:
        tasks = Path("/proc/self/task").iterdir()
        return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
    except OSError:
        return []


def _signal(pid: int, number: int, *, group: bool) -> bool:
    """Send a signal; False where nobody is left to take it."""
    try:
        if group:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _reap(command_pid: int) -> int | None:
    """Collect all that have ended; the command's exit code if it is among them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == command_pid:
            code = os.waitstatus_to_exitcode(status)


def _sweep(command_pid: int) -> None:
    """End what the command left behind: its group and the orphans, asked first, then killed."""
    kill_at = time.monotonic() + LEFTOVER_GRACE_S
    number = signal.SIGTERM
    for _ in range(200):
        _reap(command_pid)
        alive = _signal(command_pid, number, group=True)
        for pid in _orphans():
            alive = _signal(pid, number, group=False) or alive
        if not alive:
            return
        if time.monotonic() >= kill_at:
            number = signal.SIGKILL
        time.sleep(0.02)


def main() -> int:
    """Run the command under guard; returns the exit code to end with."""
    report_fd, life_fd, grace_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    command = sys.argv[5:]
    supervisor = os.getppid()
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    asked: list[int] = []

    def ask(number: int, _frame: FrameType | None) -> None:
        asked.append(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, ask)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)

    command_pid = _start(command)
    os.write(report_fd, f"{command_pid}\n".encode())
    os.close(report_fd)

    kill_at = float("inf")
    watched = [wake_read, life_fd]
    while True:
        ready, _, _ = select.select(watched, [], [], min(PARENT_CHECK_S, max(0.0, kill_at - time.monotonic())))
        if wake_read in ready:
            os.read(wake_read, 512)
        orphaned = life_fd in ready or os.getppid() != supervisor
        if life_fd in ready:
            watched = [wake_read]
        code = _reap(command_pid)
        if code is not None:
            break
        if (asked or orphaned) and kill_at == float("inf"):
            _signal(command_pid, signal.SIGTERM, group=True)
            kill_at = time.monotonic() + grace_s
        if time.monotonic() >= kill_at:
            _signal(command_pid, signal.SIGKILL, group=True)
            kill_at = time.monotonic() + 1.0
    _sweep(command_pid)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
