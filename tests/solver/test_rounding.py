# SPDX-License-Identifier: Apache-2.0
"""Costs up, capacities down, and an order that depends on seed and names alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from solver.problem import Candidate, Node, Problem, Value
from solver.rounding import choose_quantum, round_problem, seeded_order, trivial_bound, value_of
from tests.solver.instances import small


def test_costs_round_up_and_capacities_down() -> None:
    problem = Problem((Node("a", 2047),), (Candidate("s", 1025, True, 9, {"a": 4}), Candidate("t", 0, True, 1)), 1024)
    rounded = round_problem(problem)
    assert rounded.capacity.tolist() == [1]
    assert sorted(rounded.cost.tolist()) == [0, 2]
    assert rounded.total_tokens == 2047
    assert rounded.lost_tokens == 1023
    assert sorted(rounded.tokens.tolist()) == [0, 1025]
    assert len(rounded.home_node) == 0, "a credit that cannot be had is left out"


def test_the_order_is_the_seeds_and_not_the_listings() -> None:
    names = [f"w{k}/0" for k in range(9)]
    forward = [names[k] for k in seeded_order(names, 3)]
    backward = [names[::-1][k] for k in seeded_order(names[::-1], 3)]
    assert forward == backward
    assert forward != [names[k] for k in seeded_order(names, 4)]


def test_no_name_is_first_more_often_than_chance() -> None:
    names = [f"w{k}/0" for k in range(4)]
    first = Counter(seeded_order(names, seed)[0] for seed in range(4000))
    assert all(850 < first[k] < 1150 for k in range(4)), first


def test_the_chosen_quantum_cuts_the_largest_node_into_enough() -> None:
    assert choose_quantum(200_000) == 512
    assert choose_quantum(262_144) == 1024
    assert choose_quantum(100) == 1
    assert choose_quantum(0) == 1


def test_value_and_its_trivial_bound() -> None:
    problem = Problem(
        (Node("a", 5), Node("b", 3)),
        (
            Candidate("s", 3, True, 7, {"a": 10, "b": 20}),
            Candidate("t", 4, False, 2, {"b": 9, "a": 1}),
            Candidate("u", 6, True, 100),
        ),
        1,
    )
    rounded = round_problem(problem)
    assert trivial_bound(rounded) == Value(21, 1, 9)
    at = {"s": "b", "t": "a"}
    index = {name: k for k, name in enumerate(rounded.node_ids)}
    assignment = rounded.cost * 0 - 1
    for k, name in enumerate(rounded.candidate_ids):
        if name in at:
            assignment[k] = index[at[name]]
    assert value_of(rounded, assignment) == Value(21, 1, 9)


def test_listing_order_does_not_change_the_arrays() -> None:
    for seed in range(50):
        problem = small("plain", seed)
        turned = replace(problem, nodes=problem.nodes[::-1], candidates=problem.candidates[::-1])
        one, other = round_problem(problem), round_problem(turned)
        assert one.candidate_ids == other.candidate_ids
        assert one.node_ids == other.node_ids
