# SPDX-License-Identifier: Apache-2.0
"""A planner process whose engine does as the first candidate's id says: the faults of the real one."""

from __future__ import annotations

import os
import signal
import sys
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from solver import planner_child
from solver.front import solve

if TYPE_CHECKING:
    from solver.columns import Columns
    from solver.problem import Plan


class Ring:
    """Nothing but a garbage collection frees it."""

    itself: Ring


class Engine:
    """Best-fit decreasing, unless told otherwise."""

    faults = 0
    cycle: weakref.ref[Ring] | None = None

    def warm_up(self) -> str:
        marker = os.environ.get("TAO_TEST_WARM")
        if marker == "die":
            sys.exit(3)
        if marker == "slow":
            time.sleep(60)
        print("a library that prints on stdout")
        return "fake device"

    def device_faults(self) -> int:
        return self.faults

    def solve(self, columns: Columns, method: str, budget_ms: float) -> Plan:
        word, _, detail = columns.candidate_ids[0].partition(":") if columns.candidate_ids else ("", "", "")
        if word == "hang":
            time.sleep(600)
        if word == "pid":
            Path(detail).write_text(str(os.getpid()), encoding="ascii")
            time.sleep(600)
        if word == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if word == "nonsense":
            os.write(planner_sink, b"\xff\xff\xff\xff nonsense")
            time.sleep(600)
        if word == "raise":
            msg = "as asked"
            raise ArithmeticError(msg)
        if word == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        if word == "dynamo":
            loaded = [name for name in sys.modules if name.split(".")[0] in {"dynamo", "nats"}]
            if loaded:
                raise RuntimeError(f"loaded: {loaded}")
        if word == "cycle":
            gone = self.cycle is None or self.cycle() is None
            ring = Ring()
            ring.itself = ring
            self.cycle = weakref.ref(ring)
            if not gone:
                raise RuntimeError("the cycle of the solve before is still there")
        if word == "fault":
            self.faults += 1
        if word == "slow":
            time.sleep(float(detail))
        return solve(columns, method="bfd", budget_ms=budget_ms)


planner_sink = -1


def main() -> None:
    serve = planner_child.serve

    def spying(engine: planner_child.Engine, source: int, sink: int) -> None:
        global planner_sink  # noqa: PLW0603
        planner_sink = sink
        serve(engine, source, sink)

    planner_child.serve = spying
    planner_child.main(Engine)
