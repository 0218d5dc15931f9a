# SPDX-License-Identifier: Apache-2.0
"""A command on a terminal of its own, joined to ours: what it prints can be seen, and nothing else is
different.

Our terminal goes raw, so that keys reach the command's terminal as they are and make their signals there. A
monitor process leads the command's session; were the command itself the leader, the kernel would not let
Ctrl-Z stop it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import termios
import tty
from collections.abc import Sequence
from pathlib import Path

from tool_hooks.pump import Flow, Pump, Teller, wait
from tool_hooks.reporter import Reporter
from tool_hooks.signal_watch import SignalWatch

_MESSAGE = struct.Struct("=ci")
_QUIET_MS = 30
_STDIN_CHUNK = 4096
_KEYS_KEPT = 4096
_TIOCSTI_SWITCH = Path("/proc/sys/dev/tty/legacy_tiocsti")


def gives_keys_back() -> bool:
    """Whether keys typed ahead while a command runs can be handed to the shell afterwards (TIOCSTI)."""
    try:
        return _TIOCSTI_SWITCH.read_text().strip() == "1" or os.geteuid() == 0
    except OSError:  # before Linux 6.2 there was no switch, and it was allowed
        return True


def run_in_terminal(command: Sequence[str], signals: SignalWatch, reporter: Reporter, tell: Teller) -> int:
    """Run it to its end; gives its wait status."""
    return _Terminal(command, signals, reporter, tell).serve()


class _Terminal:
    def __init__(self, command: Sequence[str], signals: SignalWatch, reporter: Reporter, tell: Teller) -> None:
        self._signals = signals
        self._reporter = reporter
        self._before = termios.tcgetattr(0)
        self._master, slave = os.openpty()
        termios.tcsetattr(slave, termios.TCSANOW, self._before)
        self._copy_size()
        self._status, status_end = os.pipe()
        self._life, life_end = os.pipe()
        self._monitor = os.fork()
        if self._monitor == 0:
            for fd in (self._master, self._status, life_end):
                os.close(fd)
            reporter.leave()
            _monitor(command, signals, slave, status_end, self._life)
        for fd in (status_end, self._life):
            os.close(fd)
        self._slave = slave
        self._lifeline = life_end
        os.set_blocking(self._master, False)
        self._command = 0
        self._typed = b""
        self._reads_keys = True
        self._pump = Pump(os.dup(self._master), 1, tell, can_splice=False)

    def serve(self) -> int:
        status: int | None = None
        self._go_raw()
        try:
            while status is None:
                fds = [self._signals.fd, self._status]
                if self._reads_keys and not self._typed:
                    fds.append(0)
                ready = wait([self._pump], fds)
                if self._status in ready:
                    status = self._hear()
                    if status is not None:
                        break
                for number in self._signals.take() if self._signals.fd in ready else ():
                    self._pass_on(number)
                if 0 in ready:
                    self._read_keys()
                self._send_keys()
                self._pump.run(ready)
            self._give_keys_back()
            self._drain()
            return status
        finally:
            self._leave_terminal()
            self._leave_monitor()

    def _hear(self) -> int | None:
        message = os.read(self._status, _MESSAGE.size)
        if len(message) < _MESSAGE.size:  # the monitor was killed, and the command with it
            return int(signal.SIGKILL)
        verb, value = _MESSAGE.unpack(message)
        if verb == b"c":
            self._command = value
            self._reporter.runs_as(value)
        elif verb == b"t":
            self._stop(value)
        else:
            return int(value)
        return None

    def _pass_on(self, number: int) -> None:
        for_group = self._signals.was_for_group(number) if number != signal.SIGCHLD else False
        if number == signal.SIGWINCH:
            self._copy_size()
        elif number == signal.SIGCONT:
            self._resume()
        elif number != signal.SIGCHLD and self._command:
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if for_group else os.kill)(self._command, number)

    def _stop(self, number: int) -> None:
        """The command was stopped, by Ctrl-Z say: stop with it, as the shell expects of its job."""
        self._pump.run((), anyway=True)
        self._leave_terminal()
        os.kill(os.getpid(), signal.SIGSTOP if number == signal.SIGSTOP else signal.SIGTSTP)
        # Here the shell has let us go on. SIGCONT, if it was for the foreground, makes the terminal raw
        # again.
        self._resume()

    def _resume(self) -> None:
        self._go_raw()
        if self._command:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._command, signal.SIGCONT)

    def _read_keys(self) -> None:
        try:
            self._typed = os.read(0, _STDIN_CHUNK)
        except OSError:
            self._typed = b""
        self._reads_keys = bool(self._typed)

    def _send_keys(self) -> None:
        if self._typed:
            try:
                self._typed = self._typed[os.write(self._master, self._typed) :]
            except BlockingIOError:
                select.select([], [self._master], [], 0.01)
            except OSError:
                self._typed = b""

    def _give_keys_back(self) -> None:
        """Keys that the command left unread are the shell's: type them again, while nothing echoes them."""
        with contextlib.suppress(OSError, termios.error):
            mode = termios.tcgetattr(self._slave)
            tty.setraw(self._slave, termios.TCSANOW)
            os.set_blocking(self._slave, False)
            unread = b""
            with contextlib.suppress(BlockingIOError):
                unread = os.read(self._slave, _KEYS_KEPT)
            termios.tcsetattr(self._slave, termios.TCSANOW, mode)
            keys = unread + self._typed
            if self._before[0] & termios.ICRNL:
                keys = keys.replace(b"\r", b"\n")
            for key in keys:
                fcntl.ioctl(0, termios.TIOCSTI, bytes([key]))
        os.close(self._slave)

    def _drain(self) -> None:
        """What was printed last may still be on its way through the kernel when the command is gone."""
        poll = select.poll()
        if not self._pump.ended:
            poll.register(self._master, select.POLLIN)
        while not self._pump.ended and (self._pump.flow is not Flow.DRY or poll.poll(_QUIET_MS)):
            self._pump.run((), anyway=True)
            if self._pump.flow is Flow.BLOCKED:
                wait([self._pump], [])

    def _go_raw(self) -> None:
        with contextlib.suppress(OSError, termios.error):
            self._reads_keys = os.tcgetpgrp(0) == os.getpgrp()
            if self._reads_keys:
                tty.setraw(0, termios.TCSADRAIN)

    def _leave_terminal(self) -> None:
        """Set our terminal as the command left its own: mostly as it was, but ``stty -echo`` is to last."""
        with contextlib.suppress(OSError, termios.error):
            if os.tcgetpgrp(0) == os.getpgrp():
                with contextlib.suppress(OSError, termios.error):
                    self._before = termios.tcgetattr(self._master)
                termios.tcsetattr(0, termios.TCSADRAIN, self._before)

    def _leave_monitor(self) -> None:
        from tool_hooks.run_command import leave_behind

        leave_behind([self._pump], self._reporter, self._signals)
        os.close(self._lifeline)
        if self._pump.ended:
            with contextlib.suppress(OSError):
                os.waitpid(self._monitor, 0)

    def _copy_size(self) -> None:
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8))


def _monitor(command: Sequence[str], signals: SignalWatch, slave: int, status_end: int, life: int) -> None:
    """Lead the command's session, tell how the command fares, and stay for what it left in the background."""
    from tool_hooks.run_command import execute

    try:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        signals.leave()
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            os.tcsetpgrp(slave, os.getpid())
            signal.signal(signal.SIGTTOU, signal.SIG_DFL)
            for fd in (0, 1, 2):
                os.dup2(slave, fd)
            execute(command)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.close(slave)
        os.write(status_end, _MESSAGE.pack(b"c", pid))
        while True:
            _, status = os.waitpid(pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                break
            os.write(status_end, _MESSAGE.pack(b"t", os.WSTOPSIG(status)))
        os.write(status_end, _MESSAGE.pack(b"x", status))
        os.read(life, 1)
    finally:
        os._exit(0)
