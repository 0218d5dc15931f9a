# SPDX-License-Identifier: Apache-2.0
"""From columns to placements in one compiled call, for the many snapshots that need no search.

The same as rounding (:mod:`solver.quick`), :mod:`solver.decompose` and the review of a plan one after the other;
it saves handing a dozen arrays from one call to the next, which is a third of the time of a small snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from solver.decompose import Outcome, decompose
from solver.jit import compiled
from solver.packing import WORD_BITS
from solver.planning import with_rounding
from solver.problem import Placement, Plan, Value
from solver.quick import arrange, ordered, review_arrays, spelled, unit_of
from solver.rounding import hash_offset

if TYPE_CHECKING:
    from solver.columns import Columns, Ints
    from solver.quick import Letters


class Straight(NamedTuple):
    """``outcome`` of the rounded problem; where ``settled``, its plan is the one to return.

    Then ``candidate[P]`` is on ``node[P]`` (places in the columns), most valuable first. ``bits`` are those of the
    footprint in ``outcome.rest_bound``, 0 where the packed worth of all would not fit a word, and nothing is settled;
    ``lost`` of ``room`` tokens go into rounding. All is void where the order is not ``sure``.
    """

    sure: bool
    settled: bool
    outcome: Outcome
    candidate: Ints
    node: Ints
    credit: int
    ready: int
    footprint: int
    bits: int
    lost: int
    room: int


def go_straight(columns: Columns, began: float, budget: float) -> Straight:
    """Round, decompose and review; ``began`` by :func:`solver.clock.now`, ``budget`` in seconds."""
    count, nodes, _ = columns.shape
    rounding = columns.numbers, columns.tiered, nodes, count, unit_of(columns), hash_offset(columns.seed)
    found = _straight(*rounding, *spelled(columns), began, budget, columns.balance)
    return found if found.sure else _straight(*rounding, *ordered(columns), began, budget, columns.balance)


@compiled
def _straight(
    numbers: Ints,
    tiered: bool,
    nodes: int,
    count: int,
    unit: int,
    offset: np.uint64,
    text: Letters,
    known: Ints,
    began: float,
    budget: float,
    balance: bool,
) -> Straight:
    made = arrange(numbers, tiered, nodes, count, unit, offset, text, known)
    homes = made.home_start, made.home_node, made.home_credit
    bits = _bits(made.footprint.sum())
    fits = bits + _bits(made.ready.sum()) <= WORD_BITS
    if not fits:
        bits = 0
    worth = (made.ready << bits | made.footprint) if fits else made.ready
    # Without a sure order all is done once more.
    time = budget if made.sure else 0.0
    outcome = decompose(made.cost, worth, made.capacity, *homes, 1 << bits, began, time, balance)
    order, used, credit, ready, footprint, lost = review_arrays(
        made.cost, made.ready, made.footprint, *homes, made.tokens, outcome.at, nodes, unit, made.lost
    )
    value, bound = (credit, ready << bits | footprint), (outcome.credit_bound, outcome.rest_bound)
    # A plan that overfills a node or beats its bound is a defect; `make_plan` will say so.
    settled = fits and not outcome.open and value <= bound and bool((used <= made.capacity).all())
    where = made.node_order[outcome.at[order]]
    who = made.order[order]
    return Straight(made.sure, settled, outcome, who, where, credit, ready, footprint, bits, lost, made.total)


@compiled
def _bits(total: int) -> int:
    """``total.bit_length()``."""
    bits = 0
    while total >> bits:
        bits += 1
    return bits


def plan_of(columns: Columns, found: Straight, seconds: float) -> Plan:
    """The plan of what is settled."""
    quantum, rest = unit_of(columns), found.outcome.rest_bound
    names = map(columns.candidate_ids.__getitem__, found.candidate.tolist())
    where = map(columns.node_ids.__getitem__, found.node.tolist())
    value = Value(found.credit, found.ready, found.footprint)
    bound = Value(found.outcome.credit_bound, rest >> found.bits, rest & (1 << found.bits) - 1)
    return Plan(
        placements=tuple(map(Placement, names, where)),
        value=value,
        bound=bound,
        optimal=value == bound,
        method="exact",
        seconds=seconds,
        quantum=quantum,
        note=with_rounding("", quantum, found.lost, found.room),
    )
