# SPDX-License-Identifier: Apache-2.0
"""Exact far beyond the dense DP: credit by node, readiness and footprint in the room left over, then a search.

1. The greedy plan; where every candidate got its best there is nothing to prove.
2. The greatest credit (:mod:`solver.credit_search`), and the pairs that every such choice has in common.
3. The room that they leave, filled by a multiple knapsack (:mod:`solver.leftover`), with its bound.
4. Where plan and bound do not meet, or pairs are open because credits tie: the residue as a problem of its
   own (:mod:`solver.residue`) and a tree search (:mod:`solver.tree`), until the budget ends.
5. Balance among equals, and never less than the greedy plan.
"""

from __future__ import annotations

import time

import numpy as np

from solver import bfd
from solver.credit import Pairs, make_pairs
from solver.credit_agree import agreed_pairs
from solver.credit_common import DEAD, FIXED, OPEN
from solver.credit_search import CreditResult, solve_credit
from solver.fill import even_out, move_first
from solver.leftover import fill
from solver.packing import Packing
from solver.planning import make_plan, triplet
from solver.problem import Plan, Problem, Value
from solver.residue import Residue, load, make_residue, solve_ready, solve_residue
from solver.rounding import Ints, Rounded, round_problem, trivial_bound, value_of
from solver.tree_search import TreeSearch

CREDIT_SHARE = 0.75
"""Share of the budget after which the credit must do with a bound."""
SWEEP_SHARE = 0.5
"""Share of what is left then for what all credit optima agree on."""
RESIDUE_SHARE = 0.5
"""Share of what is left then that the residue's prices may take."""
FIRST_CHUNKS = 2
"""Chunks of the tree search before the prices: most small residues are done by then."""
LAST_CHUNKS = 1 << 20
BALANCE_ROUNDS = 4
MANY = 1 << 61
"""More than any footprint: where only footprints count, no item is ready."""


def solve(problem: Problem, budget_ms: float = 50.0) -> Plan:
    """The best plan found within the budget, with a bound; the optimum where ``optimal`` says so.

    Raises:
        BudgetExceededError: values too large for any packing.
    """
    began = time.perf_counter()
    rounded = round_problem(problem)
    assignment, bound = assign(rounded, began, budget_ms / 1e3)
    return make_plan(rounded, assignment, bound=bound, method="exact", seconds=time.perf_counter() - began)


def assign(rounded: Rounded, began: float, budget: float) -> tuple[Ints, Value]:
    """Assignment and bound; ``began`` by ``time.perf_counter``, ``budget`` in seconds."""
    greedy = bfd.assign(rounded)
    ceiling = trivial_bound(rounded)
    if triplet(value_of(rounded, greedy)) == triplet(ceiling):
        return greedy, ceiling
    pairs = make_pairs(rounded)
    known = (greedy[pairs.owner] == pairs.node).astype(np.uint8)
    found = solve_credit(pairs, began + CREDIT_SHARE * budget, known)
    at, bound = _complete(rounded, pairs, found, began + budget)
    if found.bound > found.credit:
        bound = Value(found.bound, ceiling.ready, ceiling.footprint)
    _settle_ties(rounded, at)
    if triplet(value_of(rounded, greedy)) > triplet(value_of(rounded, at)):
        at = greedy
    return at, max(bound, value_of(rounded, at), key=triplet)


