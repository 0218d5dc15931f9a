# SPDX-License-Identifier: Apache-2.0
"""``tao-tool run`` on a terminal, driven as a person would: keys in, screen out."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from collections.abc import Iterator

import pytest

from tests.tool_hooks.bus import Listener, Server, environment
from tests.tool_hooks.test_run import ended

pytestmark = pytest.mark.nats

RUN = f"{sys.executable} -m tool_hooks.cli run --"


class Terminal:
    """A bash on a terminal of 31 x 97."""

    def __init__(self, env: dict[str, str]) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe("bash", ["bash", "--norc", "--noprofile"], env)  # noqa: S606
        self.resize(31, 97)
        self.screen = ""
        self.type("PS1='$ '; bind 'set enable-bracketed-paste off'; echo re''ady\n")
        self.until("ready\r\n")

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: str) -> None:
        self.screen = ""
        os.write(self.fd, keys.encode())

    def until(self, what: str, timeout: float = 10.0) -> str:
        deadline = time.monotonic() + timeout
        while what not in self.screen:
            left = deadline - time.monotonic()
            assert left > 0, f"{what!r} did not come; the screen: {self.screen!r}"
            if select.select([self.fd], [], [], left)[0]:
                self.screen += os.read(self.fd, 65536).decode("utf-8", "replace")
        return self.screen

    def close(self) -> None:
        os.close(self.fd)
        os.waitpid(self.pid, 0)


@pytest.fixture
def terminal(server: Server) -> Iterator[Terminal]:
    made = Terminal(environment(server, DYN_SESSION_ID="s1", TERM="xterm", PS1="$ "))
    yield made
    made.close()


@pytest.mark.parametrize("prefix", ["", RUN], ids=["bare", "tao-tool"])
class TestBesideTheBareCommand:
    def test_sees_a_terminal_of_the_same_size(self, terminal: Terminal, prefix: str) -> None:
        terminal.type(f"{prefix} sh -c 'test -t 0 -a -t 1 -a -t 2 && stty size; exit 5'; echo rc''=$?\n")
        assert "31 97" in terminal.until("rc=5")

    def test_ctrl_c_ends_it(self, terminal: Terminal, prefix: str) -> None:
        terminal.type(f"{prefix} sh -c 'echo st''arted; exec sleep 60'\n")
        terminal.until("started")
        time.sleep(0.5)  # bash defers the trap while its child is not yet the one that is waited for
        terminal.type("\x03")
        terminal.until("^C")
        terminal.type("echo rc''=$?\n")
        terminal.until("rc=130")

    def test_ctrl_c_can_be_caught(self, terminal: Terminal, prefix: str) -> None:
        terminal.type(
            f"{prefix} bash -c 'trap \"echo cau''ght; exit 9\" INT; echo st''arted; sleep 60'; echo rc''=$?\n"
        )
        terminal.until("started")
        time.sleep(0.5)  # bash defers the trap while its child is not yet the one that is waited for
        terminal.type("\x03")
        assert "caught" in terminal.until("rc=9")

    def test_ctrl_z_stops_it_and_fg_goes_on(self, terminal: Terminal, prefix: str) -> None:
        terminal.type(f"{prefix} cat\n")
        time.sleep(0.8)
        terminal.type("\x1a")
        terminal.until("Stopped")
        terminal.type("jobs; fg\n")
        terminal.until("Stopped")
        time.sleep(0.3)
        terminal.type("hello\n")
        terminal.until("hello\r\nhello\r\n")
        terminal.type("\x04")
        terminal.type("echo rc''=$?\n")
        terminal.until("rc=0")

    def test_a_background_job_writes_after_the_command_has_left(self, terminal: Terminal, prefix: str) -> None:
        terminal.type(f"{prefix} sh -c '(sleep 0.7; echo la''te) & echo no''w'; echo rc''=$?\n")
        screen = terminal.until("rc=0")
        assert "now" in screen
        assert "late" not in screen
        terminal.until("late")

    def test_what_it_does_to_the_terminal_lasts(self, terminal: Terminal, prefix: str) -> None:
        terminal.type(f"{prefix} stty -echo; stty -a | grep -c -- '-echo '; stty echo; echo do''ne\n")
        assert "\n1\r\n" in terminal.until("done")

    def test_it_hears_of_a_new_size(self, terminal: Terminal, prefix: str) -> None:
        loop = "trap \"stty size; exit\" WINCH; echo st''arted; while sleep 0.1; do :; done"
        terminal.type(f"{prefix} bash -c '{loop}'\n")
        terminal.until("started")
        terminal.resize(20, 64)
        terminal.until("20 64")

    def test_in_the_background_from_the_start(self, terminal: Terminal, prefix: str) -> None:
        terminal.type(f"{prefix} sh -c 'echo a''lone; exit 3' & wait $!; echo rc''=$?\n")
        assert "alone" in terminal.until("rc=3")

    def test_raw_keys_reach_it(self, terminal: Terminal, prefix: str) -> None:
        read = (
            "import sys, tty, os; tty.setraw(0); print('st' + 'arted', flush=True); print(os.read(0, 3), end='\\r\\n')"
        )
        terminal.type(f'{prefix} {sys.executable} -c "{read}"; stty sane\n')
        terminal.until("started")
        terminal.type("\x03\x1aq")
        terminal.until("b'")


def test_a_bar_on_a_terminal_is_heard(terminal: Terminal, listener: Listener) -> None:
    script = (
        "import time\nfor n in range(1, 5): print(f'\\r {20 * n}%|###  | {20 * n}/100 [00:00<00:09, 1it/s]', end=''); "
    )
    script = script.replace("end='')", "end='', flush=True)") + "time.sleep(0.15)"
    terminal.type(f"{RUN} {sys.executable} -c $'{_quoted(script)}'; echo rc''=$?\n")
    terminal.until("rc=0")
    events = listener.wait_for(ended)
    seen = [(e.fraction, e.remaining_s) for e in events if e.kind == "tool_progress"]
    assert seen, "progress was heard"
    assert seen == sorted(seen)
    # On a busy machine two bars may be read at once; then the later one is told.
    assert set(seen) <= {(0.2, 9.0), (0.4, 9.0), (0.6, 9.0), (0.8, 9.0)}


def _quoted(script: str) -> str:
    return script.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
