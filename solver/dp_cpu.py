# SPDX-License-Identifier: Apache-2.0
"""The dense DP of :mod:`solver.dp_layer` on the CPU: the reference that every other method is held against."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from solver import bfd
from solver.columns import Ints, columns_of
from solver.dp_layer import DenseInstance, dense_instance, final_state, trace_back
from solver.jit import compiled
from solver.packing import WORD_BITS
from solver.planning import make_plan, triplet
from solver.rounding import Rounded, round_problem, trivial_bound, value_of
from tao_dynamo.errors import BudgetExceededError

if TYPE_CHECKING:
    from solver.columns import Snapshot
    from solver.problem import Plan

MAX_STATES = 200_000_000
"""Default cap on layers x states: one byte of decision each; about 16 more per state of one layer (32 if wide)."""

VOID = -(1 << WORD_BITS)
"""Unreachable, here: so low that no sum of gains lifts it to 0, which spares a test per step."""


def solve(problem: Snapshot, *, max_states: int = MAX_STATES) -> Plan:
    """The optimum of a valid problem, rounded to its quantum.

    Where the snapshot leaves the quantum open, the finest power of two is taken whose state space fits.

    Args:
        problem: what to solve.
        max_states: cap on layers times states of one layer.

    Raises:
        BudgetExceededError: the state space is larger; nothing has been tried.
    """
    began = time.perf_counter()
    rounded, instance = fitting(problem, max_states)
    assignment = greedy_optimum(rounded)
    if assignment is None:
        assignment = run(instance)
    return make_plan(
        rounded,
        assignment,
        bound=value_of(rounded, assignment),
        method="dp-cpu",
        seconds=time.perf_counter() - began,
    )


def greedy_optimum(rounded: Rounded) -> Ints | None:
    """The greedy assignment where every candidate gets its best, which needs no search; else None."""
    assignment = bfd.assign(rounded)
    if triplet(value_of(rounded, assignment)) == triplet(trivial_bound(rounded)):
        return assignment
    return None


def size(instance: DenseInstance) -> int:
    """Layers times states, as ``max_states`` counts them."""
    return instance.states * max(1, len(instance.cost))


def fitting(problem: Snapshot, max_states: int) -> tuple[Rounded, DenseInstance]:
    """The rounded problem and its state space, at the finest quantum that fits where it is open.

    Raises:
        BudgetExceededError: the space is larger than ``max_states``, and the greedy plan is not the optimum.
    """
    columns = columns_of(problem)
    rounded = round_problem(columns)
    instance = dense_instance(rounded)
    largest = columns.parts().capacity.max(initial=0)
    while not columns.quantum and size(instance) > max_states and rounded.quantum <= largest:
        rounded = round_problem(columns, rounded.quantum * 2)
        instance = dense_instance(rounded)
    if size(instance) > max_states and greedy_optimum(rounded) is None:
        raise BudgetExceededError("dp states (layers x states)", size(instance), max_states)
    return rounded, instance


def run(instance: DenseInstance) -> Ints:
    """Run all layers and trace back; the assignment of the rounded problem."""
    states, layers = instance.states, len(instance.cost)
    decision = np.empty((layers, states), dtype=np.uint8)
    if instance.packing.words == 1:
        low = np.full((2, states), VOID, dtype=np.int64)
        low[:, 0] = 0
        last = _run_narrow(instance.capacity, instance.stride, instance.cost, instance.gain_low, low, decision)
        high = np.zeros(states, dtype=np.int64)
    else:
        low = np.zeros((2, states), dtype=np.int64)
        wide = np.full((2, states), VOID, dtype=np.int64)
        wide[:, 0] = 0
        last = _run_wide(
            instance.capacity,
            instance.stride,
            instance.cost,
            instance.gain_high,
            instance.gain_low,
            wide,
            low,
            decision,
        )
        high = wide[last]
    return trace_back(instance, decision, final_state(instance, high, low[last]))


@compiled
def _run_narrow(
    capacity: Ints, stride: Ints, cost: Ints, gain: Ints, value: Ints, decision: npt.NDArray[np.uint8]
) -> int:
    """All layers on one-word values; ``value[2, S]`` is used in turns, the row of the last layer returned.

    The states from which and to which a node's placements go are contiguous runs, so the inner loops are
    plain sweeps, the first node's together with the copy. The highest node's used quanta are bounded by the
    costs so far (reachable states only).
    """
    nodes, states = len(capacity), value.shape[1]
    now, reach = 0, 0
    for layer in range(len(cost)):
        old, new, chosen = value[now], value[1 - now], decision[layer]
        quanta = cost[layer]
        reach += quanta
        end = min(states, (reach + 1) * stride[nodes - 1]) if nodes > 1 else states
        row = capacity[0] + 1
        skipped = min(quanta, row)
        gained = gain[layer, 0]
        for base in range(0, end, row):
            middle = base + skipped
            new[base:middle] = old[base:middle]
            chosen[base:middle] = 0
            source, kept = old[base : base + row - skipped], old[middle : base + row]
            target, mark = new[middle : base + row], chosen[middle : base + row]
            for k in range(row - skipped):
                placed = source[k] + gained
                better = placed > kept[k]
                target[k] = placed if better else kept[k]
                mark[k] = better
        for n in range(1, nodes):
            gained = gain[layer, n]
            number = np.uint8(n + 1)
            shift = quanta * stride[n]
            block = (capacity[n] + 1) * stride[n]
            for base in range(0, end, block):
                length = min(base + block, end) - base - shift
                if length > 0:
                    source = old[base : base + length]
                    target = new[base + shift : base + shift + length]
                    mark = chosen[base + shift : base + shift + length]
                    for k in range(length):
                        placed = source[k] + gained
                        better = placed > target[k]
                        target[k] = placed if better else target[k]
                        mark[k] = number if better else mark[k]
        now = 1 - now
    return now


@compiled
def _run_wide(
    capacity: Ints,
    stride: Ints,
    cost: Ints,
    gain_high: Ints,
    gain_low: Ints,
    high: Ints,
    low: Ints,
    decision: npt.NDArray[np.uint8],
) -> int:
    """As :func:`_run_narrow`, on two-word values, compared high word first."""
    nodes, states = len(capacity), high.shape[1]
    now, reach = 0, 0
    for layer in range(len(cost)):
        old_high, new_high, old_low, new_low = high[now], high[1 - now], low[now], low[1 - now]
        chosen = decision[layer]
        quanta = cost[layer]
        reach += quanta
        end = min(states, (reach + 1) * stride[nodes - 1]) if nodes > 1 else states
        row = capacity[0] + 1
        skipped = min(quanta, row)
        gained_high, gained_low = gain_high[layer, 0], gain_low[layer, 0]
        for base in range(0, end, row):
            middle = base + skipped
            new_high[base:middle] = old_high[base:middle]
            new_low[base:middle] = old_low[base:middle]
            chosen[base:middle] = 0
            length = row - skipped
            source_high, source_low = old_high[base : base + length], old_low[base : base + length]
            kept_high, kept_low = old_high[middle : base + row], old_low[middle : base + row]
            target_high, target_low = new_high[middle : base + row], new_low[middle : base + row]
            mark = chosen[middle : base + row]
            for k in range(length):
                placed_high, placed_low = source_high[k] + gained_high, source_low[k] + gained_low
                better = (placed_high > kept_high[k]) | ((placed_high == kept_high[k]) & (placed_low > kept_low[k]))
                target_high[k] = placed_high if better else kept_high[k]
                target_low[k] = placed_low if better else kept_low[k]
                mark[k] = better
        for n in range(1, nodes):
            gained_high, gained_low = gain_high[layer, n], gain_low[layer, n]
            number = np.uint8(n + 1)
            shift = quanta * stride[n]
            block = (capacity[n] + 1) * stride[n]
            for base in range(0, end, block):
                length = min(base + block, end) - base - shift
                if length <= 0:
                    continue
                source_high, source_low = old_high[base : base + length], old_low[base : base + length]
                first = base + shift
                target_high, target_low = new_high[first : first + length], new_low[first : first + length]
                mark = chosen[first : first + length]
                for k in range(length):
                    placed_high, placed_low = source_high[k] + gained_high, source_low[k] + gained_low
                    better = (placed_high > target_high[k]) | (
                        (placed_high == target_high[k]) & (placed_low > target_low[k])
                    )
                    target_high[k] = placed_high if better else target_high[k]
                    target_low[k] = placed_low if better else target_low[k]
                    mark[k] = number if better else mark[k]
        now = 1 - now
    return now