def _complete(rounded: Rounded, pairs: Pairs, found: CreditResult, deadline: float) -> tuple[Ints, Value]:
    """From the credit to a whole plan; the bound holds where the credit is proven."""
    packing = Packing.fit(0, int(rounded.ready.sum()), sum(rounded.footprint.tolist()))
    worth = rounded.ready << packing.footprint_bits | rounded.footprint
    status = np.where(found.held, FIXED, DEAD).astype(np.uint8)
    residue = make_residue(rounded, pairs, status, found.credit, worth, packing)
    filling = fill(rounded.cost[residue.items], worth[residue.items], residue.rooms, 1 << packing.footprint_bits)
    at = residue.at.copy()
    at[residue.items] = filling.at
    if found.bound == found.credit:
        now = time.perf_counter()
        status = agreed_pairs(pairs, found, now + SWEEP_SHARE * (deadline - now))
        status[rounded.cost[pairs.owner] == 0] = FIXED
        if (status == OPEN).any():
            residue = make_residue(rounded, pairs, status, found.credit, worth, packing)
            filling = fill(
                rounded.cost[residue.items], worth[residue.items], residue.rooms, 1 << packing.footprint_bits
            )
    rest = packing.unpack(0, int(worth[residue.at >= 0].sum()) + filling.bound)
    bound = Value(found.credit, rest.ready, rest.footprint)
    if found.bound > found.credit or triplet(value_of(rounded, at)) == triplet(bound):
        return at, bound
    return _refine(residue, found.price, at, bound, deadline)


def _refine(residue: Residue, price: Ints, at: Ints, bound: Value, deadline: float) -> tuple[Ints, Value]:
    """Close the gap between the plan ``at`` and ``bound`` as far as time allows."""
    rounded = residue.rounded
    tree = TreeSearch(residue, price, at)
    tree.run(deadline, FIRST_CHUNKS)
    for step in (_more_ready, _all_at_once):
        if tree.proven or triplet(value_of(rounded, tree.best)) == triplet(bound):
            break
        now = time.perf_counter()
        better, limit = step(residue, tree.best, bound, now + RESIDUE_SHARE * (deadline - now))
        bound = min(bound, limit, key=triplet)
        if triplet(value_of(rounded, better)) > triplet(value_of(rounded, tree.best)):
            tree.improve(better)
    if triplet(value_of(rounded, tree.best)) < triplet(bound):
        tree.run(deadline, LAST_CHUNKS)
    value = value_of(rounded, tree.best)
    return tree.best, value if tree.proven else bound


def _more_ready(residue: Residue, at: Ints, bound: Value, deadline: float) -> tuple[Ints, Value]:
    """Readiness alone, where ``bound`` allows more of it than ``at`` has; a plan and a bound."""
    rounded = residue.rounded
    value, fixed = value_of(rounded, at), value_of(rounded, residue.at)
    if value.ready == bound.ready:
        return at, bound
    answer = solve_ready(residue, at, bound.ready - fixed.ready, deadline)
    if answer is None:
        return at, bound
    better, most = answer
    if fixed.ready + most < bound.ready:
        cost = rounded.cost[residue.items]
        heaviest = fill(cost, rounded.footprint[residue.items], residue.rooms, MANY).bound
        bound = Value(bound.credit, fixed.ready + most, fixed.footprint + heaviest)
    if residue.tied:
        # What was found may lack the credit; the bound holds, since it leaves the credit out of account.
        return at, bound
    rooms = rounded.capacity - load(rounded, better)
    left = residue.items[better[residue.items] < 0]
    filling = fill(rounded.cost[left], residue.worth[left], rooms, 1 << residue.packing.footprint_bits)
    better[left] = filling.at
    return better, bound


def _all_at_once(residue: Residue, at: Ints, bound: Value, deadline: float) -> tuple[Ints, Value]:
    """Credit, readiness and footprint of the residue by prices on the packed value; a plan and a bound."""
    answer = solve_residue(residue, at, deadline)
    if answer is None:
        return at, bound
    better, added = answer
    fixed = value_of(residue.rounded, residue.at)
    return better, Value(fixed.credit + added.credit, fixed.ready + added.ready, fixed.footprint + added.footprint)


def _settle_ties(rounded: Rounded, at: Ints) -> None:
    """Among plans of the same value: even out the room left over, or go by the order of the nodes."""
    settle = even_out if rounded.balance else move_first
    settle(
        rounded.cost,
        rounded.home_start,
        rounded.home_node,
        rounded.home_credit,
        rounded.capacity - load(rounded, at),
        at,
        BALANCE_ROUNDS,
    )
