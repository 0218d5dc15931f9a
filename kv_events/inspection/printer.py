# SPDX-License-Identifier: Apache-2.0
"""Prints lines from a thread of its own, so that a slow terminal or pipe never keeps us from reading the bus."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final, TextIO

_WAITING: Final = 20_000
_FLUSH_S: Final = 5.0


class Printer:
    """A bounded queue of lines and a thread that writes them.

    Args:
        out: where to.
        on_closed: called once, from the thread, when the other side of a pipe has gone.
        waiting: lines that may wait; further ones are dropped and counted.
    """

    def __init__(self, out: TextIO, on_closed: Callable[[], object], *, waiting: int = _WAITING) -> None:
        self.dropped = 0
        self.written = 0
        self._out = out
        self._on_closed = on_closed
        self._lines: queue.Queue[str | None] = queue.Queue(waiting)
        self._thread = threading.Thread(target=self._run, name="tao-events printer", daemon=True)
        self._thread.start()

    def say(self, line: str) -> None:
        """Print a line, now or soon; never waits."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Print what waits, for at most some seconds."""
        try:
            self._lines.put(None, timeout=_FLUSH_S)
        except queue.Full:
            return
        self._thread.join(_FLUSH_S)

    def _run(self) -> None:
        try:
            while (line := self._lines.get()) is not None:
                self._out.write(line + "\n")
                self.written += 1
                if self._lines.empty():
                    self._out.flush()
            self._out.flush()
        except (OSError, ValueError):
            self._on_closed()
