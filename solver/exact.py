# SPDX-License-Identifier: Apache-2.0
"""Exact far beyond the dense DP: credit by node, readiness and footprint in the room left over, then a search.

1. In one compiled call (:mod:`solver.decompose`): the greedy plan, and where every candidate got its best there
   is nothing to prove; the greatest credit (:mod:`solver.credit_search`) and the pairs that every such choice has
   in common; the room that they leave, filled by a multiple knapsack (:mod:`solver.leftover`), with its bound.
2. Where plan and bound do not meet, or pairs are open because credits tie: the residue as a problem of its
   own (:mod:`solver.residue`) and a tree search (:mod:`solver.tree`), until the budget ends.
3. Balance among equals, and never less than the greedy plan.
"""

from __future__ import annotations

from solver.clock import now
from solver.columns import Ints, Snapshot, columns_of
from solver.credit import Pairs, make_pairs
from solver.decompose import Outcome
from solver.leftover import fill
from solver.packing import Packing
from solver.planning import make_plan, triplet
from solver.problem import Plan, Value
from solver.quick import review_quick, round_quick
from solver.residue import Residue, heaviest, make_residue, solve_ready, solve_residue
from solver.rounding import Rounded, value_of
from solver.settle import rooms_left, settle_ties
from solver.straight import go_straight, plan_of
from solver.tree_search import TreeSearch

FINISH_SHARE = 0.9
"""Share of the budget after which every search ends; settling ties and making the plan need the rest."""
RESIDUE_SHARE = 0.5
"""Share of what is left then that the residue's prices may take."""
FIRST_CHUNKS = 2
"""Chunks of the tree search before the prices: most small residues are done by then."""
LAST_CHUNKS = 1 << 20


def solve(problem: Snapshot, budget_ms: float = 50.0) -> Plan:
    """The best plan found within the budget, with a bound; the optimum where ``optimal`` says so.

    Raises:
        BudgetExceededError: values too large for any packing.
    """
    began = now()
    columns = columns_of(problem)
    budget = budget_ms / 1e3
    found = go_straight(columns, began, budget * FINISH_SHARE)
    if found.settled:
        return plan_of(columns, found, now() - began)
    return refined(round_quick(columns), found.outcome, began, budget)


def refined(rounded: Rounded, outcome: Outcome, began: float, budget: float) -> Plan:
    """The plan from a decomposition on; ``began`` by :func:`solver.clock.now`, ``budget`` in seconds.

    Raises:
        BudgetExceededError: values too large for any packing.
    """
    assignment, bound = _assign(rounded, outcome, began, budget)
    return make_plan(rounded, assignment, bound=bound, method="exact", seconds=now() - began, review=review_quick)


def _assign(rounded: Rounded, outcome: Outcome, began: float, budget: float) -> tuple[Ints, Value]:
    packing = Packing.fit(0, int(rounded.ready.sum()), int(rounded.footprint.sum()))
    rest = packing.unpack(0, outcome.rest_bound)
    bound = Value(outcome.credit_bound, rest.ready, rest.footprint)
    if not outcome.open:
        return outcome.at, bound
    worth = rounded.ready << packing.footprint_bits | rounded.footprint
    at, bound = _refine(rounded, outcome, packing, worth, bound, began + budget * FINISH_SHARE)
    homes = rounded.home_start, rounded.home_node, rounded.home_credit
    settle_ties(rounded.cost, rounded.capacity, *homes, at, rounded.balance)
    if triplet(value_of(rounded, outcome.greedy)) > triplet(value_of(rounded, at)):
        at = outcome.greedy
    return at, bound


def _refine(
    rounded: Rounded, outcome: Outcome, packing: Packing, worth: Ints, bound: Value, deadline: float
) -> tuple[Ints, Value]:
    """Close the gap between the plan and ``bound``, whose credit is proven, as far as time allows."""
    pairs: Pairs = make_pairs(
        rounded.cost, rounded.capacity, rounded.home_start, rounded.home_node, rounded.home_credit
    )
    residue = make_residue(rounded, pairs, outcome.status, outcome.credit, worth, packing)
    tree = TreeSearch(residue, outcome.price, outcome.at)
    tree.run(deadline, FIRST_CHUNKS)
    for step in (_more_ready, _all_at_once):
        if tree.proven or triplet(value_of(rounded, tree.best)) == triplet(bound):
            break
        time = now()
        better, limit = step(residue, tree.best, bound, time + RESIDUE_SHARE * (deadline - time))
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
        bound = Value(bound.credit, fixed.ready + most, fixed.footprint + heaviest(residue))
    if residue.tied:
        # What was found may lack the credit; the bound holds, since it leaves the credit out of account.
        return at, bound
    rooms = rooms_left(rounded.cost, rounded.capacity, better)
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
