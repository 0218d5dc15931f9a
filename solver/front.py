# SPDX-License-Identifier: Apache-2.0
"""The way in: one problem, one plan, by a named method or the one that suits it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from solver import bfd, short_first
from solver.columns import columns_of
from solver.problem import Plan, Value
from tao_dynamo.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from solver.columns import Columns, Snapshot

METHODS = ("auto", "exact", "dp-cpu", "dp-gpu", "bfd", "short-first")


def solve(problem: Snapshot, *, method: str = "auto", budget_ms: float = 50.0) -> Plan:
    """Solve a problem.

    Where candidates have tiers, the highest is solved first and the next gets the room it leaves; value and
    bound are then sums over the tiers, each bounded given the plans above it (see :class:`solver.problem.Plan`).
    A quantum of 0 leaves its choice to the solver. The note says what rounding costs, in the room of each tier.

    Args:
        problem: any snapshot; it is checked first.
        method: one of :data:`METHODS`. ``auto`` is ``exact``, and where that is left without a proof the
            dense DP, if that fits the rest of the budget.
        budget_ms: time that ``auto`` and ``exact`` may take, in milliseconds. The dense DP is bounded by its
            number of states, the greedy methods need no bound.

    Raises:
        ProblemError: the problem breaks a rule; the field is named.
        ConfigError: there is no such method, or the budget is negative.
        BudgetExceededError: a dense DP was asked for and its state space is too large.
        DeviceError: ``dp-gpu`` was asked for and there is no device.
    """
    began = time.perf_counter()
    if method not in METHODS:
        raise ConfigError("method", method, f"one of {', '.join(METHODS)}")
    if not budget_ms >= 0:
        raise ConfigError("budget_ms", budget_ms, "0 or more milliseconds")
    columns = columns_of(problem)
    if columns.tiered:
        return _solve_tiers(columns, method, began + budget_ms / 1e3)
    return _solve_one(columns, method, max(0.0, budget_ms - (time.perf_counter() - began) * 1e3))


def _solve_one(columns: Columns, method: str, budget_ms: float) -> Plan:
    # Only what is asked for is imported: the greedy methods must answer before anything compiled is loaded.
    if method == "bfd":
        return bfd.solve(columns)
    if method == "short-first":
        return short_first.solve(columns)
    if method == "dp-cpu":
        from solver import dp_cpu

        return dp_cpu.solve(columns)
    if method == "dp-gpu":
        from solver import dp_gpu

        return dp_gpu.solve(columns)
    from solver import auto, exact

    chosen: Callable[[Snapshot, float], Plan] = exact.solve if method == "exact" else auto.solve
    return chosen(columns, budget_ms)


def _solve_tiers(columns: Columns, method: str, deadline: float) -> Plan:
    began = time.perf_counter()
    plans: list[Plan] = []
    parts = columns.parts()
    capacity = parts.capacity.copy()
    index = {name: n for n, name in enumerate(columns.node_ids)}
    tiers = sorted(set(parts.tier.tolist()), reverse=True)
    for k, tier in enumerate(tiers):
        left_ms = max(0.0, (deadline - time.perf_counter()) * 1e3 / (len(tiers) - k))
        part = columns.of_tier(tier, capacity)
        plan = _solve_one(part, method, left_ms)
        if not columns.quantum:
            columns = replace(columns, quantum=plan.quantum)
        plans.append(plan)
        costs = dict(zip(part.candidate_ids, part.parts().cost.tolist(), strict=True))
        for placement in plan.placements:
            capacity[index[placement.node]] -= -(-costs[placement.candidate] // plan.quantum) * plan.quantum
    return Plan(
        placements=tuple(placement for plan in plans for placement in plan.placements),
        value=_sum(plan.value for plan in plans),
        bound=_sum(plan.bound for plan in plans),
        optimal=all(plan.optimal for plan in plans),
        method="+".join(dict.fromkeys(plan.method for plan in plans)),
        seconds=time.perf_counter() - began,
        quantum=plans[0].quantum,
        note="; ".join(dict.fromkeys([f"{len(tiers)} tiers", *(plan.note for plan in plans if plan.note)])),
    )


def _sum(values: Iterable[Value]) -> Value:
    parts = list(values)
    return Value(
        sum(part.credit for part in parts),
        sum(part.ready for part in parts),
        sum(part.footprint for part in parts),
    )


def warm_up() -> None:
    """Load or compile every numba kernel, so that the first snapshot finds them ready."""
    from solver.warm import warm_up as warm

    warm()
