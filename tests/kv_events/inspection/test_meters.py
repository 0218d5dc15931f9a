# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from kv_events.inspection import meters as module
from kv_events.inspection.meters import Meters
from kv_events.recording import Message
from kv_events.types import NodeId
from tests.kv_events.events import A, B, C, cleared, removed, stored
from tests.kv_events.inspection.bus import WORKERS, forward, kv, load


def test_blocks_are_counted_per_node_and_tier() -> None:
    meters = Meters()
    meters.take(kv([stored([1, 2, 3]), stored([1], tier="host_pinned", at=2), stored([7], node=B)], 0), 0.0)
    meters.take(kv([removed([3, 99], at=3), stored([1], at=4)], 1), 0.0)
    a, b = meters.nodes[A], meters.nodes[B]
    assert (a.blocks, a.lower, a.stored, a.removed, a.view) == (2, 1, 5, 2, "whole")
    assert (b.blocks, b.lower) == (1, 0)
    meters.take(kv([cleared(at=5)], 2), 0.0)
    assert (a.blocks, a.lower) == (0, 1)


def test_rates_are_of_the_last_seconds() -> None:
    meters = Meters()
    meters.mark(0.0)
    for at in range(20):
        meters.take(kv([stored(range(10 * at, 10 * at + 10), at=at + 1)], at, t=float(at)), 0.0)
        meters.mark(at + 1.0)
    assert meters.nodes[A].rates() == (10.0, 0.0)
    meters.mark(20.0)
    for at in range(21, 30):
        meters.mark(float(at))
    assert meters.nodes[A].rates() == (0.0, 0.0)


def test_a_hole_in_the_numbers_breaks_the_view_of_that_publishers_nodes_only() -> None:
    meters = Meters()
    for publisher, node in ((1, A), (2, C)):
        meters.take(kv([stored([1], node=node)], 0, publisher=publisher), 0.0)
    meters.take(kv([stored([5], at=5)], 4), 0.0)
    assert (meters.gaps, meters.missing) == (1, 3)
    assert (meters.nodes[A].view, meters.nodes[A].gaps) == ("broken", 1)
    assert (meters.nodes[C].view, meters.nodes[C].gaps) == ("whole", 0)
    meters.take(kv([cleared(at=6)], 5), 0.0)
    assert (meters.nodes[A].view, meters.nodes[A].healed) == ("whole", 1)


def test_a_node_that_was_there_before_us_is_late_until_it_restarts() -> None:
    meters = Meters()
    meters.take(kv([stored([9], 8, at=40)], 39), 0.0)
    assert meters.nodes[A].view == "late"
    meters.take(kv([stored([1])], 0, publisher=2), 0.0)
    a = meters.nodes[A]
    assert (a.view, a.blocks, a.restarts, a.healed) == ("whole", 1, 1, 1)
    meters.take(kv([stored([1])], 0, publisher=2, ms=5), 0.0)
    assert (a.blocks, a.restarts) == (1, 2)


def test_a_node_that_only_tells_its_load_is_late_unless_we_heard_its_first_word() -> None:
    meters = Meters()
    meters.take(forward(7, 500, 12), 0.0)
    meters.take(load(9, 0, 0), 0.0)
    assert (meters.nodes[A].view, meters.nodes[C].view) == ("late", "whole")
    meters.take(kv([stored([1])], 0), 0.0)
    assert (meters.nodes[A].view, meters.nodes[A].healed) == ("whole", 0)


def test_what_comes_twice_counts_once() -> None:
    meters = Meters()
    for _ in range(2):
        meters.take(kv([stored([1])], 0), 0.0)
    assert (meters.repeats, meters.nodes[A].stored, meters.gaps) == (1, 1, 0)


def test_what_is_only_counted_keeps_the_numbers_in_order() -> None:
    meters = Meters()
    for at in range(10):
        meters.take(kv([stored([at], at=at + 1)], at), 0.0, look=at % 3 == 0)
    assert (meters.gaps, meters.left_out, meters.messages["kv-events"], meters.nodes[A].stored) == (0, 6, 10, 4)


def test_load_and_lag() -> None:
    meters = Meters()
    meters.take(load(7, 123, 0, t=1.0), 0.0)
    meters.take(forward(7, 500, 0, t=2.0), 0.0)
    meters.take(kv([stored([1])], 0, t=3.0, ms=10_000), 10.25)
    a = meters.nodes[A]
    assert (a.used_blocks, a.running, a.queued, a.prefilled, a.heard) == (123, 3, 3, 500, 3.0)
    assert a.lag_s == a.max_lag_s == 0.25


def test_rubbish_is_counted() -> None:
    meters = Meters()
    for data in (b"", b"\xc1", b"\x80"):
        meters.take(Message(0.0, WORKERS + "kv-events", data), 0.0)
    assert (meters.unreadable, meters.nodes) == (3, {})


def test_nodes_publishers_and_blocks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_NODES", 5)
    monkeypatch.setattr(module, "_MAX_PUBLISHERS", 5)
    monkeypatch.setattr(module, "_MAX_NAMES", 20)
    meters = Meters()
    for worker in range(50):
        meters.take(kv([stored([1, 2, 3], node=NodeId(worker, 0))], 0, publisher=worker), 0.0)
        meters.take(kv([stored(range(9, 30), node=NodeId(worker, 0), at=2)], 1, publisher=worker), 0.0)
    assert len(meters.nodes) == 5
    assert sum(meter.blocks for meter in meters.nodes.values()) <= 20
    assert meters.refused > 0


def test_blocks_that_are_looked_out_for() -> None:
    event = stored([1, 2, 3])
    meters = Meters({event.data.tokens_hashes[2]})  # type: ignore[union-attr]
    meters.take(kv([event, stored([9], node=B)], 0), 0.0)
    assert (meters.nodes[A].met, meters.nodes[B].met) == (1, 0)
