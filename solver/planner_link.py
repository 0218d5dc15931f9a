# SPDX-License-Identifier: Apache-2.0
"""The parent's end of one planner process: start it, ask it with a deadline, kill it."""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

from solver import planner_wire as wire
from tao_dynamo.errors import BudgetExceededError, PlannerDiedError, WireError

# A path given by the parent, not the working directory: what lies there may shadow the solver.
_BOOT = (
    "import sys; sys.path = [p for p in sys.path if p]; root, name = sys.argv[1:3]; "
    "root in sys.path or sys.path.insert(0, root); "
    "from importlib import import_module; import_module(name).main()"
)
_PIPE_BYTES = 1 << 20


class PlannerLink:
    """One planner process and the two pipes to it.

    ``ask`` and ``receive`` are for one thread at a time; ``kill`` may come from any. ``gone`` is set
    once the process has ended or was killed.
    """

    def __init__(self, child: str) -> None:
        root = str(Path(__file__).resolve().parent.parent)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, root, child],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            # Its own session: a Ctrl-C on the terminal is not even delivered while it starts.
            start_new_session=True,
        )
        assert self._process.stdin is not None  # noqa: S101 - what PIPE means
        assert self._process.stdout is not None  # noqa: S101
        self._to_child = self._process.stdin.fileno()
        self._from_child = self._process.stdout.fileno()
        os.set_blocking(self._to_child, False)
        os.set_blocking(self._from_child, False)
        _widen(self._to_child)
        _widen(self._from_child)
        self.gone = threading.Event()
        self._reaper = threading.Thread(target=self._reap, name="tao-planner-reaper", daemon=True)
        self._reaper.start()

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def _reap(self) -> None:
        self._process.wait()
        self.gone.set()

    def ask(self, request: bytes, deadline: float) -> wire.Reply:
        """Send one frame and return the reply to it.

        Args:
            request: the frame.
            deadline: on the clock of ``time.monotonic``.

        Raises:
            BudgetExceededError: no reply by then; the link is of no further use, kill it.
            PlannerDiedError: the process is gone, or what it says is no reply.
        """
        left = memoryview(request)
        while left:
            self._wait(self._to_child, select.POLLOUT, deadline)
            try:
                left = left[os.write(self._to_child, left) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise PlannerDiedError(f"planner {self.pid} takes nothing: {error}") from error
        return self.receive(deadline)

    def receive(self, deadline: float) -> wire.Reply:
        """Wait for the next reply; errors as in ``ask``."""
        try:
            length = wire.length_of(self._read(wire.LENGTH.size, deadline))
            return wire.read_reply(self._read(length, deadline))
        except WireError as error:
            raise PlannerDiedError(f"planner {self.pid} speaks nonsense: {error}") from error

    def _read(self, size: int, deadline: float) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            self._wait(self._from_child, select.POLLIN, deadline)
            try:
                part = os.read(self._from_child, size - len(parts))
            except BlockingIOError:
                continue
            except OSError as error:
                raise PlannerDiedError(f"planner {self.pid} cannot be read: {error}") from error
            if not part:
                raise PlannerDiedError(f"planner {self.pid} ended")
            parts += part
        return bytes(parts)

    def _wait(self, fd: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(fd, event)
        # Rounded up: a reply that is there counts, whatever the clock says by now.
        left_ms = max(0, int((deadline - time.monotonic()) * 1e3 + 0.999))
        if not poll.poll(left_ms):
            raise BudgetExceededError("planner milliseconds", left_ms, 0)

    def kill(self) -> None:
        """End the process at once and without waiting: one stuck in a driver may take its time."""
        self._process.kill()
        self.gone.set()

    def close(self) -> None:
        """Kill the process, wait a little for its end and give the pipes back."""
        self.kill()
        self._reaper.join(timeout=2.0)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _widen(fd: int) -> None:
    """Make room for a whole large snapshot, so that handing it over does not wait for the reader."""
    try:
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    except (AttributeError, OSError):
        # Not Linux before Python 3.10's constant, or the user's pipe quota is used up: slower, no worse.
        return
