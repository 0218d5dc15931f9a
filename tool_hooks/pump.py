# SPDX-License-Identifier: Apache-2.0
"""Carries what a command prints to where it would have gone, byte for byte, and lets a bar reader see some
of it.

A thin flow goes through memory and is read whole. A thick one is spliced, pipe to pipe inside the kernel,
and looked at ten times a second: a bar prints itself again and again.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import select
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from tool_hooks.bars import TAIL_BYTES, BarReader, Progress

CHUNK = 1 << 16
SPLICE_BYTES = 1 << 20
_LOOK_EVERY_S = 0.1
_PARSE_EVERY_S = 0.02
# A pipe that poll(2) calls writable takes this many bytes without blocking.
_SAFE_WRITE = 4096
_STEPS = 64
_GATHER_S = 2e-4
_F_SETPIPE_SZ = 1031
_SPLICE_FLAGS = 3  # SPLICE_F_MOVE | SPLICE_F_NONBLOCK


Teller = Callable[[Progress], None]
Tap = Callable[[bytes], None]


class Flow(enum.Enum):
    """How a pump's last step went."""

    MOVED = "moved"
    DRY = "dry"
    BLOCKED = "blocked"
    ENDED = "ended"


class Pump:
    """Moves bytes from ``source`` to ``target``.

    ``tell`` hears what bars say; ``tap`` sees every byte, and then nothing is spliced.
    When ``target``'s reader is gone, ``source`` is closed: the command then gets the SIGPIPE it would have
    got.
    """

    def __init__(
        self, source: int, target: int, tell: Teller | None, *, tap: Tap | None = None, can_splice: bool = True
    ) -> None:
        self.source = source
        self.target = target
        self._tell = tell
        self._tap = tap
        self._bars = BarReader()
        self._unread = b""
        self._asks_source = os.get_blocking(source)
        self._writes_to = _reopened(target)
        self._pending = memoryview(b"")
        self._can_splice = can_splice and tap is None and hasattr(os, "splice")
        self._thick = self._wide = False
        self._looked = self._parsed = 0.0
        self.flow = Flow.DRY

    @property
    def ended(self) -> bool:
        """True when nothing more can come or go."""
        return self.flow is Flow.ENDED

    @property
    def has_unread(self) -> bool:
        """True when something was printed that the bar reader has not seen yet: call :meth:`look` soon."""
        return bool(self._unread)

    def run(self, ready: Collection[int], *, anyway: bool = False) -> None:
        """Move what can be moved, if one of its ends is ready (or ``anyway``), but not for ever."""
        if not self.ended and (anyway or self.source in ready or self.target in ready):
            steps = 0
            while steps < _STEPS and self.step() is Flow.MOVED:
                steps += 1
        self.look()

    def step(self) -> Flow:
        """Move what can be moved at once, without blocking."""
        try:
            self.flow = self._step()
        except BlockingIOError:
            self.flow = Flow.BLOCKED if self._pending else Flow.DRY
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO, errno.ECONNRESET, errno.EBADF):
                raise
            self.flow = Flow.ENDED
        if self.ended:
            self.close()
        return self.flow

    def close(self) -> None:
        """Let the source go, and what is held of the target."""
        if self.source >= 0:
            os.close(self.source)
            self.source = -1
        if self._writes_to is not None:
            os.close(self._writes_to)
            self._writes_to = None

    def look(self) -> None:
        """Let the bar reader see what it has not seen, unless it looked just now."""
        now = time.monotonic()
        if self._tell is None or not self._unread or now - self._parsed < _PARSE_EVERY_S:
            return
        self._parsed = now
        progress = self._bars.feed(self._unread)
        self._unread = b""
        if progress is not None:
            self._tell(progress)

    def _step(self) -> Flow:
        if self._pending:
            return self._write()
        if self._thick and (self._tell is None or time.monotonic() - self._looked < _LOOK_EVERY_S):
            return self._splice()
        if self._asks_source and not _is_ready(self.source, select.POLLIN):
            return Flow.DRY
        data = os.read(self.source, CHUNK)
        if not data:
            return Flow.ENDED
        self._looked = time.monotonic()
        was_thick, self._thick = self._thick, self._can_splice and len(data) == CHUNK
        if self._thick and not was_thick:
            self._widen()
        self._pending = memoryview(data)
        if self._tap is not None:
            self._tap(data)
        if self._tell is not None:
            self._unread = (self._unread + data[-TAIL_BYTES:])[-TAIL_BYTES:]
        return self._write()

    def _write(self) -> Flow:
        if self._writes_to is not None:
            written = os.write(self._writes_to, self._pending)
        elif _is_ready(self.target, select.POLLOUT):
            written = os.write(self.target, self._pending[:_SAFE_WRITE])
        else:
            return Flow.BLOCKED
        self._pending = self._pending[written:]
        return Flow.MOVED

    def _splice(self) -> Flow:
        try:
            moved = os.splice(self.source, self.target, SPLICE_BYTES, flags=_SPLICE_FLAGS)  # type: ignore[attr-defined,unused-ignore]
        except BlockingIOError:
            if _is_ready(self.target, select.POLLOUT):
                return Flow.DRY
            if self._wide:
                time.sleep(_GATHER_S)
            return Flow.BLOCKED
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._can_splice = self._thick = False
            return Flow.MOVED
        if moved == 0:
            return Flow.ENDED
        if self._wide and moved < SPLICE_BYTES // 2:
            # Else three processes hand each other a few pages at a time, and the hand-over is what costs.
            time.sleep(_GATHER_S)
        return Flow.MOVED

    def _widen(self) -> None:
        """Let much gather in the pipes between one hand-over and the next."""
        if not self._wide:
            with contextlib.suppress(ImportError, OSError):
                import fcntl

                for end in (self.source, self.target):
                    fcntl.fcntl(end, _F_SETPIPE_SZ, SPLICE_BYTES)
                self._wide = True


def wait(pumps: Sequence[Pump], others: Iterable[int]) -> set[int]:
    """Sleep until a pump can move, one of the other files is readable, or a bar waits to be read."""
    poll = select.poll()
    for fd in others:
        poll.register(fd, select.POLLIN)
    for pump in pumps:
        if not pump.ended:
            blocked = pump.flow is Flow.BLOCKED
            poll.register(pump.target if blocked else pump.source, select.POLLOUT if blocked else select.POLLIN)
    unread = any(pump.has_unread for pump in pumps)
    return {fd for fd, _ in poll.poll(_PARSE_EVERY_S * 1000.0 if unread else None)}


def _reopened(fd: int) -> int | None:
    """The same file opened anew, so that writing to it never blocks, and its other holders see no change.

    None where that cannot be done: sockets, files of another user, a pipe without a reader, systems without /proc.
    """
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None


def _is_ready(fd: int, what: int) -> bool:
    poll = select.poll()
    poll.register(fd, what)
    return bool(poll.poll(0))
