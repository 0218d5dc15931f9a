# SPDX-License-Identifier: Apache-2.0
"""What the credit optimum leaves to decide, and its solution as a generalised assignment problem of its own.

The pairs that every credit optimum has in common are placed. What is left is small where rooms are: few
candidates fit. Its worth per pair is the whole packed value, so prices, repair and branching of
:mod:`solver.credit` prove readiness and footprint as they prove credit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.columns import Ints
from solver.credit import Pairs, by_node
from solver.credit_common import DEAD, FIXED, OPEN
from solver.credit_search import solve_credit
from solver.decompose import fixed_places
from solver.fill import holdable, surrogate
from solver.knapsack import Flags
from solver.leftover import linear_bound
from solver.packing import Packing
from solver.problem import Value
from solver.rounding import Rounded

MAX_CELLS = 400_000
"""Pairs times their node's room that one round of prices may go through, and items times all room for one bound."""
PRICE_STEPS = 1 << 20
"""Into how many steps a price divides a candidate that counts 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Residue:
    """``at[N]``: what is fixed; ``rooms[M]`` what that leaves; ``items``: candidates to decide on.

    ``status[H]`` per pair of ``pairs``. ``worth[N]`` is packed (ready, footprint) by ``packing``. ``need``
    is the credit that the items must add (tokens).
    """

    rounded: Rounded
    pairs: Pairs
    status: Flags
    at: Ints
    rooms: Ints
    items: Ints
    worth: Ints
    packing: Packing
    need: int

    @property
    def tied(self) -> bool:
        """Whether some pair is open: which of them carry the credit is undecided."""
        return bool((self.status == OPEN).any())


def make_residue(rounded: Rounded, pairs: Pairs, status: Flags, credit: int, worth: Ints, packing: Packing) -> Residue:
    """Place the fixed pairs, and what costs nothing; ``credit`` is what a whole plan must reach."""
    at, rooms, items = fixed_places(pairs, status, rounded.balance)
    need = credit - int(pairs.credit[status == FIXED].sum()) * pairs.unit
    return Residue(rounded, pairs, status, at, rooms, items, worth, packing, need)


def heaviest(residue: Residue) -> int:
    """No more footprint than this fits: all rooms as one, each lowered to what the items can fill of it."""
    cost, footprint = residue.rounded.cost[residue.items], residue.rounded.footprint[residue.items]
    room = int(min(holdable(cost, int(residue.rooms.max(initial=0)))[residue.rooms].sum(), cost.sum()))
    if len(cost) * room > MAX_CELLS:
        return linear_bound(cost, footprint, room)
    return int(surrogate(cost, footprint, room)[0][room])


def solve_ready(residue: Residue, incumbent: Ints, most: int, deadline: float) -> tuple[Ints, int] | None:
    """How many ready items fit, whatever the open credit: the items placed so, and a bound on their number.

    Whatever number can be placed, the smallest ones of that number can; so only the ``most`` smallest, of
    which no more are known to fit, take part, and each counts 1. None where the residue is too large.
    """
    rounded = residue.rounded
    ready = residue.items[rounded.ready[residue.items] == 1]
    ready = ready[np.argsort(rounded.cost[ready], kind="stable")][:most]
    fits = rounded.cost[ready][:, None] <= residue.rooms[None, :]
    if int((fits * residue.rooms).sum()) > MAX_CELLS:
        return None
    item, node = (index.copy() for index in np.nonzero(fits))
    one = np.ones(len(item), dtype=np.int64)
    pairs = _pairs(item, node, rounded.cost[ready], residue.rooms, one, PRICE_STEPS)
    found = solve_credit(pairs, (incumbent[ready[item]] == node).astype(np.uint8), deadline)
    at = residue.at.copy()
    taken = found.held == 1
    at[ready[item[taken]]] = node[taken]
    return at, found.bound


def _pairs(item: Ints, node: Ints, cost: Ints, rooms: Ints, gain: Ints, scale: int) -> Pairs:
    """Pairs sorted by item, as :mod:`solver.credit` takes them."""
    start = np.searchsorted(item, np.arange(len(cost) + 1)).astype(np.int64)
    return Pairs(start, item, node, gain, gain * scale, cost, rooms, *by_node(node, len(rooms)), scale, 0, 1)


def solve_residue(residue: Residue, incumbent: Ints, deadline: float) -> tuple[Ints, Value] | None:
    """The best assignment found from ``incumbent[N]`` on, and a bound on what the items add.

    The bound is lexicographic, in credit, readiness and footprint. None where the residue is too large or
    its values need two words.
    """
    items, rounded = residue.items, residue.rounded
    cost = rounded.cost[items]
    fits = cost[:, None] <= residue.rooms[None, :]
    if int((fits * residue.rooms).sum()) > MAX_CELLS:
        return None
    credit, barred = _credits(residue)
    ready, footprint = rounded.ready[items], rounded.footprint[items]
    packing = Packing.fit(sum(credit.max(axis=1, initial=0).tolist()), int(ready.sum()), sum(footprint.tolist()))
    if packing.words > 1:
        return None
    # Copies: the two are strided views of one array, which numba would compile everything anew for.
    item, node = (index.copy() for index in np.nonzero(fits & (barred == 0)))
    low = ready << packing.footprint_bits | footprint
    worth = credit[item, node] << packing.credit_shift | low[item]
    held = (incumbent[items[item]] == node).astype(np.uint8)
    pairs = _pairs(item, node, cost, residue.rooms, worth, 1)
    found = solve_credit(pairs, held, deadline)
    better = residue.at.copy()
    taken = found.held == 1
    better[items[item[taken]]] = node[taken]
    return better, packing.unpack(0, found.bound)


def _credits(residue: Residue) -> tuple[Ints, Flags]:
    """Per item and node: the credit of its open pair, and whether a dead pair bars it."""
    pairs, items = residue.pairs, residue.items
    row = np.full(len(residue.rounded.cost), -1, dtype=np.int64)
    row[items] = np.arange(len(items))
    shape = (len(items), len(residue.rooms))
    credit, barred = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.uint8)
    mine = row[pairs.owner] >= 0
    live, dead = mine & (residue.status == OPEN), mine & (residue.status == DEAD)
    credit[row[pairs.owner[live]], pairs.node[live]] = pairs.credit[live] * pairs.unit
    barred[row[pairs.owner[dead]], pairs.node[dead]] = 1
    return credit, barred
