# SPDX-License-Identifier: Apache-2.0
"""Each thing that can be wrong with a bus is found, named with what to do, and tells in the exit code."""

from __future__ import annotations

from collections import Counter

from kv_events.inspection.check import NO_EVENTS, UNHEALTHY, Finding, Heard, exit_code, judge
from kv_events.inspection.discovery import Card, Discovery
from kv_events.inspection.meters import Meters
from kv_events.inspection.toolboard import ToolBoard
from kv_events.recording import Message
from kv_events.types import NodeId
from tests.kv_events.events import A, B, C, stored
from tests.kv_events.inspection.bus import TOOLS, WORKERS, forward, kv, load, tool


def heard(*messages: Message, expected: set[int] | None = None, wall_s: float = 0.0, **more: object) -> Heard:
    meters, board = Meters(expected), ToolBoard()
    for message in messages:
        if message.subject == TOOLS:
            board.take(message)
        else:
            meters.take(message, wall_s)
    return Heard(5.0, meters, board, expected=None if expected is None else len(expected), **more)  # type: ignore[arg-type]


def found(what: Heard) -> dict[str, Finding]:
    """The worst finding of each kind."""
    rank = {"ok": 0, "note": 1, "fail": 2}
    worst: dict[str, Finding] = {}
    for finding in judge(what):
        if finding.about not in worst or rank[finding.level] > rank[worst[finding.about].level]:
            worst[finding.about] = finding
    assert all(finding.advice for finding in worst.values() if finding.level == "fail")
    return worst


def card(node: NodeId, *, size: int = 16, publishes: bool = True) -> Card:
    return Card(node, size, 1024, publishes)


def test_a_healthy_bus() -> None:
    what = heard(
        kv([stored([1, 2])], 0, publisher=1),
        kv([stored([1, 3], node=C)], 0, publisher=2),
        tool("tool_start", 0, t=0.0),
        discovery=Discovery({A: card(A), C: card(C)}, {"kv-events": Counter({"nats": 2})}),
        router={A: "ok", C: "confirmed"},
        need_tools=True,
    )
    assert {finding.level for finding in judge(what)} == {"ok"}
    assert exit_code(judge(what)) == 0
    assert "4 blocks stored" in found(what)["kv events"].text


def test_nothing_at_all_on_nats() -> None:
    what = heard()
    assert exit_code(judge(what)) == NO_EVENTS
    assert "DYN_EVENT_PLANE=nats" in found(what)["bus"].advice


def test_nothing_on_nats_since_it_goes_over_zmq() -> None:
    what = heard(discovery=Discovery({A: card(A)}, {"kv-events": Counter({"zmq": 2})}))
    assert exit_code(judge(what)) == NO_EVENTS
    assert "over ZMQ" in found(what)["bus"].text
    assert "DYN_EVENT_PLANE=nats" in found(what)["bus"].advice


def test_nothing_on_this_nats_though_workers_use_one() -> None:
    what = heard(discovery=Discovery({A: card(A)}, {"kv-events": Counter({"nats": 1})}))
    assert exit_code(judge(what)) == NO_EVENTS
    assert "NATS_SERVER" in found(what)["bus"].advice


def test_some_workers_go_over_zmq() -> None:
    what = heard(kv([stored([1])], 0), discovery=Discovery({}, {"kv-events": Counter({"nats": 1, "zmq": 2})}))
    assert "2 over ZMQ" in found(what)["plane"].text
    assert exit_code(judge(what)) == UNHEALTHY


def test_a_worker_that_computes_and_announces_nothing_is_named() -> None:
    what = heard(kv([stored([1])], 0), forward(9, 4000, 0), forward(7, 4000, 0, publisher=61))
    assert found(what)["silent"].text == "node 9/0 computed 4,000 tokens and announced no block"
    assert exit_code(judge(what)) == UNHEALTHY


def test_a_worker_that_has_nothing_to_announce_is_not() -> None:
    what = heard(kv([stored([1])], 0), forward(9, 20, 0), load(9, 0, 0))
    assert "silent" not in found(what)
    assert exit_code(judge(heard(load(9, 0, 0)))) == 0


