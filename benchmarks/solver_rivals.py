# SPDX-License-Identifier: Apache-2.0
"""The same problem in two general solvers: OR-Tools CP-SAT and HiGHS.

Both get the rounded problem as the obvious model, a 0/1 variable per candidate and node that it fits. CP-SAT
gets the packed value as one objective. HiGHS computes in doubles, which cannot hold that: it solves component
by component, the best credit, then the best readiness with that credit kept, then the best footprint.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from solver.packing import Packing
from solver.problem import Value
from solver.rounding import round_problem, value_of
from tao_dynamo.errors import BudgetExceededError

if TYPE_CHECKING:
    from collections.abc import Callable

    from solver.columns import Ints
    from solver.problem import Problem
    from solver.rounding import Rounded


@dataclass(frozen=True, slots=True)
class Answer:
    """What a method found, in how many seconds, and how much of it is proven.

    ``proven`` counts the leading components (credit, readiness, footprint) whose optimum is proven: 3 is all.
    """

    value: Value | None
    proven: int
    seconds: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Every (candidate, node) that fits, ``P`` of them, and what each adds to the three components."""

    candidate: Ints
    node: Ints
    gains: tuple[Ints, Ints, Ints]


def _pairs(rounded: Rounded) -> _Pairs:
    fits = rounded.cost[:, None] <= rounded.capacity[None, :]
    candidate, node = (axis.astype(np.int64) for axis in np.nonzero(fits))
    credit = np.zeros(fits.shape, dtype=np.int64)
    owner = np.repeat(np.arange(len(rounded.cost)), np.diff(rounded.home_start))
    credit[owner, rounded.home_node] = rounded.home_credit
    gains = (credit[candidate, node], rounded.ready[candidate], rounded.footprint[candidate])
    return _Pairs(candidate, node, gains)


def _assignment(rounded: Rounded, pairs: _Pairs, chosen: Ints) -> Ints:
    assignment = np.full(len(rounded.cost), -1, dtype=np.int64)
    assignment[pairs.candidate[chosen]] = pairs.node[chosen]
    return assignment


_Stage = tuple["Ints | None", bool]


def _lexicographic(
    problem: Problem, limit_s: float, model: Callable[[Rounded, _Pairs], Callable[[int, float], _Stage]]
) -> Answer:
    """Run a model's three stages; ``stage(component, limit_s)`` gives the pairs chosen and whether proven."""
    began = time.perf_counter()
    rounded = round_problem(problem)
    pairs = _pairs(rounded)
    stage = model(rounded, pairs)
    best: Ints | None = None
    proven = 0
    for component in range(3):
        left = limit_s - (time.perf_counter() - began)
        chosen, optimal = stage(component, left) if left > 0 else (None, False)
        best = chosen if chosen is not None else best
        if not optimal:
            break
        proven = component + 1
    seconds = time.perf_counter() - began
    if best is None:
        if proven < len(pairs.gains):
            return Answer(None, proven, seconds, "no solution in time")
        best = np.zeros(0, dtype=np.int64)
    return Answer(value_of(rounded, _assignment(rounded, pairs, best)), proven, seconds)


def cp_sat(problem: Problem, limit_s: float, threads: int) -> Answer:
    """OR-Tools CP-SAT within ``limit_s`` seconds.

    One weighted objective, two to ten times faster here than three stages; stages where 62 bits cannot hold it.
    """
    began = time.perf_counter()
    rounded = round_problem(problem)
    pairs = _pairs(rounded)
    packing = _packing(rounded, pairs)
    if packing is None:
        return _lexicographic(problem, limit_s, partial(_cp_sat_stages, threads=threads))

    from ortools.sat.python import cp_model

    made, chosen = _cp_sat_model(rounded, pairs)
    credit, ready, footprint = pairs.gains
    weights = (credit << packing.credit_shift) | (ready << packing.footprint_bits) | footprint
    if not len(weights):
        return Answer(Value(), 3, time.perf_counter() - began)
    made.maximize(sum(gain * var for gain, var in zip(weights.tolist(), chosen, strict=True)))
    solver = _cp_sat_solver(max(0.01, limit_s - (time.perf_counter() - began)), threads)
    status = solver.solve(made)
    seconds = time.perf_counter() - began
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Answer(None, 0, seconds, "no solution in time")
    value = value_of(rounded, _assignment(rounded, pairs, np.flatnonzero(solver.boolean_values(chosen))))
    if status == cp_model.OPTIMAL:
        return Answer(value, 3, seconds)
    # The bound comes as a double: beyond 53 bits it proves nothing.
    exact = packing.credit_bits + packing.credit_shift <= 53
    bound = packing.unpack(0, min(int(solver.best_objective_bound), packing.pack(_totals(rounded, pairs))[1]))
    met = exact and bound.credit == value.credit
    return Answer(value, int(met) + int(met and bound.ready == value.ready), seconds)


