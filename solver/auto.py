# SPDX-License-Identifier: Apache-2.0
"""The method that suits: ``exact``, and the dense DP where that proves what ``exact`` could not in time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from solver import dp_cpu, dp_gpu, exact
from solver.clock import now
from solver.columns import columns_of
from solver.dp_layer import DenseInstance, dense_instance
from solver.planning import make_plan
from solver.quick import round_quick
from solver.rounding import Rounded, value_of
from solver.straight import go_straight, plan_of
from tao_dynamo.errors import BudgetExceededError, DeviceError

if TYPE_CHECKING:
    from solver.columns import Snapshot
    from solver.problem import Plan

CPU_UPDATES_PER_S = 4e8
"""States x layers x nodes that one slow core updates in a second."""
GPU_STATES = 2_000_000_000
"""Layers x states left to the GPU at most: about a tenth of a second and 2 GB."""
DENSE_NODES = 6
"""Nodes up to which a dense DP is looked at: with more, even ten quanta each are too many states for its time."""
EXACT_SHARE = 0.5
"""Share of the budget that ``exact`` gets where the dense DP could follow it."""


def solve(problem: Snapshot, budget_ms: float) -> Plan:
    """The best plan of either method; errors as in :func:`solver.exact.solve`."""
    began = now()
    columns = columns_of(problem)
    budget = budget_ms / 1e3
    # Only with few nodes is there a dense DP to leave time for.
    few = len(columns.node_ids) <= DENSE_NODES
    found = go_straight(columns, began, budget * exact.FINISH_SHARE * (EXACT_SHARE if few else 1.0))
    if found.settled:
        plan = plan_of(columns, found, now() - began)
        if plan.optimal or not few:
            return plan
    rounded = round_quick(columns)
    dense = _affordable(rounded, budget * (1 - EXACT_SHARE)) if few else None
    plan = exact.refined(rounded, found.outcome, began, budget * (EXACT_SHARE if dense else 1.0))
    if plan.optimal or dense is None:
        return plan
    note, method = "", "dp-cpu"
    if dp_gpu.prefers([dense]):
        try:
            assignment, method = dp_gpu.run([dense])[0], "dp-gpu"
        except (DeviceError, BudgetExceededError) as error:
            note = f"the GPU gave no answer: {error}"
            # What only the GPU could have gone through in time stays as `exact` left it.
            if not _cpu_affords(dense, budget * (1 - EXACT_SHARE)):
                return replace(plan, note=note)
            assignment = dp_cpu.run(dense)
    else:
        assignment = dp_cpu.run(dense)
    plan = make_plan(rounded, assignment, bound=value_of(rounded, assignment), method=method, seconds=now() - began)
    return replace(plan, note=note)


def _affordable(rounded: Rounded, seconds: float) -> DenseInstance | None:
    """The dense state space, where it can be gone through in so many seconds."""
    try:
        dense = dense_instance(rounded)
    except BudgetExceededError:
        return None
    size = dp_cpu.size(dense)
    if size <= GPU_STATES and dp_gpu.prefers([dense]):
        return dense
    return dense if _cpu_affords(dense, seconds) else None


def _cpu_affords(dense: DenseInstance, seconds: float) -> bool:
    size = dp_cpu.size(dense)
    return size * len(dense.node) <= seconds * CPU_UPDATES_PER_S and size <= dp_cpu.MAX_STATES
