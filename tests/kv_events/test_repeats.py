# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from kv_events.repeats import Repeats
from tests.kv_events.events import envelope


def test_what_is_sent_again_under_its_number_is_a_repeat_in_whatever_order() -> None:
    repeats = Repeats()
    seen = [repeats.again(envelope(at, published_at=at)) for at in (0, 1, 3, 2, 0, 3, 1, 4)]
    assert seen == [False, False, False, False, True, True, True, False]


def test_publishers_do_not_repeat_each_other() -> None:
    repeats = Repeats()
    assert not repeats.again(envelope(0, publisher=1))
    assert not repeats.again(envelope(0, publisher=2))
    assert repeats.again(envelope(0, publisher=1))


def test_a_publisher_that_counts_anew_is_heard() -> None:
    repeats = Repeats()
    assert not repeats.again(envelope(0, published_at=1000))
    assert not repeats.again(envelope(0, published_at=2000))
    assert repeats.again(envelope(0, published_at=2000))


def test_the_window_is_bounded_and_the_oldest_go() -> None:
    repeats = Repeats(remembered=100)
    for at in range(1000):
        assert not repeats.again(envelope(at))
    assert len(repeats) == 100
    assert repeats.again(envelope(900))
    assert not repeats.again(envelope(899))
