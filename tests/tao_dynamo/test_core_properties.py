# SPDX-License-Identifier: Apache-2.0
"""The core under random interleavings of every event: 10,000 short ones, and long ones in every mode."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tao_dynamo.core.policy import DEFAULT, PAPER, Policy
from tests.tao_dynamo.core_world import KINDS, CoreWorld

INTERLEAVINGS = int(os.environ.get("TAO_EXPLORE", "10000"))
SMALL_POOL = replace(DEFAULT, max_waiting=50)
FAST = settings(
    deadline=None,
    database=None,
    derandomize="TAO_EXPLORE" not in os.environ,  # the same ones in every CI run; others to look for more
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.timeout(1800)
def test_ten_thousand_interleavings(capsys: pytest.CaptureFixture[str]) -> None:
    seen: Counter[str] = Counter()
    runs = 0

    @settings(FAST, max_examples=INTERLEAVINGS)
    @given(st.binary(min_size=24, max_size=110))
    def run(data: bytes) -> None:
        nonlocal runs
        runs += 1
        CoreWorld(SMALL_POOL, data, seen).run()

    run()
    with capsys.disabled():
        print(f"\n{runs:,} interleavings, {sum(seen.values()):,} events: {dict(seen.most_common())}")
    assert runs >= INTERLEAVINGS
    assert seen.keys() == KINDS, "every kind of event"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "policy",
    [
        SMALL_POOL,
        replace(PAPER, max_waiting=50),
        replace(SMALL_POOL, host_tier="on", never_fits="alone"),
        replace(SMALL_POOL, pause_order="oldest-first", waiting_bound_s=10.0, max_sessions=5),
    ],
    ids=["default", "paper", "host tier, big ones alone", "oldest first, small table"],
)
def test_long_interleavings(policy: Policy) -> None:
    @settings(FAST, max_examples=100)
    @given(st.binary(min_size=300, max_size=600))
    def run(data: bytes) -> None:
        CoreWorld(policy, data, Counter()).run()

    run()
