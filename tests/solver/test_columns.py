# SPDX-License-Identifier: Apache-2.0
"""A snapshot read by columns: what is in it, in which order, and what else than the usual may be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

import solver
from solver import exact
from solver.columns import columns_of
from solver.planning import triplet
from solver.problem import Candidate, Node, Problem
from solver.quick import round_quick
from solver.rounding import round_problem
from solver.straight import go_straight, plan_of
from tao_dynamo.errors import ProblemError
from tests.solver.instances import KINDS, medium, small
from tests.solver.test_quick import same


class Name(str):
    """A name of a type of its own."""

    __slots__ = ()


class Credit(Mapping[str, int]):
    """A mapping that is no dict."""

    def __getitem__(self, key: str) -> int:
        return {"b": 4}[key]

    def __iter__(self) -> Iterator[str]:
        return iter(["b"])

    def __len__(self) -> int:
        return 1


def problem() -> Problem:
    nodes = (Node("a", 10), Node("b", 20))
    return Problem(nodes, (Candidate("x", 3, True, 2, {"b": 7, "a": 5}), Candidate("yy", 4, False, 1, tier=-2)), 1, 6)


def test_the_columns_are_the_fields_in_the_problems_order() -> None:
    columns = columns_of(problem())
    assert columns.shape == (2, 2, 2)
    assert [part.tolist() for part in columns.parts()] == [
        *([2, 0], [1, 0], [0, -2], [1, 0]),
        *([10, 20], [3, 4], [2, 1], [7, 5]),
    ]
    assert (columns.node_ids, columns.candidate_ids) == (["a", "b"], ["x", "yy"])
    assert (columns.quantum, columns.seed, columns.balance, columns.tiered) == (1, 6, True, True)
    assert columns_of(columns) is columns


def test_one_tier_is_taken_out_with_its_credits_and_other_rooms() -> None:
    columns = columns_of(problem())
    low, high = (columns.of_tier(tier, columns.parts().capacity - 1) for tier in (-2, 0))
    assert (low.candidate_ids, high.candidate_ids) == (["yy"], ["x"])
    assert [part.tolist() for part in low.parts()] == [[0], [0], [], [], [9, 19], [4], [1], []]
    assert [part.tolist() for part in high.parts()] == [[2], [1], [], [1, 0], [9, 19], [3], [2], [7, 5]]


@pytest.mark.parametrize("name", ["ä", "\U0001f600", Name("s"), "a\0b", "\ud800"])
def test_any_name_will_do(name: str) -> None:
    given = replace(problem(), candidates=(Candidate(name, 3, True, 2, Credit()), Candidate("y", 4, False, 1)))
    assert same(round_problem(given), round_quick(given))
    assert {p.candidate for p in solver.solve(given, method="exact").placements} == {name, "y"}


@pytest.mark.parametrize(("field", "value"), [("id", ""), ("id", b"s"), ("tier", 1 << 70), ("cost", 1 << 70)])
def test_what_fits_no_column_is_named(field: str, value: Any) -> None:
    with pytest.raises(ProblemError) as raised:
        columns_of(Problem((), (Candidate(**{"id": "s", "cost": 1, "ready": True, "footprint": 1, field: value}),)))
    assert raised.value.where == f"candidates[0].{field}"


@pytest.mark.parametrize("kind", KINDS)
def test_the_straight_way_gives_the_plan_of_the_single_steps(kind: str) -> None:
    settled = 0
    for seed in range(60):
        for given in (small(kind, seed), replace(medium(30, 4, kind, seed), quantum=seed % 3 * 700)):
            columns = columns_of(given)
            found = go_straight(columns, exact.now(), 10.0)
            if not found.settled:
                continue
            settled += 1
            plan = exact.refined(round_quick(columns), found.outcome, 0.0, 10.0)
            assert plan_of(columns, found, plan.seconds) == plan, (kind, seed)
    assert settled > 20


def test_names_with_one_checksum_go_straight_too() -> None:
    twins = tuple(Node(name, 9) for name in ("plumless", "buckeroo"))
    given = Problem(twins, (Candidate("s", 3, True, 1, {"plumless": 5}),), 1)
    assert go_straight(columns_of(given), exact.now(), 10.0).settled
    assert triplet(exact.solve(given).value) == (5, 1, 1)
