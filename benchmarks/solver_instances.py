# SPDX-License-Identifier: Apache-2.0
"""Random snapshots for the solver benchmark: sizes and kinds, reproducible from a seed."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from solver.problem import Candidate, Node, Problem
from tao_dynamo.errors import UsageError

QUANTUM = 1024
KINDS = (
    *("tight-few", "tight-many", "loose-few", "loose-many", "tight-burst", "loose-burst"),
    *("tight-several", "loose-several"),
)
"""Room against demand, then homes of a candidate: few (one or two), several (three to six), many (up to half of the
nodes), burst (none)."""

TIGHT, LOOSE = 0.35, 1.05
MEDIAN_TOKENS = 16_000


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """How many candidates and nodes a snapshot has."""

    candidates: int
    nodes: int

    def __str__(self) -> str:
        return f"{self.candidates}x{self.nodes}"

    @classmethod
    def parse(cls, text: str) -> Size:
        """Read ``64x4``.

        Raises:
            UsageError: it is not of that form, or one of the two is 0.
        """
        match = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,4})", text.strip())
        if not match:
            raise UsageError("--sizes", text, "candidates x nodes, such as 64x4")
        return cls(int(match[1]), int(match[2]))


SIZES = tuple(Size.parse(text) for text in ("32x2", "64x2", "64x4", "128x8", "256x16", "512x32", "1024x64"))


def snapshot(size: Size, kind: str, seed: int) -> Problem:
    """One random snapshot.

    Footprints are log-normal around 16,000 tokens, as agent contexts are; a cost adds 200 to 4,000 tokens of
    expected output; capacities add up to ``TIGHT`` or ``LOOSE`` times the demand, each node within a fifth
    of the mean. Six in ten candidates are ready. A credit is a random part of the footprint.
    """
    rng = random.Random(f"{size} {kind} {seed}")
    room, homes = kind.split("-")
    footprints = [min(160_000, int(rng.lognormvariate(0, 0.8) * MEDIAN_TOKENS) + 1) for _ in range(size.candidates)]
    costs = [footprint + rng.randrange(200, 4_000) for footprint in footprints]
    mean = sum(costs) * (TIGHT if room == "tight" else LOOSE) / size.nodes
    nodes = tuple(Node(f"n{k}/0", int(mean * rng.uniform(0.8, 1.2))) for k in range(size.nodes))
    most = {"few": 2, "many": max(2, size.nodes // 2), "burst": 0, "several": 6}[homes]
    candidates = []
    for k, (footprint, cost) in enumerate(zip(footprints, costs, strict=True)):
        # A fifth of the sessions is new even where others have left their cache somewhere.
        some = rng.random() >= 0.2
        count = rng.choice((3, 4, 5, 6) if homes == "several" else (1, 1, 2, most)) if some else 0
        count = min(count, most, size.nodes)
        credit = {node.id: rng.randrange(1, footprint + 1) for node in rng.sample(nodes, count)}
        candidates.append(Candidate(f"s{k}", cost, rng.random() < 0.6, footprint, credit))
    return Problem(nodes, tuple(candidates), QUANTUM, seed)