def _packing(rounded: Rounded, pairs: _Pairs) -> Packing | None:
    totals = _totals(rounded, pairs)
    try:
        packing = Packing.fit(totals.credit, totals.ready, totals.footprint)
    except BudgetExceededError:
        return None
    return packing if packing.words == 1 else None


def _totals(rounded: Rounded, pairs: _Pairs) -> Value:
    """Every candidate at its best: no value is above it in any component."""
    best = np.zeros(len(rounded.cost), dtype=np.int64)
    np.maximum.at(best, pairs.candidate, pairs.gains[0])
    return Value(*(sum(each.tolist()) for each in (best, rounded.ready, rounded.footprint)))


def _cp_sat_solver(limit_s: float, threads: int) -> Any:
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.num_workers = threads
    return solver


def _cp_sat_model(rounded: Rounded, pairs: _Pairs) -> tuple[Any, list[Any]]:
    from ortools.sat.python import cp_model

    made = cp_model.CpModel()
    chosen = [made.new_bool_var("") for _ in range(len(pairs.candidate))]
    by_candidate, by_node = _groups(pairs)
    for group in by_candidate:
        made.add_at_most_one(chosen[k] for k in group)
    costs = rounded.cost[pairs.candidate].tolist()
    for node, group in by_node.items():
        load = sum(costs[k] * chosen[k] for k in group)
        made.add(load <= int(rounded.capacity[node]))
    return made, chosen


def _cp_sat_stages(rounded: Rounded, pairs: _Pairs, threads: int) -> Callable[[int, float], _Stage]:
    from ortools.sat.python import cp_model

    made, chosen = _cp_sat_model(rounded, pairs)

    def stage(component: int, left_s: float) -> _Stage:
        gains = pairs.gains[component].tolist()
        objective = sum(gain * var for gain, var in zip(gains, chosen, strict=True) if gain)
        if isinstance(objective, int):
            # Nothing to gain in this component: what stands is the best.
            return None, True
        made.maximize(objective)
        solver = _cp_sat_solver(left_s, threads)
        status = solver.solve(made)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None, False
        values = solver.boolean_values(chosen)
        picked = np.flatnonzero(np.asarray(values))
        made.add(objective >= int(pairs.gains[component][picked].sum()))
        made.clear_hints()
        for var, value in zip(chosen, values, strict=True):
            made.add_hint(var, bool(value))
        return picked, status == cp_model.OPTIMAL

    return stage


def highs(problem: Problem, limit_s: float, threads: int) -> Answer:
    """HiGHS' branch and cut within ``limit_s`` seconds, with no gap allowed."""

    def model(rounded: Rounded, pairs: _Pairs) -> Callable[[int, float], _Stage]:
        import highspy

        count = len(pairs.candidate)
        solver = highspy.Highs()
        solver.silent()
        solver.setOptionValue("threads", threads)
        solver.setOptionValue("mip_rel_gap", 0.0)
        # Every component is a whole number, so less than one apart is optimal.
        solver.setOptionValue("mip_abs_gap", 0.5)
        solver.addVars(count, np.zeros(count), np.ones(count))
        index = np.arange(count, dtype=np.int32)
        solver.changeColsIntegrality(count, index, np.full(count, highspy.HighsVarType.kInteger))
        solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
        by_candidate, by_node = _groups(pairs)
        for group in by_candidate:
            _row(solver, -np.inf, 1.0, np.array(group), np.ones(len(group)))
        for node, group in by_node.items():
            load = rounded.cost[pairs.candidate[group]].astype(np.float64)
            _row(solver, -np.inf, float(rounded.capacity[node]), np.array(group), load)

        def stage(component: int, left_s: float) -> _Stage:
            gains = pairs.gains[component]
            if not gains.any():
                return None, True
            solver.changeColsCost(count, index, gains.astype(np.float64))
            solver.setOptionValue("time_limit", left_s)
            solver.run()
            if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
                return None, False
            # Adding a row below makes HiGHS forget its verdict.
            optimal = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
            picked = np.flatnonzero(np.array(solver.getSolution().col_value) > 0.5)
            used = np.flatnonzero(gains)
            _row(solver, float(gains[picked].sum()) - 0.5, np.inf, used, gains[used].astype(np.float64))
            return picked, optimal

        return stage

    return _lexicographic(problem, limit_s, model)


def _row(solver: Any, low: float, high: float, index: Ints, value: np.ndarray[Any, Any]) -> None:
    solver.addRow(low, high, len(index), index.astype(np.int32), value)


def _groups(pairs: _Pairs) -> tuple[list[list[int]], dict[int, list[int]]]:
    by_candidate: dict[int, list[int]] = {}
    by_node: dict[int, list[int]] = {}
    for k, (candidate, node) in enumerate(zip(pairs.candidate.tolist(), pairs.node.tolist(), strict=True)):
        by_candidate.setdefault(candidate, []).append(k)
        by_node.setdefault(node, []).append(k)
    return list(by_candidate.values()), by_node