def test_a_worker_that_is_up_and_not_heard_and_one_whose_events_are_off() -> None:
    what = heard(kv([stored([1])], 0), discovery=Discovery({A: card(A), C: card(C)}, {}))
    assert found(what)["silent"].text == "node 9/0 is up and sends nothing"
    what = heard(kv([stored([1])], 0), discovery=Discovery({C: card(C, publishes=False)}, {}))
    assert "switched off" in found(what)["silent"].text


def test_hashes_of_one_node_that_nobody_shares() -> None:
    same = [kv([stored([1, 2], node=NodeId(at, 0))], 0, publisher=at) for at in (1, 2, 3)]
    what = heard(*same, kv([stored([71, 72], node=C)], 0, publisher=9))
    assert "node 9/0" in found(what)["hashes"].text
    assert found(what)["hashes"].level == "fail"
    assert "block size" in found(what)["hashes"].advice
    assert found(heard(*same))["hashes"].level == "ok"
    assert found(heard(same[0], kv([stored([71], node=C)], 0, publisher=9)))["hashes"].level == "note"


def test_hashes_against_prompts_that_are_served() -> None:
    event = stored([1, 2])
    tokens = set(event.data.tokens_hashes)  # type: ignore[union-attr]
    good, bad = kv([event], 0), kv([stored([5, 6], node=C)], 0, publisher=9)
    assert found(heard(good, expected=tokens))["hashes"].level == "ok"
    assert found(heard(bad, expected=tokens))["hashes"].level == "fail"
    assert "hash seed" in found(heard(bad, expected=tokens))["hashes"].advice
    assert found(heard(good, bad, expected=tokens))["hashes"].level == "note"


def test_c7_block_sizes_that_differ_are_noted() -> None:
    what = heard(kv([stored([1])], 0), load(9, 0, 0), discovery=Discovery({A: card(A), C: card(C, size=64)}, {}))
    assert "7/0: 16, 9/0: 64" in found(what)["block size"].text


def test_a_gap() -> None:
    gap = kv([stored([1])], 0), kv([stored([5], at=5)], 4)
    assert "1 gaps, 3 messages missing, at nodes 7/0" in found(heard(*gap))["gaps"].text
    assert exit_code(judge(heard(*gap))) == UNHEALTHY
    assert found(heard(*gap, dropped=3))["gaps"].level == "note"
    assert exit_code(judge(heard(*gap, outages=1))) == UNHEALTHY


def test_rubbish_lag_and_restarts() -> None:
    what = heard(kv([stored([1])], 0, ms=1000), Message(0.0, WORKERS + "kv-events", b"\xc1"), wall_s=61.0)
    assert found(what)["format"].level == "fail"
    assert "60,000 ms" in found(what)["lag"].text
    assert found(what)["lag"].level == "note"
    assert "restarts" in found(heard(kv([stored([1])], 5), kv([stored([1])], 0, ms=9)))


def test_what_the_router_says() -> None:
    what = heard(kv([stored([1]), stored([1], node=B)], 0), router={A: "mismatch"})
    assert found(what)["router"].text == "takes node 7/0 for mismatch"
    assert "block size" in found(what)["router"].advice
    assert any("does not know 7/1" in finding.text for finding in judge(what))


def test_tool_events() -> None:
    assert found(heard(kv([stored([1])], 0)))["tool events"].level == "note"
    assert exit_code(judge(heard(kv([stored([1])], 0), need_tools=True))) == UNHEALTHY
    start = tool("tool_start", 0, t=0.0)
    what = heard(kv([stored([1])], 0), start, start, tool("tool_end", 1, t=0.0, call="x"))
    assert any("1 tool_end, 1 tool_start; 1 calls run now" in finding.text for finding in judge(what))
    assert found(what)["tool events"].text == "1 came twice and count once"
    assert found(heard(kv([stored([1])], 0), Message(0.0, TOOLS, b"x")))["tool events"].level == "fail"
