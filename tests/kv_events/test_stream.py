# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from kv_events.stream import Apply, Healed, Recovery, Restarted, Resync, Sequencer
from kv_events.types import NodeId
from kv_events.wire import KvBatch, KvEvent
from tests.kv_events.events import A, B, C, batch, envelope, stored


def applied(actions: list[object]) -> list[int]:
    return [action.event.event_id for action in actions if isinstance(action, Apply)]


def kinds(actions: list[object]) -> list[type]:
    return [type(action) for action in actions]


class Feed:
    """One publisher's messages, one event each."""

    def __init__(self, stream: Sequencer, node: NodeId = A, publisher: int = 1) -> None:
        self.stream = stream
        self.node = node
        self.publisher = publisher

    def event(self, at: int) -> KvEvent:
        return stored([at], node=self.node, at=at)

    def send(self, at: int, sequence: int | None = None, published_at: int = 0) -> list[object]:
        envelope_ = envelope(
            at - 1 if sequence is None else sequence, publisher=self.publisher, published_at=published_at
        )
        return list(self.stream.receive(envelope_, batch(self.event(at))))

    def run(self, first: int, last: int) -> list[object]:
        return [action for at in range(first, last + 1) for action in self.send(at)]


def test_an_unbroken_stream_is_applied_as_it_comes() -> None:
    stream = Sequencer()
    feed = Feed(stream)
    assert applied(feed.run(1, 20)) == list(range(1, 21))
    assert stream.cursor(A) == 20
    assert stream.lost() == []


def test_c1_a_new_publisher_starts_again_at_one() -> None:
    stream = Sequencer()
    Feed(stream).run(1, 500)
    Feed(stream, C, 9).run(1, 3)
    actions = Feed(stream, A, 2).send(1)
    assert actions[0] == Restarted(A)
    assert applied(actions) == [1]
    assert stream.counters.restarts == 1
    assert stream.lost() == []
    assert stream.cursor(C) == 3


def test_c1_the_same_publisher_starts_again_at_zero() -> None:
    stream = Sequencer()
    feed = Feed(stream)
    feed.run(1, 500)
    actions = feed.send(1, sequence=0)
    assert kinds(actions) == [Restarted, Apply]
    assert applied(feed.run(2, 5)) == [2, 3, 4, 5]
    assert stream.counters.restarts == 1


def test_c1_the_counter_starts_again_in_an_unbroken_sequence() -> None:
    stream = Sequencer()
    feed = Feed(stream)
    feed.run(1, 500)
    actions = feed.send(1, sequence=500)
    assert kinds(actions) == [Restarted, Apply]
    assert stream.counters.restarts == 1


def test_a_restart_whose_first_events_were_lost_is_not_taken_for_the_past() -> None:
    stream = Sequencer()
    feed = Feed(stream)
    for at in range(1, 101):
        feed.send(at, published_at=1000 + at)
    actions = feed.send(4, published_at=9000)
    assert kinds(actions) == [Restarted, Resync]
    later = feed.send(5, published_at=9001)
    assert later == []
    stream.dumping()
    recovery = stream.dumped(A)
    assert recovery is not None
    assert [event.event_id for event in recovery.held] == [4, 5]


def test_a_restart_is_seen_even_when_the_clock_went_back() -> None:
    stream = Sequencer()
    feed = Feed(stream)
    for at in range(1, 101):
        feed.send(at, published_at=1000 + at)
    assert feed.send(5, published_at=3) == []
    assert feed.send(6, published_at=4) == []
    assert kinds(feed.send(7, published_at=5)) == [Restarted, Resync]
    assert stream.counters.late == 2


def test_a_new_publisher_in_mid_stream_is_a_restart_that_needs_a_dump() -> None:
    stream = Sequencer()
    Feed(stream).run(1, 10)
    actions = Feed(stream, A, 2).send(7, sequence=6)
    assert kinds(actions) == [Restarted, Resync]


def test_a_late_message_of_the_publisher_before_is_dropped() -> None:
    stream = Sequencer()
    old = Feed(stream)
    old.run(1, 10)
    new = Feed(stream, A, 2)
    new.run(1, 3)
    assert old.send(11) == []
    assert stream.counters.late == 1
    assert applied(new.send(4)) == [4]


def test_doubled_and_late_messages_change_nothing() -> None:
    stream = Sequencer()
    feed = Feed(stream)
    for at in range(1, 11):
        feed.send(at, published_at=at)
    assert feed.send(10, published_at=10) == []
    assert feed.send(4, published_at=4) == []
    assert feed.send(11, sequence=9, published_at=10) == []
    assert applied(feed.send(11, published_at=11)) == [11]
    assert feed.send(11, sequence=11, published_at=12) == []
    assert stream.counters.duplicates == 1
    assert stream.lost() == []


