# SPDX-License-Identifier: Apache-2.0
"""The way in: one problem, one plan, by a named method or the one that suits it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from solver import bfd, short_first
from solver.checks import validate
from solver.problem import Node, Plan, Problem, Value
from solver.rounding import choose_quantum
from tao_dynamo.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

METHODS = ("auto", "exact", "dp-cpu", "dp-gpu", "bfd", "short-first")


def solve(problem: Problem, *, method: str = "auto", budget_ms: float = 50.0) -> Plan:
    """Solve a problem.

    Where candidates have tiers, the highest is solved first and the next gets the room it leaves; value and
    bound are then sums over the tiers, each bounded given the plans above it. A quantum of 0 leaves its
    choice to the solver. The note says what rounding costs at most.

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
    validate(problem)
    if not problem.quantum and not method.startswith("dp-"):
        largest = max((node.capacity for node in problem.nodes), default=1)
        problem = replace(problem, quantum=choose_quantum(largest))
    tiers = {candidate.tier for candidate in problem.candidates}
    if len(tiers) > 1:
        plan = _solve_tiers(problem, sorted(tiers, reverse=True), method, began + budget_ms / 1e3)
    else:
        plan = _solve_one(problem, method, max(0.0, budget_ms - (time.perf_counter() - began) * 1e3))
    note = "; ".join(part for part in (plan.note, rounding_note(problem, plan)) if part)
    return replace(plan, note=note, seconds=time.perf_counter() - began)


def _solve_one(problem: Problem, method: str, budget_ms: float) -> Plan:
    # Only what is asked for is imported: the greedy methods must answer before anything compiled is loaded.
    if method == "bfd":
        return bfd.solve(problem)
    if method == "short-first":
        return short_first.solve(problem)
    if method == "dp-cpu":
        from solver import dp_cpu

        return dp_cpu.solve(problem)
    if method == "dp-gpu":
        from solver import dp_gpu

        return dp_gpu.solve(problem)
    from solver import auto, exact

    chosen: Callable[[Problem, float], Plan] = exact.solve if method == "exact" else auto.solve
    return chosen(problem, budget_ms)


def _solve_tiers(problem: Problem, tiers: list[int], method: str, deadline: float) -> Plan:
    plans: list[Plan] = []
    nodes = problem.nodes
    for k, tier in enumerate(tiers):
        mine = tuple(candidate for candidate in problem.candidates if candidate.tier == tier)
        left_ms = max(0.0, (deadline - time.perf_counter()) * 1e3 / (len(tiers) - k))
        part = replace(problem, nodes=nodes, candidates=mine)
        plan = _solve_one(part, method, left_ms)
        if not problem.quantum:
            problem = replace(problem, quantum=plan.quantum)
        plans.append(plan)
        costs = {candidate.id: candidate.cost for candidate in mine}
        used = dict.fromkeys((node.id for node in nodes), 0)
        for placement in plan.placements:
            used[placement.node] += -(-costs[placement.candidate] // plan.quantum) * plan.quantum
        nodes = tuple(Node(node.id, node.capacity - used[node.id]) for node in nodes)
    return Plan(
        placements=tuple(placement for plan in plans for placement in plan.placements),
        value=_sum(plan.value for plan in plans),
        bound=_sum(plan.bound for plan in plans),
        optimal=all(plan.optimal for plan in plans),
        method="+".join(dict.fromkeys(plan.method for plan in plans)),
        seconds=0.0,
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


def rounding_note(problem: Problem, plan: Plan) -> str:
    """What rounding costs at most: the room that no multiple of the quantum can use, and the round-up of costs."""
    quantum = plan.quantum
    room = sum(node.capacity for node in problem.nodes)
    lost = sum(node.capacity % quantum for node in problem.nodes)
    placed = {placement.candidate for placement in plan.placements}
    lost += sum([-candidate.cost % quantum for candidate in problem.candidates if candidate.id in placed])
    if not lost:
        return ""
    return f"rounding to {quantum} tokens takes {lost} of {room} tokens of room"


def warm_up() -> None:
    """Load or compile every numba kernel, so that the first snapshot finds them ready."""
    from solver.warm import warm_up as warm

    warm()
