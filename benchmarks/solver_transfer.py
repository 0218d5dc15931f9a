# SPDX-License-Identifier: Apache-2.0
"""What handing a snapshot to the planner process and getting its plan back costs, the solve left out."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.solver_instances import snapshot
from solver.planner import Planner
from tao_dynamo.errors import StackError

if TYPE_CHECKING:
    from benchmarks.solver_instances import Size

KIND = "tight-few"
ROUNDS = 40
BUDGET_MS = 500.0
START_LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class Transfer:
    """Round trips to a live planner, in milliseconds, less what its process worked."""

    size: Size
    rounds: int
    best_ms: float
    median_ms: float


def measure(size: Size, seed: int, rounds: int = ROUNDS) -> Transfer:
    """Hand one snapshot over so many times; its check and reading by columns count, the solve does not.

    Raises:
        StackError: the planner process did not start.
    """
    given = snapshot(size, KIND, seed)
    planner = Planner()
    try:
        if not planner.start(wait_s=START_LIMIT_S):
            raise StackError(f"the planner did not get ready within {START_LIMIT_S:g} s")
        took = []
        for _ in range(rounds):
            planner.solve(given, BUDGET_MS)
            took.append(planner.counters.transfer_s * 1e3)
    finally:
        planner.close()
    return Transfer(size, rounds, min(took), statistics.median(took))