def test_a_first_message_that_is_doubled_is_no_restart() -> None:
    stream = Sequencer()
    feed = Feed(stream)
    assert applied(feed.send(1)) == [1]
    assert feed.send(1) == []
    assert stream.counters.restarts == 0


def test_c3_a_gap_a_dump_and_what_came_meanwhile() -> None:
    stream = Sequencer()
    feed, other = Feed(stream), Feed(stream, B, 2)
    feed.run(1, 10)
    asked = [action for at in (14, 15) for action in feed.send(at)]
    assert asked == [Resync(A, "gap")]
    assert applied(other.run(1, 5)) == [1, 2, 3, 4, 5]
    assert stream.dumping() == [A]
    assert feed.send(16) == []
    assert applied(other.run(6, 7)) == [6, 7]
    assert stream.cursor(A) == 13
    recovery = stream.dumped(A, as_of=15)
    assert recovery == Recovery(True, (feed.event(16),), None)
    assert stream.cursor(A) == 16
    assert applied(feed.send(17)) == [17]
    assert stream.cursor(A) == 17
    assert stream.lost() == []
    assert stream.counters.gaps == 1


def test_c3_the_cursor_right_after_the_dump() -> None:
    stream = Sequencer()
    feed = Feed(stream)
    feed.run(1, 10)
    feed.run(14, 15)
    stream.dumping()
    assert stream.dumped(A, as_of=15) == Recovery(True, (), None)
    assert stream.cursor(A) == 15
    assert applied(feed.run(16, 17)) == [16, 17]


def test_c3_the_worker_leaves_during_the_dump() -> None:
    stream = Sequencer()
    feed = Feed(stream)
    feed.run(1, 10)
    feed.send(14)
    stream.dumping()
    stream.forget_worker(A.worker_id)
    assert stream.dumped(A, as_of=15) is None
    assert stream.lost() == []
    assert stream.cursor(A) is None


def test_a_dump_that_is_older_than_the_gap_is_of_no_use() -> None:
    stream = Sequencer()
    feed = Feed(stream)
    feed.run(1, 10)
    feed.run(14, 15)
    stream.dumping()
    recovery = stream.dumped(A, as_of=12)
    assert recovery is not None
    assert not recovery.usable
    assert recovery.again is not None
    assert stream.dumping() == [A]
    assert stream.dumped(A, as_of=13) == Recovery(True, (feed.event(14), feed.event(15)), None)


def test_a_dump_that_is_ahead_of_the_bus_is_not_applied_twice() -> None:
    stream = Sequencer()
    feed = Feed(stream)
    feed.run(1, 10)
    feed.send(14)
    stream.dumping()
    assert stream.dumped(A, as_of=17) == Recovery(True, (), None)
    assert feed.run(15, 17) == []
    assert applied(feed.send(18)) == [18]
    assert stream.lost() == []
    assert stream.counters.restarts == 0


def test_a_dump_without_a_position_is_followed_by_all_that_was_held() -> None:
    stream = Sequencer()
    feed = Feed(stream)
    feed.run(1, 10)
    feed.run(14, 16)
    stream.dumping()
    feed.send(17)
    recovery = stream.dumped(A)
    assert recovery is not None
    assert [event.event_id for event in recovery.held] == [14, 15, 16, 17]
    assert recovery.again is None


def test_a_gap_after_the_dump_was_asked_for_needs_another_one() -> None:
    stream = Sequencer()
    feed = Feed(stream)
    feed.run(1, 10)
    feed.send(14)
    assert feed.send(19) == []
    stream.dumping()
    assert feed.send(25) == []
    recovery = stream.dumped(A)
    assert recovery is not None
    assert recovery.usable
    assert recovery.again == Resync(A, "gap")
    assert stream.lost() == [A]
    stream.dumping()
    assert stream.dumped(A) == Recovery(True, (), None)
    assert applied(feed.send(26)) == [26]


def test_a_dump_that_did_not_come_is_asked_for_again() -> None:
    stream = Sequencer()
    feed = Feed(stream)
    feed.run(1, 3)
    feed.send(7)
    stream.dumping()
    stream.failed(A)
    assert stream.dumped(A) is None
    assert stream.dumping() == [A]
    assert stream.dumped(A) is not None


def test_a_restart_during_the_dump_turns_it_away() -> None:
    stream = Sequencer()
    feed = Feed(stream)
    feed.run(1, 10)
    feed.send(14)
    stream.dumping()
    actions = Feed(stream, A, 2).send(1)
    assert kinds(actions) == [Restarted, Healed, Apply]
    assert stream.dumped(A) is None
    assert stream.lost() == []


def test_a_restart_in_mid_stream_during_the_dump_needs_another_one() -> None:
    stream = Sequencer()
    Feed(stream).run(1, 10)
    Feed(stream).send(14)
    stream.dumping()
    assert kinds(Feed(stream, A, 2).send(5, sequence=4)) == [Restarted]
    recovery = stream.dumped(A)
    assert recovery is not None
    assert recovery.again is not None


