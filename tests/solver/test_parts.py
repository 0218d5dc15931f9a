# SPDX-License-Identifier: Apache-2.0
"""The parts of `exact`: relaxation, repair, knapsacks, splitting and the search, each against plain code."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest

from solver import bfd
from solver.credit import WORST, Pairs, bar, begin, credit_of, descend, make_pairs, repair, thinned, work_for
from solver.credit_agree import agreed_pairs
from solver.credit_common import ANY, DEAD, FIXED, OPEN, common_pairs, reduced
from solver.credit_search import solve_credit
from solver.credit_start import start_prices
from solver.fill import holdable, split, surrogate, traced
from solver.knapsack import Flags, knapsack, make_work, sort_by_rate
from solver.leftover import fill, linear_bound
from solver.rounding import Rounded, round_problem, value_of
from solver.settle import even_out, greedy, value
from tests.solver.instances import brute_force, medium, small

KINDS = ("plain", "ties", "many-homes", "wide")


def ints(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize("kind", KINDS)
def test_the_relaxation_bounds_the_credit_at_any_prices(kind: str) -> None:
    for seed in range(60):
        problem = small(kind, seed)
        pairs = pairs_of(round_problem(problem))
        best = brute_force(problem)[0]
        rng = random.Random(seed)
        for rounds in (1, 2, 9):
            price = ints([rng.randrange(0, 40 * pairs.scale) for _ in pairs.cost])
            state: list[Flags] = [np.zeros(len(pairs.node), dtype=np.uint8) for _ in range(3)]
            optima = np.zeros(len(pairs.capacity), dtype=np.int64)
            bound, credit, _ = descend(
                pairs,
                begin(pairs, price, 1.0),
                *state[:1],
                price,
                optima,
                *state[1:],
                WORST,
                0,
                rounds,
                work_for(pairs),
            )
            assert credit * pairs.unit <= best <= credit_of(pairs, bound) * pairs.unit


@pytest.mark.parametrize("kind", KINDS)
def test_repair_is_feasible(kind: str) -> None:
    for seed in range(60):
        pairs = pairs_of(round_problem(small(kind, seed)))
        rng = np.random.default_rng(seed)
        # Any choice that keeps each node's room, doubles and all.
        chosen = np.zeros(len(pairs.node), dtype=np.uint8)
        room = pairs.capacity.copy()
        for k in rng.permutation(len(pairs.node)).tolist():
            if pairs.cost[pairs.owner[k]] <= room[pairs.node[k]]:
                chosen[k] = 1
                room[pairs.node[k]] -= pairs.cost[pairs.owner[k]]
        credit, held = repair(pairs, chosen, work_for(pairs))
        taken = held == 1
        assert credit == pairs.credit[taken].sum()
        assert len(np.unique(pairs.owner[taken])) == taken.sum()
        used = np.bincount(pairs.node[taken], pairs.cost[pairs.owner[taken]], len(pairs.capacity))
        assert (used <= pairs.capacity).all()


@pytest.mark.parametrize("kind", KINDS)
def test_credit_is_the_optimum_and_common_pairs_are_common(kind: str) -> None:
    """Every choice of pairs with the greatest credit holds all fixed and no dead ones (all choices tried)."""
    tried = 0
    for seed in range(150):
        rounded = round_problem(small(kind, seed))
        pairs = pairs_of(rounded)
        if not 0 < len(pairs.node) <= 10:
            continue
        best, choices = 0, [np.zeros(len(pairs.node), dtype=bool)]
        for bits in itertools.product((False, True), repeat=len(pairs.node)):
            taken = np.array(bits)
            used = np.bincount(pairs.node[taken], pairs.cost[pairs.owner[taken]], len(pairs.capacity))
            if (used > pairs.capacity).any() or len(set(pairs.owner[taken].tolist())) < taken.sum():
                continue
            credit = int(pairs.credit[taken].sum())
            if credit >= best:
                choices = [*choices, taken] if credit == best else [taken]
                best = credit
        found = solve_credit(pairs, np.zeros(len(pairs.node), dtype=np.uint8), math.inf)
        assert found.credit == found.bound == best
        status = agreed_pairs(pairs, found, math.inf)
        for taken in choices:
            if pairs.credit[taken].sum() == best:
                assert taken[status == FIXED].all()
                assert not taken[status == DEAD].any()
        tried += 1
    assert tried > 40


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_left_after_the_fixed_pairs_holds_the_optimum(kind: str) -> None:
    shrunk = 0
    for seed in range(150):
        pairs = pairs_of(round_problem(small(kind, seed)))
        nothing = np.zeros(len(pairs.node), dtype=np.uint8)
        found = solve_credit(pairs, nothing, math.inf)
        status = common_pairs(pairs, found.credit, nothing, found.price, found.best, ANY, work_for(pairs))
        left = reduced(pairs, status, found.price)
        assert (left.pairs.capacity >= 0).all()
        assert left.pairs.start[-1] == len(left.origin) == (status == OPEN).sum()
        rest = solve_credit(left.pairs, np.zeros(len(left.origin), dtype=np.uint8), math.inf)
        assert left.credit + rest.credit == found.credit, (kind, seed)
        shrunk += len(left.origin) < len(pairs.node)
    assert shrunk > 60


@pytest.mark.parametrize("kind", ["plain", "many-homes", "wide"])
def test_pairs_that_are_taken_out_of_the_lists_are_as_good_as_banned(kind: str) -> None:
    """A descent half way goes on from the same trial with either, to the same bounds; a repair would heed no ban."""
    rng = random.Random(kind)
    for seed in range(10):
        pairs = pairs_of(round_problem(medium(40, 4, kind, seed)))
        count = len(pairs.node)
        banned = np.array([rng.random() < 0.4 for _ in range(count)], dtype=np.uint8)
        ends = []
        for listed in (pairs, thinned(pairs, banned)):
            price, best = np.zeros(len(pairs.cost), dtype=np.int64), np.zeros(len(pairs.capacity), dtype=np.int64)
            nothing, chosen, held = (np.zeros(count, dtype=np.uint8) for _ in range(3))
            descent, work = begin(pairs, price, 0.5), work_for(pairs)
            descend(pairs, descent, nothing, price, best, chosen, held, WORST, 0, 5, work)
            bar(descent, pairs, banned)
            chosen[:], held[:] = 0, 0
            bound, _, _ = descend(listed, descent, banned, price, best, chosen, held, WORST, 0, 3, work)
            assert not (chosen & banned).any()
            ends.append((bound, price.tolist(), best.tolist()))
        assert ends[0] == ends[1], (kind, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_prices_to_start_from_bound_the_credit_better_than_none(kind: str) -> None:
    """A single relaxation at either prices: over many snapshots the start is the better one by far."""
    bounds = [0, 0, 0]
    for seed in range(20):
        pairs = pairs_of(round_problem(medium(40, 4, kind, seed)))
        bounds[2] += solve_credit(pairs, np.zeros(len(pairs.node), dtype=np.uint8), math.inf).credit
        for k, price in enumerate((start_prices(pairs, work_for(pairs)), np.zeros(len(pairs.cost), dtype=np.int64))):
            assert price.min() >= 0
            state: list[Flags] = [np.zeros(len(pairs.node), dtype=np.uint8) for _ in range(3)]
            optima = np.zeros(len(pairs.capacity), dtype=np.int64)
            bound, _, _ = descend(
                pairs, begin(pairs, price, 1.0), *state[:1], price, optima, *state[1:], WORST, 0, 1, work_for(pairs)
            )
            bounds[k] += credit_of(pairs, bound)
    assert bounds[2] <= bounds[0] < bounds[1]
    assert 4 * (bounds[0] - bounds[2]) < bounds[1] - bounds[2]


def test_surrogate_and_trace_against_all_subsets() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        cost = ints([rng.randint(1, 9) for _ in range(8)])
        worth = ints([rng.randint(0, 20) for _ in range(8)])
        room = rng.randint(0, 25)
        best, decision = surrogate(cost, worth, room)
        for limit in range(room + 1):
            subsets = [s for s in itertools.product((0, 1), repeat=8) if (cost * ints(list(s))).sum() <= limit]
            assert best[limit] == max(int((worth * ints(list(s))).sum()) for s in subsets)
            take = traced(cost, decision, limit)
            assert (cost * take).sum() <= limit
            assert (worth * take).sum() == best[limit]
        table = holdable(cost, room)
        sums = {int((cost * ints(list(s))).sum()) for s in itertools.product((0, 1), repeat=8)}
        assert table.tolist() == [max(s for s in sums if s <= r) for r in range(room + 1)]
        assert linear_bound(cost, worth, room) >= best[room]
        assert linear_bound(cost, worth, 1000) == worth.sum()


def test_split_fills_rooms_to_the_last_quantum() -> None:
    rng = random.Random(4)
    cost = ints(sorted((rng.randint(3, 40) for _ in range(120)), reverse=True))
    total = int(cost.sum())
    rooms = ints([total // 8] * 7 + [total - total // 8 * 7])
    missing, at = split(cost, np.ones(120, dtype=np.uint8), rooms, ints(list(range(8))))
    assert missing == 0
    assert np.bincount(at, cost).tolist() == rooms.tolist()


def test_filling_is_feasible_and_bounded() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        cost = ints([rng.randint(1, 30) for _ in range(40)])
        worth = ints([rng.randint(0, 99) for _ in range(40)])
        rooms = ints([rng.randint(0, 60) for _ in range(5)])
        filling = fill(cost, worth, rooms, 50)
        placed = filling.at >= 0
        assert (np.bincount(filling.at[placed], cost[placed], 5) <= rooms).all()
        assert worth[placed].sum() == filling.worth <= filling.bound


def test_evening_out_keeps_the_value_and_lowers_the_squares() -> None:
    for seed in range(30):
        problem = medium(40, 4, "ties", seed)
        rounded = round_problem(problem)
        at = np.where(np.arange(40) < 12, 0, -1)
        at[rounded.cost[:40].cumsum() > rounded.capacity[0]] = -1
        rooms = rounded.capacity.copy()
        rooms[0] -= rounded.cost[at == 0].sum()
        before, value = int((rooms**2).sum()), rounded_value(rounded, at)
        even_out(rounded.cost, rounded.home_start, rounded.home_node, rounded.home_credit, rooms, at, 4)
        assert rounded_value(rounded, at) == value
        assert (rooms >= 0).all()
        assert int((rooms**2).sum()) <= before
        assert len(set(at[at >= 0].tolist())) > 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("balance", [True, False])
def test_the_compiled_greedy_plan_is_the_plain_one(kind: str, balance: bool) -> None:
    for seed in range(150):
        rounded = round_problem(replace(small(kind, seed), balance=balance))
        worth = rounded.ready << 50 | rounded.footprint
        homes = rounded.home_start, rounded.home_node, rounded.home_credit
        at = greedy(rounded.cost, worth, rounded.capacity, *homes, balance)
        assert at.tolist() == bfd.assign(rounded).tolist()
        whole = value_of(rounded, at)
        assert value(at, worth, *homes) == (whole.credit, whole.ready << 50 | whole.footprint)


@pytest.mark.parametrize("steep", [1, 1 << 40])
def test_the_knapsack_of_a_node_against_all_subsets(steep: int) -> None:
    cored = 0
    for seed in range(300):
        rng = random.Random(seed)
        count, room = rng.randint(0, 11), rng.randint(0, 40)
        work = make_work(count, room)
        cost = [rng.randint(0, room) for _ in range(count)]
        worth = [rng.randint(1, 30) * steep + rng.randrange(3) for _ in range(count)]
        for j in range(count):
            work.pair[j] = j
            work.rate[j] = worth[j] / cost[j] if cost[j] else 1e300
        sort_by_rate(work, count)
        order = work.pair[:count].tolist()
        assert sorted(order) == list(range(count))
        assert (np.diff(work.rate[:count]) <= 0).all()
        work.cost[:count], work.worth[:count] = [cost[j] for j in order], [worth[j] for j in order]
        best = knapsack(work, count, room)
        taken = [j for j, take in zip(order, work.take[:count].tolist(), strict=True) if take]
        assert sum(cost[j] for j in taken) <= room
        assert sum(worth[j] for j in taken) == best
        subsets = itertools.product((0, 1), repeat=count)
        fits = [s for s in subsets if sum(w for w, b in zip(cost, s, strict=True) if b) <= room]
        assert best == max(sum(v for v, b in zip(worth, s, strict=True) if b) for s in fits)
        cored += best > 0
    assert cored > 200


def pairs_of(rounded: Rounded) -> Pairs:
    homes = rounded.home_start, rounded.home_node, rounded.home_credit
    made: Pairs = make_pairs(rounded.cost, rounded.capacity, *homes)
    return made


def rounded_value(rounded: Rounded, at: np.ndarray[tuple[int], np.dtype[np.int64]]) -> object:
    return value_of(rounded, at)
