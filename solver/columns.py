# SPDX-License-Identifier: Apache-2.0
"""A snapshot by columns: checked and read once, whatever method follows, and what crosses to the planner's process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, chain
from operator import countOf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from solver.checks import MAX_TOKENS, validate
from solver.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

Ints = npt.NDArray[np.int64]


class Parts(NamedTuple):
    """By candidate, ``[N]``: the number of credits, whether ready (0 or 1), the tier (empty where all have one); the
    credits' nodes, ``[H]``, candidate by candidate; then what are tokens: capacity ``[M]``, cost ``[N]``,
    footprint ``[N]``, credit ``[H]``.
    """

    counts: Ints
    ready: Ints
    tier: Ints
    home: Ints
    capacity: Ints
    cost: Ints
    footprint: Ints
    credit: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """``N`` candidates, ``M`` nodes and ``H`` credits of a valid problem, in its order.

    ``numbers`` has the columns of :class:`Parts` one behind the other.
    """

    node_ids: Sequence[str]
    candidate_ids: Sequence[str]
    numbers: Ints
    quantum: int
    seed: int
    balance: bool
    tiered: bool
    """Whether there is more than one tier."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """``N``, ``M`` and ``H``."""
        count, nodes = len(self.candidate_ids), len(self.node_ids)
        return count, nodes, (len(self.numbers) - (5 if self.tiered else 4) * count - nodes) // 2

    def parts(self) -> Parts:
        """Views of ``numbers``."""
        n, m, h = self.shape
        ends = list(accumulate((n, n, n if self.tiered else 0, h, m, n, n, h)))
        return Parts(*(self.numbers[low:high] for low, high in zip([0, *ends], ends, strict=False)))

    def coherent(self) -> bool:
        """Whether the numbers are columns of these ids: all that a compiled loop relies on."""
        count, nodes, homes = self.shape
        if homes < 0 or len(self.numbers) != (5 if self.tiered else 4) * count + nodes + 2 * homes:
            return False
        parts = self.parts()
        # As unsigned, what is negative is large.
        return (
            int(parts.counts.sum()) == homes
            and int(parts.counts.view(np.uint64).max(initial=0)) <= nodes
            and int(parts.home.view(np.uint64).max(initial=0)) < max(1, nodes)
            and int(self.numbers[-(nodes + 2 * count + homes) :].view(np.uint64).max(initial=0)) <= MAX_TOKENS
        )

    def of_tier(self, tier: int, capacity: Ints) -> Columns:
        """Only the candidates of one tier, in other rooms."""
        parts = self.parts()
        mine = parts.tier == tier
        homes = mine.repeat(parts.counts)
        kept = Parts(
            *(parts.counts[mine], parts.ready[mine], parts.tier[:0], parts.home[homes], capacity),
            *(parts.cost[mine], parts.footprint[mine], parts.credit[homes]),
        )
        names = [self.candidate_ids[i] for i in mine.nonzero()[0].tolist()]
        return replace(self, candidate_ids=names, numbers=np.concatenate(kept), tiered=False)


Snapshot: TypeAlias = Problem | Columns
"""What the methods take."""


def columns_of(snapshot: Snapshot) -> Columns:
    """The columns of a problem, once checked.

    Raises:
        ProblemError: the field is named, see :func:`solver.checks.validate`.
    """
    if isinstance(snapshot, Columns):
        return snapshot
    try:
        columns = _read(snapshot, strict=True)
    except (TypeError, ValueError, LookupError, OverflowError):
        columns = None
    if columns is None:
        # Something is wrong, and is named here, or merely unusual, such as a name of a type derived from str.
        validate(snapshot)
        columns = _read(snapshot, strict=False)
    assert columns is not None  # noqa: S101 - only what is strict may be None
    return columns


def _read(problem: Problem, *, strict: bool) -> Columns | None:
    """By columns, which is several times faster than one by one; None where ``strict`` and something is odd."""
    nodes, candidates = problem.nodes, problem.candidates
    node_ids = [node.id for node in nodes]
    names = [candidate.id for candidate in candidates]
    ready = [candidate.ready for candidate in candidates]
    tiers = [candidate.tier for candidate in candidates]
    credits_ = [candidate.credit for candidate in candidates]
    index = dict(zip(node_ids, range(len(node_ids)), strict=True))
    tokens = [node.capacity for node in nodes]
    tokens += [candidate.cost for candidate in candidates]
    tokens += [candidate.footprint for candidate in candidates]
    tokens += chain.from_iterable([credit.values() for credit in credits_])
    unique, levels = set(names), set(tiers)
    if strict and not (
        _all(tokens, int)
        and _all(tiers, int)
        and _all(ready, bool)
        and _all(names, str)
        and _all(node_ids, str)
        and _all((problem.quantum, problem.seed), int)
        and _all((problem.balance,), bool)
        and len(index) == len(node_ids)
        and len(unique) == len(names)
        and "" not in index
        and "" not in unique
        and 0 <= problem.quantum <= MAX_TOKENS
        and max(map(abs, levels), default=0) <= MAX_TOKENS
    ):
        return None
    flat = list(map(len, credits_))
    flat += ready
    tiered = len(levels) > 1
    if tiered:
        flat += tiers
    flat += [index[name] for name in chain.from_iterable(credits_)]
    first = len(flat)
    flat += tokens
    numbers = np.array(flat, dtype=np.int64)
    # Below zero is above every limit, seen as unsigned.
    if strict and len(tokens) and int(numbers[first:].view(np.uint64).max()) > MAX_TOKENS:
        return None
    return Columns(node_ids, names, numbers, problem.quantum, problem.seed, problem.balance, tiered)


def _all(values: Sequence[object], kind: type) -> bool:
    """Whether each value is exactly of that type: a bool, a NaN or a numpy scalar is no ``int``."""
    return countOf(map(type, values), kind) == len(values)
