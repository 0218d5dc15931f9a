# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.simulator.setups import SETUPS, named
from benchmarks.simulator.timing import Mocker, Timing
from tao_dynamo.errors import ConfigError

ALL: list[Timing] = [*(setup.timing for setup in SETUPS.values()), Mocker(400_000), Mocker(30_000, 4.0)]


@given(st.sampled_from(ALL), st.integers(1, 200), st.integers(1, 20_000), st.integers(1, 60))
def test_a_run_of_decode_steps_is_the_sum_of_its_steps(timing: Timing, decodes: int, context: int, steps: int) -> None:
    one_by_one = sum(timing.decode_s(decodes, context + i * decodes, 1) for i in range(steps))
    assert timing.decode_s(decodes, context, steps) == pytest.approx(one_by_one, rel=1e-9)


@pytest.mark.parametrize("name", list(SETUPS))
def test_set_ups_are_plausible(name: str) -> None:
    timing = SETUPS[name].timing
    assert 5_000 < timing.prefill_rate() < 100_000
    assert 0.004 < timing.decode_s(1, 1000, 1) < 0.05
    assert timing.decode_s(64, 200_000, 1) > timing.decode_s(1, 1000, 1)
    assert timing.mixed_s(8192, 4096, 64, 200_000) > timing.mixed_s(8192, 4096, 0, 0)


def test_names() -> None:
    assert named("mocker:3:2048:4").capacity_tokens == 32_768
    assert (named("mocker:3:2048").nodes, named("qwen3-32b").nodes) == (3, 4)
    for bad in ("x", "mocker", "mocker:0:5", "mocker:1:x", "qwen3-32b:2"):
        with pytest.raises(ConfigError, match="--setup"):
            named(bad)
