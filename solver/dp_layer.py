# SPDX-License-Identifier: Apache-2.0
"""The dense DP over capacity states: the one definition that CPU and GPU code follow.

**State.** A vector of used quanta ``u[0..M)``, ``0 <= u[n] <= capacity[n]``. Its index is
``s = sum(u[n] * stride[n])`` with ``stride[0] = 1`` and ``stride[n + 1] = stride[n] * (capacity[n] + 1)``;
there are ``S = prod(capacity[n] + 1)`` states. A state means *exactly* so many quanta used on each node.

**Values.** One or two int64 words per state (:class:`solver.packing.Packing`), compared high word first.
At first state 0 holds 0 and every other state is unreachable: ``UNREACHABLE`` (-1) in its low word (one
word) or its high word (two words; the low word is then 0).

**Layer.** One candidate of ``cost >= 1`` quanta and packed gains ``gain[n]`` (its credit on node ``n``, its
readiness, its footprint). From the values ``old`` of the layer before::

    new[s] = old[s]                                       decision 0     (skip; also where unreachable)
    for n in 0 .. M - 1:
        if u[n](s) >= cost and reachable(old[s - cost * stride[n]]):
            placed = old[s - cost * stride[n]] + gain[n]
            if placed > new[s]:                           decision n + 1 (strictly greater: the first wins)
                new[s] = placed

Nodes and candidates come in seeded order (:mod:`solver.rounding`), so "the first wins" is the seeded
tie-break. Since ``s - cost * stride[n] < s``, one buffer will do if states are taken from last to first;
with states in parallel use two. A candidate of cost 0 never gets a layer: it goes where its gain is
greatest, see :func:`dense_instance`.

**Decisions.** One uint8 per layer and state, ``decision[layer, s]``; hence ``M <= 254``.

**Final state.** Of the reachable states after the last layer the one with, in this order: greatest value;
fewest used quanta; smallest ``sum((capacity[n] - u[n]) ** 2)`` over the *unreduced* capacities (balance: the
room left over is most even); lowest index. The trace-back goes from the last layer to the first:
``d = decision[layer, s]``; ``d > 0`` puts the layer's candidate on node ``d - 1`` and goes on at
``s - cost * stride[d - 1]``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from solver.packing import Packing
from tao_dynamo.errors import BudgetExceededError

if TYPE_CHECKING:
    from solver.columns import Ints
    from solver.problem import Value
    from solver.rounding import Rounded

UNREACHABLE = -1
MAX_NODES = 254


@dataclass(frozen=True, slots=True, eq=False)
class DenseInstance:
    """One state space and its layers; ``L`` layers, ``M`` nodes.

    ``candidate[L]``, ``node[M]`` are indices into the rounded problem; ``capacity[M]`` bounds the states,
    ``room[M] >= capacity`` (same unit) is what balance is measured by, where none is wanted a room that falls
    from node to node so that the first nodes are filled first; ``stride[M]``; ``cost[L]``;
    ``gain_high[L, M]``, ``gain_low[L, M]`` packed (``gain_high`` all 0 where ``packing.words == 1``).
    ``free[N]`` is the assignment of the candidates of cost 0, -1 elsewhere.
    """

    packing: Packing
    candidate: Ints
    node: Ints
    capacity: Ints
    room: Ints
    stride: Ints
    cost: Ints
    gain_high: Ints
    gain_low: Ints
    free: Ints
    states: int


def dense_instance(rounded: Rounded) -> DenseInstance:
    """The state space of a rounded problem, made as small as stays exact.

    Candidates that fit nowhere and nodes that no candidate fits are dropped; costs and capacities are
    divided by the costs' greatest common divisor; a capacity is lowered to the greatest sum of costs that
    it can hold.

    Raises:
        BudgetExceededError: more nodes than a decision byte can name, or values too wide for two words.
    """
    cost, capacity = rounded.cost, rounded.capacity
    largest = int(capacity.max()) if len(capacity) else 0
    free = np.full(len(cost), -1, dtype=np.int64)
    for i in np.flatnonzero(cost == 0).tolist() if len(capacity) else ():
        homes = rounded.homes(i)
        free[i] = homes[0][0] if homes else rounded.idlest(capacity)
    layers = np.flatnonzero((cost > 0) & (cost <= largest))
    smallest = int(cost[layers].min()) if len(layers) else 0
    nodes = np.flatnonzero(capacity >= smallest) if len(layers) else np.zeros(0, dtype=np.int64)
    if len(nodes) > MAX_NODES:
        raise BudgetExceededError("nodes of a dense dp", len(nodes), MAX_NODES)
    unit = math.gcd(*cost[layers].tolist()) if len(layers) else 1
    reduced = cost[layers] // unit
    room = capacity[nodes] // unit
    bounded = _holdable(reduced, room)
    if not rounded.balance:
        # So large a lead that every quantum moved to an earlier node lowers the sum of squares.
        room = (int(bounded.max(initial=0)) + 2) * np.arange(len(nodes), 0, -1, dtype=np.int64)
    stride = np.ones(len(nodes), dtype=np.int64)
    states = 1
    for k, size in enumerate((bounded + 1).tolist()):
        stride[k] = min(states, 1 << WIDE)
        states *= size
    packing, gain_high, gain_low = _gains(rounded, layers, nodes)
    return DenseInstance(packing, layers, nodes, bounded, room, stride, reduced, gain_high, gain_low, free, states)


WIDE = 62
"""States of more than this many bits are only ever counted, in Python's integers, never indexed."""


