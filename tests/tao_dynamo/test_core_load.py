# SPDX-License-Identifier: Apache-2.0
"""Load on a node that is not ours: what the engine measures, less what our running turns have in use by now."""

from __future__ import annotations

from tests.tao_dynamo.fakes import PLAIN, A, Driver

PREFIX = tuple(range(1, 501))  # 8,000 tokens


def foreign(d: Driver) -> int:
    return d.core.statistics(d.t).nodes[0].foreign


def test_a_shared_prefix_is_in_use_once() -> None:
    d = Driver(PLAIN, {A: 100_000}, block_size=16)
    for i in range(4):
        d.arrive(f"s{i}", 8160, output=100, hashes=(*PREFIX, *range(1000 * (i + 1), 1000 * (i + 1) + 10)))
    ours = 8000 + 4 * (160 + 16)
    d.run(d.core.node_load(A, used_tokens=ours, t=d.t))
    assert foreign(d) == 0
    d.run(d.core.node_load(A, used_tokens=ours + 20_000, t=d.t))
    assert foreign(d) == 20_000, "and not 24,000 less, as if each of the four had its own"


def test_what_is_reserved_for_tokens_to_come_is_not_in_use_yet() -> None:
    d = Driver(PLAIN, {A: 100_000}, block_size=16)
    d.arrive("s1", 1000, output=8000)
    d.run(d.core.node_load(A, used_tokens=1008 + 5000, t=d.t))
    assert foreign(d) == 5000
    d.run(d.core.tokens("r-s1", 1000, d.t))
    d.run(d.core.node_load(A, used_tokens=2016 + 5000, t=d.t))
    assert foreign(d) == 5000


def test_sessions_between_turns_are_not_in_use_and_guests_are() -> None:
    d = Driver(PLAIN, {A: 100_000}, block_size=16)
    d.arrive("s1", 4000)
    d.end("s1")
    d.arrive(None, 900, request="guest", output=100)
    d.run(d.core.node_load(A, used_tokens=6000, t=d.t))
    assert foreign(d) == 6000 - 1008, "1,000 tokens of the guest take 63 blocks"


def test_an_engine_that_tells_more_than_it_has_is_full() -> None:
    d = Driver(PLAIN, {A: 100_000}, block_size=16)
    d.run(d.core.node_load(A, used_tokens=2**66, t=d.t))
    assert foreign(d) == 100_000
