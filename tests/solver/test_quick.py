# SPDX-License-Identifier: Apache-2.0
"""Compiled rounding and review give what the plain ones do."""

from __future__ import annotations

import dataclasses
import zlib
from dataclasses import replace

import numpy as np
import pytest

from solver import bfd
from solver.planning import Review, review
from solver.problem import Candidate, Node, Problem
from solver.quick import review_quick, round_quick
from solver.rounding import Rounded, round_problem
from tests.solver.instances import KINDS, medium, small


def same(one: Rounded | Review, other: Rounded | Review) -> bool:
    """Compared field by field: arrays have no truth of their own."""
    if isinstance(one, Review):
        return all(np.array_equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))
    names = [field.name for field in dataclasses.fields(one)]
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_and_review_are_those_of_the_plain_ones(kind: str) -> None:
    for seed in range(60):
        for problem in (
            small(kind, seed),
            replace(medium(30, 4, kind, seed), quantum=seed % 3 * 700, balance=seed % 2 > 0),
        ):
            plain, quick = round_problem(problem), round_quick(problem)
            assert same(plain, quick), (kind, seed)
            assignment = bfd.assign(plain)
            assert same(review(plain, assignment), review_quick(quick, assignment)), (kind, seed)
            nobody = np.full(len(plain.cost), -1, dtype=np.int64)
            assert same(review(plain, nobody), review_quick(quick, nobody))


def test_names_with_one_checksum_are_told_apart() -> None:
    twins = ("plumless", "buckeroo")
    assert zlib.crc32(twins[0].encode()) == zlib.crc32(twins[1].encode())
    nodes = tuple(Node(name, 9) for name in twins)
    candidates = tuple(Candidate(name, 3 + k, True, k, {twins[k]: 5}) for k, name in enumerate(twins))
    for seed in range(5):
        forward = round_quick(Problem(nodes, candidates, 1, seed))
        backward = round_quick(Problem(nodes[::-1], candidates[::-1], 1, seed))
        assert same(forward, backward)
        assert same(forward, round_problem(Problem(nodes, candidates, 1, seed)))


def test_the_review_counts_what_overfills_a_node() -> None:
    rounded = round_quick(Problem((Node("a", 4),), tuple(Candidate(f"s{k}", 3, True, 1) for k in range(2)), 1))
    assert review_quick(rounded, np.zeros(2, dtype=np.int64)).used.tolist() == [6]
