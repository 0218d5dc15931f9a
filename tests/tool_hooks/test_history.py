# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tool_hooks.history import History, Window


def test_the_margin_is_maurer_and_pontils() -> None:
    window = Window(10)
    for x in (1.0, 2.0, 4.0):
        window.add(x)
    log = math.log(10.0)
    variance = statistics.variance((1.0, 2.0, 4.0))
    mean, margin = window.mean_and_margin(0.2)
    assert mean == pytest.approx(7.0 / 3.0)
    assert margin == pytest.approx(math.sqrt(2.0 * variance * log / 3.0) + 7.0 * 3.0 * log / (3.0 * 2.0))


def test_one_sample_has_no_margin_and_equal_samples_none_to_add() -> None:
    window = Window(10)
    window.add(2.0)
    assert window.mean_and_margin(0.2) == (2.0, math.inf)
    window.add(2.0)
    assert window.mean_and_margin(0.2) == (2.0, 0.0)


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=40))
def test_a_window_is_the_last_of_what_was_added(added: list[float]) -> None:
    window = Window(8)
    for value in added:
        window.add(value)
    kept = added[-8:]
    assert window.ordered == sorted(kept)
    assert window.last == kept[-1]
    assert window.mean_and_margin(0.2)[0] == pytest.approx(statistics.fmean(kept))


def test_the_least_recently_taught_name_is_forgotten() -> None:
    history = History(window=4, max_names=2)
    for name in ("a", "b", "a", "c"):
        history.add(name, 1.0)
    assert len(history) == 2
    assert history.get("b") is None
    assert history.get("a") is not None


def test_seeds_are_forgotten_first() -> None:
    history = History(window=3, max_names=2, seeds=(9.0, 8.0))
    for x in (1.0, 2.0):
        history.add("a", x)
    window = history.get("a")
    assert window is not None
    assert window.ordered == [1.0, 2.0, 8.0]
