# SPDX-License-Identifier: Apache-2.0
"""Passes signals on to a command, each exactly once.

A signal that a terminal or ``killpg`` sends to the whole process group reaches the command by itself; one
sent to ``tao-tool`` alone must be passed on. The two look alike to the receiver, so a canary process in the
same group tells them apart: what it hears too was sent to the group.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import types

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGWINCH", "SIGCONT")
FORWARDED = tuple(signal.Signals[name] for name in _NAMES)
CANARY_WAIT_S = 0.03


class SignalWatch:
    """Catches signals while a command runs. ``fd`` becomes readable when :meth:`take` has something to give.

    Signals that were ignored from the start (``nohup``, a background job) stay ignored, here and in the
    command.
    """

    def __init__(self) -> None:
        self.before = {number: signal.getsignal(number) for number in (*FORWARDED, signal.SIGCHLD)}
        caught = [n for n, how in self.before.items() if how is not signal.SIG_IGN or n == signal.SIGCHLD]
        self._canary, self._heard, self._lifeline = _start_canary([n for n in caught if n != signal.SIGCHLD])
        self.fd, self._wake = os.pipe()
        for end in (self.fd, self._wake, self._heard):
            os.set_blocking(end, False)
        self._group: list[int] = []
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number in caught:
            signal.signal(number, _note)

    def take(self) -> list[int]:
        """The signals that came since the last call."""
        with contextlib.suppress(BlockingIOError):
            return list(os.read(self.fd, 4096))
        return []

    def was_for_group(self, number: int) -> bool:
        """Whether the whole process group got this signal, and so the command by itself."""
        if number not in self._group:
            select.select([self._heard], [], [], CANARY_WAIT_S)
            with contextlib.suppress(BlockingIOError):
                self._group.extend(os.read(self._heard, 4096))
        if number in self._group:
            self._group.remove(number)
            return True
        return False

    def restore_in_child(self) -> None:
        """Give a forked child the signal handling that was found at the start, and Python's own SIGPIPE
        undone.
        """
        signal.set_wakeup_fd(-1)
        for number, how in self.before.items():
            signal.signal(number, signal.SIG_IGN if how is signal.SIG_IGN else signal.SIG_DFL)
        for name in ("SIGPIPE", "SIGXFSZ"):
            signal.signal(signal.Signals[name], signal.SIG_DFL)

    def leave(self) -> None:
        """Give a forked child that lives on the signal handling of the start, and the canary up to its
        parent.
        """
        self.restore_in_child()
        for fd in (self.fd, self._wake, self._heard, self._lifeline):
            os.close(fd)

    def close(self) -> None:
        """Let the canary go."""
        with contextlib.suppress(OSError):
            os.close(self._lifeline)
            os.waitpid(self._canary, 0)


def _note(_number: int, _frame: types.FrameType | None) -> None:
    """Nothing to do: the wake-up file descriptor has the number already."""


def _start_canary(caught: list[signal.Signals]) -> tuple[int, int, int]:
    """Fork it; gives its pid, the pipe it speaks on, and the pipe whose closing ends it."""
    heard, speak = os.pipe()
    life, lifeline = os.pipe()
    # Its handlers must stand before the first signal can come.
    signal.pthread_sigmask(signal.SIG_BLOCK, caught)
    pid = os.fork()
    if pid == 0:
        try:
            _be_canary(caught, speak, life)
        finally:
            os._exit(0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, caught)
    os.close(speak)
    os.close(life)
    return pid, heard, lifeline


def _be_canary(caught: list[signal.Signals], speak: int, life: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    for fd in range(3, max(speak, life, null) + 64):
        if fd not in (speak, life):
            with contextlib.suppress(OSError):
                os.close(fd)
    os.set_blocking(speak, False)
    signal.set_wakeup_fd(speak, warn_on_full_buffer=False)
    for number in caught:
        signal.signal(number, _note)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, caught)
    while not select.select([life], [], [])[0]:
        pass