def test_a_node_first_seen_in_mid_stream_is_lost_until_its_dump() -> None:
    stream = Sequencer()
    feed = Feed(stream)
    assert feed.send(7) == [Resync(A, "first seen in mid-stream")]
    assert feed.send(8) == []


def test_an_expected_node_goes_on_from_its_dump_whatever_its_ids() -> None:
    stream = Sequencer()
    assert kinds(stream.expect(A)) == [Resync]
    assert stream.expect(A) == []
    assert not stream.heard(A)
    stream.dumping()
    assert stream.dumped(A) == Recovery(True, (), None)
    feed = Feed(stream)
    assert applied(feed.run(41, 43)) == [41, 42, 43]
    assert stream.heard(A)
    assert kinds(feed.send(45)) == [Resync]


def test_an_expected_node_whose_first_event_comes_before_the_dump() -> None:
    stream = Sequencer()
    stream.expect(A)
    stream.dumping()
    feed = Feed(stream)
    assert feed.run(41, 42) == []
    recovery = stream.dumped(A)
    assert recovery is not None
    assert [event.event_id for event in recovery.held] == [41, 42]
    assert recovery.again is None


def test_an_expected_node_that_begins_at_one_has_restarted_since_its_dump() -> None:
    stream = Sequencer()
    stream.expect(A)
    stream.dumping()
    stream.dumped(A)
    assert kinds(Feed(stream).send(1)) == [Restarted, Apply]


def test_an_expected_node_that_begins_at_one_before_its_dump_needs_none() -> None:
    stream = Sequencer()
    stream.expect(A)
    assert kinds(Feed(stream).send(1)) == [Healed, Apply]
    assert stream.lost() == []


def test_c16_losing_track_is_asked_for_once_per_node() -> None:
    stream = Sequencer()
    Feed(stream).run(1, 3)
    Feed(stream, B, 2).run(1, 3)
    assert stream.lose_track("the event bus was away") == [
        Resync(A, "the event bus was away"),
        Resync(B, "the event bus was away"),
    ]
    assert stream.lose_track("again") == []
    assert Feed(stream).send(9) == []
    assert stream.counters.gaps == 2
    assert sorted(stream.dumping()) == [A, B]


def test_c16_a_node_first_seen_after_messages_were_dropped_is_lost_too() -> None:
    stream = Sequencer()
    assert stream.lose_track("messages were dropped", unseen=True) == []
    feed = Feed(stream)
    assert feed.send(1) == [Resync(A, "messages were dropped")]
    assert feed.send(2) == []
    stream.dumping()
    recovery = stream.dumped(A)
    assert recovery is not None
    assert [event.event_id for event in recovery.held] == [1, 2]
    assert kinds(Feed(stream, B, 2).send(1)) == [Apply]


def test_a_gap_in_the_sequence_loses_the_nodes_that_are_not_in_the_message() -> None:
    stream = Sequencer()
    stream.receive(envelope(0), batch(stored([1], at=1), stored([1], node=B, at=1)))
    assert stream.receive(envelope(2), batch(stored([2], at=2))) == [Resync(B, "gap"), Apply(stored([2], at=2))]


def test_a_malformed_event_makes_a_gap() -> None:
    stream = Sequencer()
    feed = Feed(stream)
    feed.run(1, 3)
    assert stream.receive(envelope(3), KvBatch([], 0, 1)) == [Resync(A, "gap")]


def test_ids_that_jump_by_habit_are_believed_in_the_end() -> None:
    stream = Sequencer()
    feed = Feed(stream)
    feed.send(1)
    asked = 0
    for sequence, at in enumerate(range(11, 200, 10), start=1):
        asked += kinds(feed.send(at, sequence=sequence)).count(Resync)
        stream.dumping()
        stream.dumped(A)
    assert asked == 3
    assert kinds(feed.send(500, sequence=900)) == [Resync]


@pytest.mark.parametrize("dumping", [False, True])
def test_what_is_held_back_is_bounded(dumping: bool) -> None:
    stream = Sequencer(max_held=100)
    feed = Feed(stream)
    feed.send(1)
    feed.send(5)
    if dumping:
        stream.dumping()
    for at in range(6, 400):
        assert feed.send(at) == []
    assert stream.counters.held_dropped > 200
    stream.dumping() if not dumping else None
    recovery = stream.dumped(A)
    assert recovery is not None
    assert len(recovery.held) <= 100
    assert (recovery.again is not None) == dumping


def test_nodes_and_publishers_are_bounded() -> None:
    stream = Sequencer(max_nodes=10)
    for rank in range(50):
        Feed(stream, NodeId(1, rank), publisher=rank).send(1)
    assert stream.counters.refused == 40
    assert len(stream.lose_track("x")) == 10
    for publisher in range(20_000):
        stream.receive(envelope(0, publisher=publisher), KvBatch([]))
    assert len(stream._publishers) <= 16_384
