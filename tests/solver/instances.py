# SPDX-License-Identifier: Apache-2.0
"""Random snapshots of every kind, and brute force for the small ones."""

from __future__ import annotations

import random

from solver.problem import Candidate, Node, Problem
from solver.rounding import round_problem

KINDS = ("plain", "ties", "many-homes", "no-credit", "all-ready", "none-ready", "loose", "wide")


def small(kind: str, seed: int) -> Problem:
    """At most nine candidates on four nodes, with corners: no node, no room, costs of 0, equal ones."""
    rng = random.Random(f"{kind} {seed}")
    nodes = rng.randint(0, 4) if rng.random() < 0.1 else rng.randint(1, 4)
    room = rng.choice((3, 8, 20))
    factor = 10**10 if kind == "wide" else 1
    candidates = []
    for k in range(rng.randint(0, 9)):
        cost = rng.randint(0 if rng.random() < 0.1 else 1, max(1, room // 4 if kind == "loose" else room * 2 // 3))
        footprint = cost if kind == "ties" else rng.randint(0, cost * 3)
        most = {"no-credit": 0, "many-homes": nodes}.get(kind, min(2, nodes))
        homes = rng.sample(range(nodes), rng.randint(0, most))
        credit = {f"n{h}": (rng.choice((1, 1, 2)) if kind == "ties" else rng.randint(0, 30)) * factor for h in homes}
        ready = {"all-ready": True, "none-ready": False}.get(kind, rng.random() < 0.5)
        candidates.append(Candidate(f"c{k}", cost, ready, footprint * factor, credit))
    return Problem(
        tuple(Node(f"n{n}", rng.randint(0, room)) for n in range(nodes)), tuple(candidates), 1, rng.randint(0, 99)
    )


def medium(candidates: int, nodes: int, kind: str, seed: int) -> Problem:
    """As a router sees it: log-normal contexts, some 15 per node, about two thirds of them fit."""
    rng = random.Random(f"{candidates} {nodes} {kind} {seed}")
    footprints = [int(rng.lognormvariate(0, 0.7) * 14_000) + 300 for _ in range(candidates)]
    if kind == "ties":
        footprints = [rng.choice((4_000, 8_000, 12_000, 24_000)) for _ in footprints]
    costs = [footprint + (500 if kind == "ties" else rng.randrange(100, 3_000)) for footprint in footprints]
    capacity = int(sum(costs) * (1.0 if kind == "loose" else 0.65) / nodes)
    capacity = max(capacity, max(costs) // 2)
    made = []
    for k, (footprint, cost) in enumerate(zip(footprints, costs, strict=True)):
        most = {"no-credit": 0, "many-homes": max(2, nodes // 2)}.get(kind, min(2, nodes))
        homes = rng.sample(range(nodes), rng.randint(0, most))
        credit = {f"n{h}": rng.choice((2_000, 4_000)) if kind == "ties" else rng.randint(1, footprint) for h in homes}
        ready = {"all-ready": True, "none-ready": False}.get(kind, rng.random() < 0.6)
        made.append(Candidate(f"c{k}", cost, ready, footprint, credit))
    return Problem(tuple(Node(f"n{n}", capacity) for n in range(nodes)), tuple(made), 1024, seed)


def brute_force(problem: Problem) -> tuple[int, int, int]:
    """The greatest (credit, ready, footprint), over every reachable vector of rooms; slow and plain."""
    rounded = round_problem(problem)
    states: dict[tuple[int, ...], tuple[int, int, int]] = {tuple(rounded.capacity.tolist()): (0, 0, 0)}
    for i, cost in enumerate(rounded.cost.tolist()):
        credit = dict(rounded.homes(i))
        reached = dict(states)
        for rooms, (a, b, c) in states.items():
            for n, room in enumerate(rooms):
                if room >= cost:
                    after = (*rooms[:n], room - cost, *rooms[n + 1 :])
                    value = (a + credit.get(n, 0), b + int(rounded.ready[i]), c + int(rounded.footprint[i]))
                    reached[after] = max(value, reached.get(after, value))
        states = reached
    return max(states.values())
