# SPDX-License-Identifier: Apache-2.0
"""The dense DP: the fast loops follow the definition, the reductions keep it exact, the cap is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import solver
from solver import dp_cpu
from solver.dp_layer import UNREACHABLE, apply_layer, dense_instance, final_state, trace_back, unpack_state
from solver.packing import Packing
from solver.problem import Candidate, Node, Problem
from solver.rounding import round_problem, value_of
from tao_dynamo.errors import BudgetExceededError
from tests.solver.instances import KINDS, small


@pytest.mark.parametrize("kind", KINDS)
def test_the_fast_loops_give_the_definitions_plan(kind: str) -> None:
    words = set()
    for seed in range(40):
        rounded = round_problem(small(kind, seed))
        instance = dense_instance(rounded)
        words.add(instance.packing.words)
        high = np.zeros(instance.states, dtype=np.int64)
        low = np.zeros(instance.states, dtype=np.int64)
        (low if instance.packing.words == 1 else high)[1:] = UNREACHABLE
        decision = np.zeros((len(instance.cost), instance.states), dtype=np.uint8)
        for layer in range(len(instance.cost)):
            decision[layer] = apply_layer(instance, layer, high, low)
        state = final_state(instance, high, low)
        plain = trace_back(instance, decision, state)
        assert np.array_equal(plain, dp_cpu.run(instance)), (kind, seed)
        paying = value_of(rounded, np.where(rounded.cost > 0, plain, -1))
        assert unpack_state(instance, high, low, state) == paying
    assert (2 in words) == (kind == "wide")


def test_two_words_give_the_plan_of_one() -> None:
    for seed in range(20):
        rounded = round_problem(small("plain", seed))
        instance = dense_instance(rounded)
        packing = Packing(instance.packing.credit_bits, instance.packing.ready_bits, instance.packing.footprint_bits, 2)
        low = instance.gain_low & ((1 << packing.credit_shift) - 1)
        wide = replace(instance, packing=packing, gain_high=instance.gain_low >> packing.credit_shift, gain_low=low)
        assert np.array_equal(dp_cpu.run(instance), dp_cpu.run(wide))


def test_reductions_shrink_the_space() -> None:
    problem = Problem(
        (Node("a", 100), Node("b", 5), Node("c", 39)),
        (
            *(Candidate(f"s{k}", 12 + 8 * (k % 2), True, 1, {"a": k + 1}) for k in range(7)),
            Candidate("x", 500, True, 1),
        ),
        1,
    )
    instance = dense_instance(round_problem(problem))
    assert len(instance.node) == 2, "b holds nobody"
    assert len(instance.candidate) == 7, "x fits nowhere"
    assert sorted(instance.cost.tolist()) == [3, 3, 3, 3, 5, 5, 5], "divided by 4"
    assert sorted(instance.capacity.tolist()) == [9, 24], (
        "39 // 4 = 3 * 3; the costs add up to 27, so to 24 but never to 25"
    )
    assert instance.states == 10 * 25


def test_balance_is_the_last_component() -> None:
    nodes = tuple(Node(f"n{k}", 20) for k in range(2))
    blocker = Candidate("big", 15, True, 15, {"n0": 5})
    rival = Candidate("rival", 8, True, 8, {"n0": 4})
    equals = tuple(Candidate(f"s{k}", 1, True, 1) for k in range(7))
    plan = solver.solve(Problem(nodes, (blocker, rival, *equals), 1), method="dp-cpu")
    at = {p.candidate: p.node for p in plan.placements}
    assert at["big"] == "n0"
    assert at["rival"] == "n1"
    assert sum(at[c.id] == "n1" for c in equals) == 7, "15 and 8 + 7 leave the same room"


def test_what_does_not_fit_is_said_and_not_tried() -> None:
    problem = Problem(
        tuple(Node(f"n{k}", 4_000) for k in range(8)), tuple(Candidate(f"s{k}", 900 + k, True, k) for k in range(90)), 1
    )
    with pytest.raises(BudgetExceededError) as raised:
        dp_cpu.solve(problem)
    assert raised.value.budget == dp_cpu.MAX_STATES
    assert raised.value.needed > 1e27
    with pytest.raises(BudgetExceededError, match="budget 10"):
        dp_cpu.solve(
            Problem(
                (Node("a", 9), Node("b", 7)),
                (Candidate("s", 3, True, 1), Candidate("t", 8, True, 1), Candidate("u", 2, True, 1)),
                1,
            ),
            max_states=10,
        )
