# SPDX-License-Identifier: Apache-2.0
"""Room, where neighbouring systems failed: shared prefixes (C13), what never fits, one big among small (C14)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.tao_dynamo.fakes import PLAIN, A, B, Driver, admitted, refused


class TestC13SharedPrefixesAreCountedOnce:
    prefix = tuple(range(1, 626))  # 625 blocks of 16 tokens: 10,000 tokens

    def arrivals(self, order: list[int], d: Driver) -> int:
        fitted = 0
        for i in order:
            own = tuple(10_000 * (i + 1) + k for k in range(118))
            fitted += len(admitted(d.arrive(f"s{i}", 11_900, output=90, hashes=self.prefix + own)))
        return fitted

    @pytest.mark.parametrize("seed", range(5))
    def test_all_twenty_fit_whatever_the_order(self, seed: int) -> None:
        policy = replace(PLAIN, admission_mark=1.0, pause_mark=1.0)
        d = Driver(policy, {A: 60_000})
        order = list(range(20))
        random.Random(seed).shuffle(order)
        assert self.arrivals(order, d) == 20
        # 624 of the 625 shared blocks are seen, since chains are sampled every 4 blocks
        assert d.used(A) == 624 * 16 + 20 * (11_990 - 624 * 16)

    def test_the_simple_sum_is_a_named_mode(self) -> None:
        policy = replace(PLAIN, admission_mark=1.0, pause_mark=1.0, shared_prefixes=False)
        d = Driver(policy, {A: 60_000})
        assert self.arrivals(list(range(20)), d) == 5
        assert d.used(A) == 5 * 11_990
        assert d.core.statistics(d.t).shared_prefixes is False

    def test_what_several_share_is_no_sessions_own_credit(self) -> None:
        d = Driver(PLAIN, {A: 60_000})
        self.arrivals([0, 1], d)
        d.credit.table["s0"] = {A: 624 * 16 + 160}
        assert d.view("s0").credits == {A: 160}

    def test_the_room_is_exact_again_when_sharers_leave(self) -> None:
        d = Driver(PLAIN, {A: 60_000})
        self.arrivals([0, 1, 2], d)
        for i in (0, 1):
            d.end(f"s{i}", output=90)
            d.run(d.core.session_ended(f"s{i}", d.t))
        assert d.used(A) == 11_990

    @pytest.mark.parametrize("page", [16, 1056])
    def test_a_holding_takes_whole_pages_of_the_engine(self, page: int) -> None:
        policy = replace(PLAIN, admission_mark=1.0, pause_mark=1.0)
        blocks = 60_000 // page
        d = Driver(policy, {A: blocks * page + page - 1}, block_size=page)
        fitted = sum(len(admitted(d.arrive(f"s{i}", 1990, output=10))) for i in range(60))
        each = -(-2000 // page)
        assert fitted == blocks // each, "60,000 / 2,000 = 30 would be one page too many in each"
        assert d.used(A) == fitted * each * page
        assert d.used(A) <= blocks * page

    def test_shared_pages_are_whole_ones_too(self) -> None:
        policy = replace(PLAIN, admission_mark=1.0, pause_mark=1.0)
        d = Driver(policy, {A: 61 * 1056}, block_size=1056)
        assert self.arrivals(list(range(20)), d) == 20
        # 9,984 shared tokens take 10 pages, once; 2,006 of their own take 2 each.
        assert d.used(A) == (10 + 20 * 2) * 1056


class TestC14NeverFitsAndOneBigAmongManySmall:
    def test_never_fits_is_refused_at_once_with_both_numbers(self) -> None:
        d = Driver(PLAIN, {A: 120_000, B: 100_000})
        out = d.arrive("s1", 130_000, output=100)
        assert refused(out) == ["never_fits"]
        assert "130100" in out[0].text
        assert "120000" in out[0].text
        assert d.view("s1") is None

    def test_or_runs_alone_where_the_operator_chose_so(self) -> None:
        d = Driver(replace(PLAIN, never_fits="alone"), {A: 120_000, B: 100_000})
        assert admitted(d.arrive("s1", 130_000, output=100)) == [("r-s1", A)]

    def test_it_is_refused_too_when_the_only_large_node_leaves(self) -> None:
        d = Driver(PLAIN, {A: 120_000, B: 10_000})
        d.arrive("s0", 100_000)
        d.arrive("s1", 90_000)
        assert refused(d.run(d.core.node_left(A, d.t))) == ["never_fits"]

    def test_a_big_one_starts_within_the_bound_while_small_ones_stream_in(self) -> None:
        d = Driver(PLAIN, {A: 120_000, B: 120_000})
        running: list[tuple[float, str]] = []
        arrived = admitted_small = after_big = 0
        big_at: float | None = None
        d.arrive("seed", 60_000)
        d.arrive("seed2", 60_000)

        def note(out: list[object]) -> None:
            nonlocal admitted_small, big_at, after_big
            for request, _ in admitted(out):
                if request == "r-big":
                    big_at = d.t
                else:
                    running.append((d.t + 8.0, request))
                    admitted_small += 1
                    after_big += d.t > 30.0

        note(d.arrive("big", 90_000))
        while d.t < 60.0:
            d.t += 0.2
            note(d.arrive(f"x{arrived}", 4900, final=True))
            arrived += 1
            for item in [x for x in running if x[0] <= d.t]:
                running.remove(item)
                note(d.run(d.core.turn_ended(item[1], t=d.t, output_tokens=100)))
            note(d.run(d.core.time_passes(d.t)))
            if d.t > 20.0 and d.view("seed") is not None:
                note(d.end("seed"))
                note(d.run(d.core.session_ended("seed", d.t)))
        assert big_at is not None
        assert big_at <= 60.0
        assert after_big > 20, "other nodes go on admitting small sessions meanwhile"

    def test_fragmentation_does_not_block_those_who_fit(self) -> None:
        policy = replace(PLAIN, admission_mark=1.0, pause_mark=1.0)
        d = Driver(policy, {A: 100_000, B: 100_000})
        d.arrive("a", 49_900)
        d.arrive("b", 49_900)
        assert admitted(d.arrive("P", 59_900)) == []
        out = d.arrive("Q", 44_900) + d.arrive("R", 44_900)
        assert sorted(r for r, _ in admitted(out)) == ["r-Q", "r-R"]
        assert {n for _, n in admitted(out)} == {A, B}
        assert d.view("P").waited_s is not None
