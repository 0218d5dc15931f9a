# SPDX-License-Identifier: Apache-2.0
"""Depth-first search over placements, for what the decomposition leaves open; it can stop and go on.

Items come in a fixed order: first those with credit still open, then the rest, largest cost first. A branch
is cut where its credit cannot reach the optimum any more (per node a table of suffix knapsacks, with the
prices of :mod:`solver.credit`), or where its readiness and footprint cannot beat the best found (one
surrogate table over all room, each room first lowered to what the items left can fill).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from solver.jit import compiled

if TYPE_CHECKING:
    from solver.columns import Ints


class Tree(NamedTuple):
    """What the search works on; ``J`` items, the first ``T`` with credit open; ``M`` nodes.

    ``worth`` is packed (ready, footprint). ``pull[t, n]``: worth (credit * scale - cost) of tied item ``t``
    on node ``n``, 0 without credit, ``BARRED`` where it must not go. ``toll[t]`` is the sum of prices of the
    items ``t..T-1``. ``room_table[j, c]``: best packed worth of the items ``j..`` in one room of ``c``;
    ``fillable[j, r]``: what they can fill of a room ``r``. ``pull_table[n, row[t, n], r]``: best priced
    worth of the items ``t..`` on node ``n`` in a room ``r``.
    """

    cost: Ints
    worth: Ints
    same: Ints
    pull: Ints
    toll: Ints
    room_table: Ints
    fillable: Ints
    pull_table: Ints
    row: Ints
    need: int
    slack: int


class Progress(NamedTuple):
    """Where the search stands. ``state``: level, fresh, worth, pull, best worth (-1 at first), done."""

    state: Ints
    rooms: Ints
    at: Ints
    option: Ints
    options: Ints
    counts: Ints
    best: Ints


LEVEL, FRESH, WORTH, PULL, BEST, DONE = 0, 1, 2, 3, 4, 5
BARRED = -(1 << 62)
SKIP = -1


@compiled
def room_table(cost: Ints, worth: Ints, room: int) -> Ints:
    """``table[j, c]``: the best worth of items ``j..`` in one room of ``c`` quanta."""
    table = np.zeros((len(cost) + 1, room + 1), np.int64)
    for j in range(len(cost) - 1, -1, -1):
        w, v = min(cost[j], room + 1), worth[j]
        table[j, :w] = table[j + 1, :w]
        for c in range(w, room + 1):
            table[j, c] = max(table[j + 1, c], table[j + 1, c - w] + v)
    return table


@compiled
def fillable_table(cost: Ints, room: int) -> Ints:
    """``table[j, r]``: the greatest subset sum of the costs ``j..`` that is at most ``r``."""
    table = np.zeros((len(cost) + 1, room + 1), np.int64)
    reached = np.zeros(room + 1, np.uint8)
    reached[0] = 1
    for j in range(len(cost) - 1, -1, -1):
        w = cost[j]
        for c in range(room, w - 1, -1):
            reached[c] |= reached[c - w]
        last = 0
        for c in range(room + 1):
            if reached[c]:
                last = c
            table[j, c] = last
    return table


@compiled
def pull_tables(cost: Ints, pull: Ints, price: Ints, room: int) -> tuple[Ints, Ints]:
    """``pull_table`` and ``row`` of :class:`Tree` for the tied items (``pull[T, M]``, ``price[T]``)."""
    tied, nodes = pull.shape
    row = np.zeros((tied + 1, nodes), np.int64)
    table = np.zeros((nodes, tied + 1, room + 1), np.int64)
    for n in range(nodes):
        at = 0
        for t in range(tied - 1, -1, -1):
            v = pull[t, n] - price[t]
            if pull[t, n] > 0 and v > 0:
                w = cost[t]
                for c in range(room + 1):
                    kept = table[n, at, c]
                    table[n, at + 1, c] = max(kept, table[n, at, c - w] + v) if c >= w else kept
                at += 1
            row[t, n] = at
    return table, row


@compiled
def _open(tree: Tree, progress: Progress, j: int) -> None:
    """List the options of item ``j``: nodes, most promising first, and the skip."""
    rooms, options = progress.rooms, progress.options[j]
    cost = tree.cost[j]
    tied = j < len(tree.pull)
    count = 0
    earlier = tree.same[j]
    if not tied and earlier >= 0 and progress.at[earlier] == SKIP:
        options[0] = SKIP
        progress.counts[j] = 1
        return
    for n in range(len(rooms)):
        if rooms[n] < cost or (tied and tree.pull[j, n] == BARRED):
            continue
        if not tied:
            twin = False
            for k in range(count):
                twin |= rooms[options[k]] == rooms[n]
            if twin:
                continue
        at = count
        while at > 0 and (
            (tied and tree.pull[j, options[at - 1]] < tree.pull[j, n])
            or ((not tied or tree.pull[j, options[at - 1]] == tree.pull[j, n]) and rooms[options[at - 1]] > rooms[n])
        ):
            options[at] = options[at - 1]
            at -= 1
        options[at] = n
        count += 1
    # The skip goes first where the surrogate does better without the item.
    at = count
    if not tied and count > 0:
        left = 0
        for n in range(len(rooms)):
            left += tree.fillable[j, rooms[n]]
        left = min(left, tree.room_table.shape[1] - 1)
        if left < cost or tree.room_table[j + 1, left] > tree.room_table[j + 1, left - cost] + tree.worth[j]:
            at = 0
    elif tied and count > 0 and tree.pull[j, options[0]] <= 0:
        at = 0
    for k in range(count, at, -1):
        options[k] = options[k - 1]
    options[at] = SKIP
    progress.counts[j] = count + 1


@compiled
def _hopeful(tree: Tree, progress: Progress, j: int) -> bool:
    """Whether items ``j..`` can still reach the credit needed and beat the best worth."""
    rooms, state = progress.rooms, progress.state
    left = 0
    for n in range(len(rooms)):
        left += tree.fillable[j, rooms[n]]
    left = min(left, tree.room_table.shape[1] - 1)
    if state[WORTH] + tree.room_table[j, left] <= state[BEST]:
        return False
    if j <= len(tree.pull) and len(tree.pull) > 0:
        reach = state[PULL] + tree.toll[j] + tree.slack
        for n in range(len(rooms)):
            reach += tree.pull_table[n, tree.row[j, n], rooms[n]]
        return bool(reach >= tree.need)
    return True


@compiled
def advance(tree: Tree, progress: Progress, steps: int) -> None:
    """Take up to ``steps`` steps; ``state[DONE]`` is 1 once the best found is proven the best there is."""
    state, rooms = progress.state, progress.rooms
    items, tied = len(tree.cost), len(tree.pull)
    while steps > 0 and not state[DONE]:
        steps -= 1
        j = state[LEVEL]
        if state[FRESH]:
            state[FRESH] = 0
            if j == items:
                if state[WORTH] > state[BEST]:
                    state[BEST] = state[WORTH]
                    progress.best[:] = progress.at
            else:
                _open(tree, progress, j)
                progress.option[j] = 0
                progress.at[j] = SKIP
        elif j < items and progress.at[j] != SKIP:
            n = progress.at[j]
            rooms[n] += tree.cost[j]
            state[WORTH] -= tree.worth[j]
            if j < tied:
                state[PULL] -= tree.pull[j, n]
            progress.at[j] = SKIP
        if j == items or progress.option[j] >= progress.counts[j]:
            if j == 0:
                state[DONE] = 1
            else:
                state[LEVEL] = j - 1
            continue
        n = progress.options[j, progress.option[j]]
        progress.option[j] += 1
        if n != SKIP:
            progress.at[j] = n
            rooms[n] -= tree.cost[j]
            state[WORTH] += tree.worth[j]
            if j < tied:
                state[PULL] += tree.pull[j, n]
        if _hopeful(tree, progress, j + 1):
            state[LEVEL] = j + 1
            state[FRESH] = 1
