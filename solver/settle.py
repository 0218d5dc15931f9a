# SPDX-License-Identifier: Apache-2.0
"""A plan's value, the greedy plan, and ties between nodes settled: small compiled loops around an assignment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from solver.fill import descending
from solver.jit import compiled

if TYPE_CHECKING:
    from solver.columns import Ints

BALANCE_ROUNDS = 4


@compiled
def greedy(cost: Ints, worth: Ints, capacity: Ints, start: Ints, home: Ints, credit: Ints, balance: bool) -> Ints:
    """Best-fit decreasing by value; the same assignment as :func:`solver.bfd.assign`. ``worth[N]`` is packed."""
    best = np.zeros(len(cost), np.int64)
    for i in range(len(cost)):
        if start[i] < start[i + 1]:
            best[i] = credit[start[i]]
    order = descending(worth)
    order = order[descending(best[order])]
    rooms = capacity.copy()
    at = np.full(len(cost), -1, np.int64)
    for i in order:
        target = -1
        for k in range(start[i], start[i + 1]):
            n = home[k]
            if target >= 0 and credit[k] < best[i]:
                break
            if cost[i] <= rooms[n] and (target < 0 or (rooms[n] > rooms[target] if balance else n < target)):
                target, best[i] = n, credit[k]
        if target < 0:
            for n in range(len(rooms)):
                if cost[i] <= rooms[n] and (target < 0 or (balance and rooms[n] > rooms[target])):
                    target = n
        if target >= 0:
            at[i] = target
            rooms[target] -= cost[i]
    return at


@compiled
def value(at: Ints, worth: Ints, start: Ints, home: Ints, credit: Ints) -> tuple[int, int]:
    """Credit (tokens) and packed worth of an assignment."""
    total, rest = 0, 0
    for i in range(len(at)):
        if at[i] < 0:
            continue
        rest += worth[i]
        for k in range(start[i], start[i + 1]):
            if home[k] == at[i]:
                total += credit[k]
    return total, rest


@compiled
def rooms_left(cost: Ints, capacity: Ints, at: Ints) -> Ints:
    """``[M]``: quanta left on each node by an assignment."""
    rooms = capacity.copy()
    for i in range(len(at)):
        if at[i] >= 0:
            rooms[at[i]] -= cost[i]
    return rooms


@compiled
def settle_ties(cost: Ints, capacity: Ints, start: Ints, home: Ints, credit: Ints, at: Ints, balance: bool) -> None:
    """Among plans of the same value: even out the room left over, or go by the order of the nodes."""
    rooms = rooms_left(cost, capacity, at)
    if balance:
        even_out(cost, start, home, credit, rooms, at, BALANCE_ROUNDS)
    else:
        move_first(cost, start, home, credit, rooms, at, BALANCE_ROUNDS)


@compiled
def even_out(cost: Ints, start: Ints, home: Ints, credit: Ints, rooms: Ints, at: Ints, rounds: int) -> None:
    """Balance: move a candidate to a node where it is worth the same, while that evens the room left over.

    A move from ``n`` to ``m`` lowers the sum of squares of the rooms exactly where
    ``rooms[m] - rooms[n] > cost``. Changes ``rooms`` and ``at``.
    """
    here = np.zeros(len(rooms), np.int64)
    for _ in range(rounds):
        moved = False
        for i in range(len(cost)):
            n = at[i]
            if n < 0 or cost[i] == 0:
                continue
            for k in range(start[i], start[i + 1]):
                here[home[k]] = credit[k]
            widest = n
            for m in range(len(rooms)):
                if here[m] == here[n] and rooms[m] > rooms[widest]:
                    widest = m
            if rooms[widest] - rooms[n] > cost[i]:
                rooms[widest] -= cost[i]
                rooms[n] += cost[i]
                at[i] = widest
                moved = True
            for k in range(start[i], start[i + 1]):
                here[home[k]] = 0
        if not moved:
            break


@compiled
def move_first(cost: Ints, start: Ints, home: Ints, credit: Ints, rooms: Ints, at: Ints, rounds: int) -> None:
    """No balance: move a candidate to the first node with room where it is worth the same.

    Changes ``rooms`` and ``at``.
    """
    here = np.zeros(len(rooms), np.int64)
    for _ in range(rounds):
        moved = False
        for i in range(len(cost)):
            n = at[i]
            if n < 0:
                continue
            for k in range(start[i], start[i + 1]):
                here[home[k]] = credit[k]
            for m in range(n):
                if here[m] == here[n] and rooms[m] >= cost[i]:
                    rooms[m] -= cost[i]
                    rooms[n] += cost[i]
                    at[i] = m
                    moved = True
                    break
            for k in range(start[i], start[i + 1]):
                here[home[k]] = 0
        if not moved:
            break
