# SPDX-License-Identifier: Apache-2.0
"""The planner's own process: warm up, then one snapshot in, one plan out, until the parent is gone.

It imports nothing but the solver. It ends with its parent whatever happens to either: an idle child sees
the end of its input; a busy one is under a kernel timer, which ends it even inside a compiled loop that
holds the interpreter.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from solver import planner_wire as wire
from tao_dynamo.errors import TaoError, WireError

if TYPE_CHECKING:
    from solver.columns import Columns
    from solver.problem import Plan

WARM_UP_LIMIT_S = 300.0
# Far past the parent's own limit of twice the budget: this one only has to catch orphans.
ORPHAN_FACTOR = 4.0
ORPHAN_SLACK_S = 2.0
PARENT_CHECK_S = 10.0


class Engine(Protocol):
    """What the process serves; the real one is the solver, tests bring broken ones."""

    def warm_up(self) -> str:
        """Get ready; return the GPU's name, empty without one."""

    def solve(self, columns: Columns, method: str, budget_ms: float) -> Plan:
        """Solve one snapshot."""

    def device_faults(self) -> int:
        """Count the CUDA errors survived so far."""


class SolverEngine:
    """The real engine: ``solver.solve`` with its kernels compiled."""

    def warm_up(self) -> str:
        """Compile the numba kernels; look for a GPU and measure from what size it pays."""
        import solver
        from solver import dp_gpu

        solver.warm_up()
        return dp_gpu.warm_up()

    def solve(self, columns: Columns, method: str, budget_ms: float) -> Plan:
        """Solve one snapshot."""
        import solver

        return solver.solve(columns, method=method, budget_ms=budget_ms)

    def device_faults(self) -> int:
        """Count the CUDA errors survived so far."""
        from solver import dp_gpu

        return dp_gpu.faults()


class _ParentGoneError(Exception):
    """The pipe ended."""


def _read_exactly(fd: int, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = os.read(fd, min(size - len(parts), 1 << 20))
        if not part:
            raise _ParentGoneError
        parts += part
    return bytes(parts)


def _write(fd: int, message: wire.Reply) -> None:
    left = memoryview(wire.frame(message))
    while left:
        left = left[os.write(fd, left) :]


def _wait_for_request(fd: int, parent: int) -> None:
    # A sibling that the parent forked may hold our pipe open after the parent's death: look at who
    # our parent is, too.
    while not select.select([fd], [], [], PARENT_CHECK_S)[0]:
        if os.getppid() != parent:
            raise _ParentGoneError


def _guard(seconds: float) -> None:
    """Let the kernel end this process after ``seconds``; zero takes the timer back."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _answer(engine: Engine, body: bytes) -> wire.Reply:
    try:
        request = wire.read_request(body)
        columns = request.columns()
    except WireError as error:
        return wire.Failed(str(error))
    _guard(ORPHAN_FACTOR * request.budget_ms / 1e3 + ORPHAN_SLACK_S)
    faults = engine.device_faults()
    began = time.perf_counter()
    try:
        plan = engine.solve(columns, request.method, request.budget_ms)
    except (
        TaoError,
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
        RuntimeError,
        MemoryError,
    ) as error:
        return wire.Failed(f"{type(error).__name__}: {error}")
    finally:
        busy_s = time.perf_counter() - began
        _guard(0)
    return wire.Solved(plan, busy_s, engine.device_faults() - faults)


def serve(engine: Engine, source: int, sink: int) -> None:
    """Warm up, say so, then answer requests from ``source`` on ``sink`` until either ends."""
    parent = os.getppid()
    try:
        _guard(WARM_UP_LIMIT_S)
        device = engine.warm_up()
        _guard(0)
        # Garbage is collected between two snapshots, never in the middle of one; what is warm is left out of it.
        gc.freeze()
        gc.disable()
        _write(sink, wire.Ready(device))
        while True:
            _wait_for_request(source, parent)
            length = wire.length_of(_read_exactly(source, wire.LENGTH.size))
            _write(sink, _answer(engine, _read_exactly(source, length)))
            gc.collect()
    except (_ParentGoneError, BrokenPipeError):
        return


def _go_first() -> None:
    """Where memory runs out, let the kernel take this process, which is replaced, and not the router."""
    # Elsewhere than on Linux there is no such file, and nothing is lost.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")


def main(engine: Callable[[], Engine] = SolverEngine) -> None:
    """Run as the child of ``solver.planner.Planner``: requests on stdin, replies on stdout."""
    # Ctrl-C belongs to the parent, which closes our input when it is done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM, signal.SIGTERM})
    _go_first()
    source, sink = os.dup(0), os.dup(1)
    # Whatever a library prints must not reach the wire.
    os.dup2(2, 1)
    os.close(0)
    serve(engine(), source, sink)
    sys.stderr.flush()


if __name__ == "__main__":
    main()
