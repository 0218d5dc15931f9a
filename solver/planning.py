# SPDX-License-Identifier: Apache-2.0
"""From an assignment of indices to a plan: checked, valued and in the order in which it is to be applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from solver.columns import Ints
from solver.problem import Placement, Plan, Value
from solver.rounding import Rounded, credits_of
from tao_dynamo.errors import SolverError

if TYPE_CHECKING:
    from collections.abc import Callable


def triplet(value: Value) -> tuple[int, int, int]:
    """The value as a tuple, which Python compares lexicographically."""
    return value.credit, value.ready, value.footprint


class Review(NamedTuple):
    """What an assignment comes to: who is placed, most valuable first, the quanta used per node, the value."""

    order: Ints
    used: Ints
    credit: int
    ready: int
    footprint: int
    lost: int
    """Tokens of room that rounding takes: the capacities' remainders and the costs' round-up."""


def review(rounded: Rounded, assignment: Ints) -> Review:
    """Add an assignment up; of equal value the lowest index comes first."""
    placed = (assignment >= 0).nonzero()[0]
    used = np.bincount(assignment[placed], rounded.cost[placed], len(rounded.capacity)).astype(np.int64)
    credit = credits_of(rounded, assignment)
    ready, footprint = rounded.ready[placed], rounded.footprint[placed]
    order = placed[np.lexsort((placed, -footprint, -ready, -credit[placed]))]
    lost = rounded.lost_tokens + int(used.sum()) * rounded.quantum - int(rounded.tokens[placed].sum())
    return Review(order, used, int(credit.sum()), int(ready.sum()), int(footprint.sum()), lost)


def make_plan(
    rounded: Rounded,
    assignment: Ints,
    *,
    bound: Value,
    method: str,
    seconds: float,
    note: str = "",
    review: Callable[[Rounded, Ints], Review] = review,
) -> Plan:
    """The plan of an assignment (``assignment[i]``: node of candidate ``i``, -1 for none).

    The most valuable placements come first, since only a prefix may be applied. ``optimal`` is set where the
    value meets ``bound``. The note says what rounding costs. ``review`` may be a quicker one with the same results.

    Raises:
        SolverError: the assignment overfills a node, or its value is above the bound; both are defects of
            the method that made it, and such a plan must not reach a node.
    """
    order, used, *sums, lost = review(rounded, assignment)
    rooms = rounded.capacity - used
    if len(rooms) and rooms.min() < 0:
        worst = int(rooms.argmin())
        raise SolverError(
            f"{method}: node {rounded.node_ids[worst]} would hold {used[worst]} quanta of {rounded.capacity[worst]}"
        )
    value = Value(*sums)
    if triplet(value) > triplet(bound):
        raise SolverError(f"{method}: value {triplet(value)} above its bound {triplet(bound)}")
    placed = map(rounded.candidate_ids.__getitem__, order.tolist())
    where = map(rounded.node_ids.__getitem__, assignment[order].tolist())
    return Plan(
        placements=tuple(map(Placement, placed, where)),
        value=value,
        bound=bound,
        optimal=value == bound,
        method=method,
        seconds=seconds,
        quantum=rounded.quantum,
        note=with_rounding(note, rounded.quantum, lost, rounded.total_tokens),
    )


def with_rounding(note: str, quantum: int, lost: int, room: int) -> str:
    """The note, and what rounding costs."""
    if not lost:
        return note
    rounding = f"rounding to {quantum} tokens takes {lost} of {room} tokens of room"
    return f"{note}; {rounding}" if note else rounding
