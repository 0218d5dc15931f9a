# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from benchmarks.simulator.cache import Chain
from benchmarks.simulator.calendar import Calendar
from benchmarks.simulator.node import Node, Sequence
from benchmarks.simulator.setups import Setup, mocker
from benchmarks.simulator.timing import Mocker


class Ears:
    """Notes what a node tells."""

    def __init__(self, calendar: Calendar) -> None:
        self.calendar = calendar
        self.first: dict[str, float] = {}
        self.done: dict[str, float] = {}
        self.told: list[tuple[str, int]] = []

    def first_token(self, node: int, sequence: Sequence) -> None:
        self.first[sequence.request_id] = self.calendar.now

    def progress(self, node: int, sequence: Sequence, tokens: int) -> None:
        self.told.append((sequence.request_id, tokens))

    def finished(self, node: int, sequence: Sequence) -> None:
        self.done[sequence.request_id] = self.calendar.now

    def cache_changed(self, node: int, keys: set[str]) -> None:
        pass


def start(setup: Setup) -> tuple[Calendar, Ears, Node]:
    calendar = Calendar()
    ears = Ears(calendar)
    return calendar, ears, Node(0, setup, calendar, ears)


def request(name: str, prompt: int, output: int, *, reports: bool = False) -> Sequence:
    return Sequence(name, Chain(name, "shared/", 0), prompt, output, 0.0, reports=reports)


def finish(calendar: Calendar) -> None:
    calendar.run(done=lambda: False, most_events=100_000)


def decode_ms(used: float) -> float:
    return max(1.0, -25.74 * used * used + 54.01 * used + 5.74)


def test_one_request_takes_what_the_mocker_takes() -> None:
    # FACTS §3: prefill of n tokens, then one decode step for each further token.
    calendar, ears, node = start(mocker(1, 1024))
    node.submit(request("a", 1000, 5))
    finish(calendar)
    prefill = 4.209989e-7 * 1000**2 + 0.01518344 * 1000 + 16.50142
    assert ears.first["a"] * 1000 == pytest.approx(prefill, abs=1e-6)
    steps = sum(decode_ms((1000 + i) / 16384) for i in range(4))
    assert ears.done["a"] * 1000 == pytest.approx(prefill + steps, abs=1e-6)
    assert node.cache.in_use == 0


def test_a_long_prompt_is_chunked() -> None:
    calendar, ears, node = start(mocker(1, 4096))
    node.submit(request("a", 10_000, 1))
    finish(calendar)
    timing = Mocker(4096 * 16)
    assert ears.first["a"] == pytest.approx(timing.mixed_s(8192, 0, 0, 0) + timing.mixed_s(1808, 0, 0, 0))


def test_an_arrival_ends_a_run_of_decode_steps_at_the_next_step() -> None:
    calendar, ears, node = start(mocker(1, 4096))
    node.submit(request("a", 100, 1000))
    calendar.at(1.0, lambda: node.submit(request("b", 100, 1000)))
    finish(calendar)
    one_step = decode_ms(300 / 65536) / 1000
    alone = Mocker(65536).mixed_s(100, 0, 1, 250)
    assert 1.0 + alone - 0.001 < ears.first["b"] < 1.0 + one_step + alone + 0.001


def test_splitting_runs_changes_nothing() -> None:
    def ends(poked: bool) -> dict[str, float]:
        calendar, ears, node = start(mocker(1, 4096))
        for i in range(6):
            calendar.at(0.1 * i, partial(node.submit, request(f"r{i}", 200 + 10 * i, 150 + i)))
        if poked:
            for i in range(200):
                calendar.at(0.013 * i, node.poke)
        finish(calendar)
        return ears.done

    plain, poked = ends(False), ends(True)
    assert plain.keys() == poked.keys()
    for name, at in plain.items():
        assert poked[name] == pytest.approx(at, rel=1e-9)


def test_the_youngest_is_preempted_and_still_finishes() -> None:
    calendar, ears, node = start(mocker(1, 64))  # 1,024 tokens
    for name in "ab":
        node.submit(request(name, 400, 300))
    finish(calendar)
    assert node.preemptions == 1
    assert ears.done.keys() == {"a", "b"}
    assert ears.done["a"] < ears.done["b"]
    assert node.cache.in_use == 0


def test_requests_beyond_the_room_wait_in_order() -> None:
    calendar, ears, node = start(mocker(1, 64))
    for name in "abc":
        node.submit(request(name, 600, 10))
    finish(calendar)
    assert ears.first["a"] < ears.done["a"] <= ears.first["b"] < ears.done["b"] <= ears.first["c"]


def test_progress_comes_every_64_tokens_to_those_who_ask() -> None:
    calendar, ears, node = start(mocker(1, 4096))
    node.submit(request("a", 10, 200, reports=True))
    node.submit(request("b", 10, 200))
    finish(calendar)
    assert ears.told == [("a", 65), ("a", 129), ("a", 193)]


def test_many_random_requests_leave_no_trace() -> None:
    calendar, ears, node = start(mocker(1, 256))
    for i in range(200):
        calendar.at(0.07 * i, partial(node.submit, request(f"r{i}", 37 * i % 900 + 1, 53 * i % 180 + 1)))
    finish(calendar)
    assert len(ears.done) == 200
    assert node.preemptions > 0
    assert node.cache.in_use == 0
    assert node.load == 0


def test_blocks_come_from_the_host_tier_beside_the_steps() -> None:
    setup = replace(mocker(1, 64), host_tokens=10_000, host_tokens_per_s=1000.0)
    calendar, ears, node = start(setup)
    node.submit(request("a", 1000, 1))
    finish(calendar)
    node.submit(request("b", 1000, 1))  # pushes a out to the host
    finish(calendar)
    began = calendar.now
    again = request("a", 1001, 1)
    node.submit(again)
    finish(calendar)
    assert again.cached == 992
    loading = 976 / 1000  # 24 tokens of a were still on the device
    assert ears.first["a"] - began == pytest.approx(loading + Mocker(1024).mixed_s(9, 0, 0, 0), abs=0.03)
