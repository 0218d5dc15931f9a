# SPDX-License-Identifier: Apache-2.0
"""From an assignment of indices to a plan: checked, valued and in the order in which it is to be applied."""

from __future__ import annotations

import numpy as np

from solver.problem import Placement, Plan, Value
from solver.rounding import Ints, Rounded, credits_of
from tao_dynamo.errors import SolverError


def triplet(value: Value) -> tuple[int, int, int]:
    """The value as a tuple, which Python compares lexicographically."""
    return value.credit, value.ready, value.footprint


def make_plan(rounded: Rounded, assignment: Ints, *, bound: Value, method: str, seconds: float, note: str = "") -> Plan:
    """The plan of an assignment (``assignment[i]``: node of candidate ``i``, -1 for none).

    The most valuable placements come first, since only a prefix may be applied. ``optimal`` is set where the
    value meets ``bound``.

    Raises:
        SolverError: the assignment overfills a node, or its value is above the bound; both are defects of
            the method that made it, and such a plan must not reach a node.
    """
    placed = (assignment >= 0).nonzero()[0]
    used = np.bincount(assignment[placed], rounded.cost[placed], len(rounded.capacity)).astype(np.int64)
    if (used > rounded.capacity).any():
        worst = int(np.argmax(used - rounded.capacity))
        raise SolverError(
            f"{method}: node {rounded.node_ids[worst]} would hold {used[worst]} quanta of {rounded.capacity[worst]}"
        )
    credit = credits_of(rounded, assignment)
    ready, footprint = rounded.ready[placed], rounded.footprint[placed]
    value = Value(int(credit.sum()), int(ready.sum()), int(footprint.sum()))
    if triplet(value) > triplet(bound):
        raise SolverError(f"{method}: value {triplet(value)} above its bound {triplet(bound)}")
    order = placed[np.lexsort((placed, -footprint, -ready, -credit[placed]))]
    names, nodes = rounded.candidate_ids, rounded.node_ids
    where = assignment[order].tolist()
    placements = tuple([Placement(names[i], nodes[n]) for i, n in zip(order.tolist(), where, strict=True)])
    return Plan(
        placements=placements,
        value=value,
        bound=bound,
        optimal=triplet(value) == triplet(bound),
        method=method,
        seconds=seconds,
        quantum=rounded.quantum,
        note=note,
    )
