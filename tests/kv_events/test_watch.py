# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from kv_events.types import NodeId
from kv_events.watch import Watch
from tests.kv_events.events import A, B


class World:
    def __init__(self) -> None:
        self.blocks: set[tuple[NodeId, int]] = set()
        self.heard: set[NodeId] = set()
        self.watch = Watch(lambda node, block: (node, block) in self.blocks, self.heard.__contains__)


def test_a_node_that_announces_what_it_should_is_never_named() -> None:
    world = World()
    world.heard.add(A)
    for turn in range(300):
        world.watch.ran(A, turn, float(turn))
        assert world.watch.check(float(turn)) == []
        world.blocks.add((A, turn))
        world.blocks.discard((A, turn - 5))
    assert world.watch.verdict(A) == "confirmed"


def test_silence_is_told_from_mismatch_and_each_is_said_once() -> None:
    world = World()
    world.heard.add(B)
    found = []
    for turn in range(100):
        world.watch.ran(A, 1, float(turn))
        world.watch.ran(B, 1, float(turn))
        found += world.watch.check(float(turn))
    assert [(finding.node, finding.verdict) for finding in found] == [(A, "silent"), (B, "mismatch")]
    assert str(A) in found[0].text
    assert "DYN_EVENT_PLANE" in found[0].text
    world.heard.add(A)
    world.blocks.add((A, 1))
    assert [finding.verdict for finding in world.watch.check(101.0)] == ["confirmed"]
    assert world.watch.check(102.0) == []


def test_nothing_is_said_within_the_grace_or_after_few_turns() -> None:
    world = World()
    for turn in range(19):
        world.watch.ran(A, turn, 0.0)
    assert world.watch.check(29.0) == []
    assert world.watch.check(1000.0) == []
    world.watch.ran(A, 1, 1000.0)
    assert world.watch.check(1029.0) == []
    assert [finding.verdict for finding in world.watch.check(1031.0)] == ["silent"]


def test_what_is_expected_is_bounded_and_forgotten_with_the_node() -> None:
    world = World()
    for turn in range(10_000):
        world.watch.ran(A, turn, 0.0)
    assert len(world.watch._nodes[A].expected) == 80
    world.watch.forget(A)
    assert world.watch.check(100.0) == []