def _holdable(cost: Ints, room: Ints) -> Ints:
    """For every room the greatest subset sum of ``cost`` that is not above it (bit set of sums)."""
    mask = (1 << (int(room.max(initial=0)) + 1)) - 1
    sums = 1
    for quanta in cost.tolist():
        sums |= (sums << quanta) & mask
    return np.array([(sums & ((2 << r) - 1)).bit_length() - 1 for r in room.tolist()], dtype=np.int64)


def _gains(rounded: Rounded, layers: Ints, nodes: Ints) -> tuple[Packing, Ints, Ints]:
    credit = np.zeros((len(rounded.cost), len(rounded.capacity)), dtype=np.int64)
    credit[rounded.home_owner, rounded.home_node] = rounded.home_credit
    credit = credit[np.ix_(layers, nodes)]
    ready, footprint = rounded.ready[layers], rounded.footprint[layers]
    packing = Packing.fit(sum(credit.max(axis=1, initial=0).tolist()), sum(ready.tolist()), sum(footprint.tolist()))
    low = (ready << packing.footprint_bits | footprint)[:, None]
    if packing.words == 1:
        return packing, np.zeros_like(credit), credit << packing.credit_shift | low
    return packing, credit, np.broadcast_to(low, credit.shape).copy()


def apply_layer(instance: DenseInstance, layer: int, high: Ints, low: Ints) -> npt.NDArray[np.uint8]:
    """The definition, executable: update ``high[S]`` and ``low[S]`` in place, return ``decision[S]``.

    Slow and plain; the fast versions are tested against it.
    """
    index = np.arange(instance.states)
    cost = int(instance.cost[layer])
    old_high, old_low = high.copy(), low.copy()
    decision = np.zeros(instance.states, dtype=np.uint8)
    for n, stride in enumerate(instance.stride.tolist()):
        used = index // stride % (int(instance.capacity[n]) + 1)
        to = index[used >= cost]
        origin = to - cost * stride
        reached = (old_high[origin] >= 0) & (old_low[origin] >= 0)
        to, origin = to[reached], origin[reached]
        placed_high = old_high[origin] + instance.gain_high[layer, n]
        placed_low = old_low[origin] + instance.gain_low[layer, n]
        better = (placed_high > high[to]) | ((placed_high == high[to]) & (placed_low > low[to]))
        high[to[better]], low[to[better]] = placed_high[better], placed_low[better]
        decision[to[better]] = n + 1
    return decision


def final_state(instance: DenseInstance, high: Ints, low: Ints) -> int:
    """Index of the state that the definition picks after the last layer."""
    best_high = high.max()
    index = np.flatnonzero(high == best_high)
    index = index[low[index] == low[index].max()]
    used = index[:, None] // instance.stride % (instance.capacity + 1)
    total = used.sum(axis=1)
    unevenness = ((instance.room - used) ** 2).sum(axis=1)
    return int(index[np.lexsort((index, unevenness, total))[0]])


def trace_back(instance: DenseInstance, decision: npt.NDArray[np.uint8], state: int) -> Ints:
    """The assignment of the rounded problem that ends in ``state``; ``decision[L, S]``."""
    assignment = instance.free.copy()
    for layer in range(len(instance.cost) - 1, -1, -1):
        node = int(decision[layer, state]) - 1
        if node >= 0:
            assignment[instance.candidate[layer]] = instance.node[node]
            state -= int(instance.cost[layer] * instance.stride[node])
    return assignment


def unpack_state(instance: DenseInstance, high: Ints, low: Ints, state: int) -> Value:
    """The triplet that a state's words hold (without the candidates of cost 0)."""
    return instance.packing.unpack(int(high[state]), int(low[state]))
