# SPDX-License-Identifier: Apache-2.0
"""What a snapshot must be before any method may see it: checked field by field, first fault named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tao_dynamo.errors import ProblemError

if TYPE_CHECKING:
    from solver.problem import Candidate, Problem

MAX_TOKENS = 1 << 40
"""Largest number of tokens in one field; far above any node, far below an overflow."""


def validate(problem: Problem) -> None:
    """Check every field of a problem, one by one (:func:`solver.columns.columns_of` is quicker where all is well).

    Raises:
        ProblemError: names the field, such as ``candidates[3].cost``, what it holds and what it should.
    """
    _whole("quantum", problem.quantum)
    if type(problem.seed) is not int:
        raise ProblemError("seed", problem.seed, "a whole number")
    if type(problem.balance) is not bool:
        raise ProblemError("balance", problem.balance, "true or false")
    nodes: dict[str, int] = {}
    for k, node in enumerate(problem.nodes):
        _name(f"nodes[{k}].id", node.id, nodes)
        nodes[node.id] = k
        _whole(f"nodes[{k}].capacity", node.capacity)
    seen: dict[str, int] = {}
    for k, candidate in enumerate(problem.candidates):
        _name(f"candidates[{k}].id", candidate.id, seen)
        seen[candidate.id] = k
        _check_candidate(k, candidate, nodes)


def _check_candidate(k: int, candidate: Candidate, nodes: dict[str, int]) -> None:
    cost, footprint = candidate.cost, candidate.footprint
    if type(cost) is not int or not 0 <= cost <= MAX_TOKENS:
        _whole(f"candidates[{k}].cost", cost)
    if type(footprint) is not int or not 0 <= footprint <= MAX_TOKENS:
        _whole(f"candidates[{k}].footprint", footprint)
    if type(candidate.ready) is not bool:
        raise ProblemError(f"candidates[{k}].ready", candidate.ready, "true or false")
    if type(candidate.tier) is not int or abs(candidate.tier) > MAX_TOKENS:
        raise ProblemError(
            f"candidates[{k}].tier", candidate.tier, f"a whole number from {-MAX_TOKENS} to {MAX_TOKENS}"
        )
    for node, credit in candidate.credit.items():
        if node not in nodes:
            raise ProblemError(f"candidates[{k}].credit", node, "the id of a node of this problem")
        _whole(f"candidates[{k}].credit[{node}]", credit)


def _whole(where: str, number: object) -> None:
    """Exactly ``int``: a bool, a NaN or a numpy scalar is a fault of the caller, named here."""
    if type(number) is not int or not 0 <= number <= MAX_TOKENS:
        raise ProblemError(where, number, f"a whole number from 0 to {MAX_TOKENS}")


def _name(where: str, name: object, taken: dict[str, int]) -> None:
    if not isinstance(name, str) or not name:
        raise ProblemError(where, name, "a name that is not empty")
    if name in taken:
        raise ProblemError(where, name, f"an id of its own; entry {taken[name]} has it already")
