# SPDX-License-Identifier: Apache-2.0
"""What a solve gets and what it gives: plain frozen values, whole tokens."""

from __future__ import annotations

from collections.abc import Mapping  # at run time: msgspec reads the annotations when the planner's wire is built
from dataclasses import dataclass, field

import msgspec


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the solver sees it: a name and the residual room it may fill, in tokens."""

    id: str
    capacity: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A waiting session as the solver sees it.

    ``cost`` (tokens) is what it takes on any node; ``credit`` maps a node's id to decayed KV-cache
    credit in tokens, absent means zero; ``tier`` is a class above the value: a tier is solved as if the lower
    ones did not exist, then the next in the room that it has left. Where several plans of a higher tier are equal,
    the one taken is not the one that suits the lower best.
    """

    id: str
    cost: int
    ready: bool
    footprint: int
    credit: Mapping[str, int] = field(default_factory=dict)
    tier: int = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """A snapshot: the candidates, the nodes and the unit they are rounded to.

    ``balance`` evens out the room left over among plans of equal value; without it such ties go by the
    seeded order of the nodes, the first one with room, which is how the paper does it.
    """

    nodes: tuple[Node, ...]
    candidates: tuple[Candidate, ...]
    quantum: int = 1024
    seed: int = 0
    balance: bool = True


@dataclass(frozen=True, slots=True)
class Value:
    """The triplet, compared in this order and never summed across components."""

    credit: int = 0
    ready: int = 0
    footprint: int = 0


class Placement(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One candidate on one node; a struct, since plans have many and a dataclass takes ten times as long to make."""

    candidate: str
    node: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a solve returns, in the order in which it is to be applied.

    ``bound`` is at least the optimum in the lexicographic order; ``optimal`` says that ``value`` meets it. With
    several tiers both are sums over the tiers, and ``optimal`` says that each tier's plan is the best one in the
    room that the plans above it left, not that no other choice among equals above would have left more.
    """

    placements: tuple[Placement, ...]
    value: Value
    bound: Value
    optimal: bool
    method: str
    seconds: float
    quantum: int = 1
    note: str = ""
