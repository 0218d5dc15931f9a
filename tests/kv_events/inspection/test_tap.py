# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
from collections import Counter

import pytest

from kv_events.inspection.tap import Sampler


@pytest.mark.parametrize("rate", [1, 10, 1000])
def test_a_flood_is_thinned_to_the_rate(rate: int) -> None:
    sampler = Sampler(rate, random.Random(1))
    taken = sum(sampler.admit(at / 50_000) for at in range(500_000))
    assert sampler.taken == taken
    assert sampler.seen == 500_000
    assert 0.4 * rate * 10 <= taken <= 1.1 * rate * 10 + 1


def test_a_trickle_goes_through_whole_and_so_does_everything_at_rate_0() -> None:
    sampler = Sampler(1000)
    assert all(sampler.admit(at / 500) for at in range(5000))
    sampler = Sampler(0)
    assert all(sampler.admit(0.0) for _ in range(5000))


def test_publishers_that_take_turns_are_all_seen() -> None:
    sampler = Sampler(1000, random.Random(2))
    seen = Counter(at % 8 for at in range(400_000) if sampler.admit(at / 40_000))
    assert len(seen) == 8
    assert max(seen.values()) < 1.25 * min(seen.values())
