# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import json
import random
from pathlib import Path

import msgspec
import pytest

from kv_events import wire
from kv_events.chain import sequence_hashes
from kv_events.types import NodeId
from kv_events.wire import Cleared, Removed, Stored, Unknown
from tao_dynamo.errors import WireError

SAMPLES = Path(__file__).parent / "samples"


def sample(name: str) -> wire.Envelope:
    return wire.decode_envelope(base64.b64decode((SAMPLES / f"{name}.b64").read_text()))


def payload_of(*events: object) -> bytes:
    return msgspec.msgpack.encode(list(events))


def router_event(data: object, **more: object) -> dict[str, object]:
    return {"worker_id": 7, "storage_tier": "device", "event": {"event_id": 1, "data": data, "dp_rank": 1}, **more}


def test_stored_as_dynamo_1_6_1_sends_it() -> None:
    envelope = sample("kv-events.stored.device")
    assert (envelope.publisher_id, envelope.sequence, envelope.topic) == (7753002947242970, 0, "kv-events")
    (event,) = wire.decode_kv_events(envelope.payload).events
    assert event.node == NodeId(16042023528467273980, 0)
    assert isinstance(event.data, Stored)
    assert event.data.parent_hash is None
    assert len(event.data.block_hashes) == len(event.data.tokens_hashes) == 11
    assert event.data.block_hashes[0] == event.data.tokens_hashes[0] == 0xE414CB030ED62578
    assert event.data.block_hashes == sequence_hashes(event.data.tokens_hashes)


def test_removed_and_stored_in_one_message() -> None:
    batch = wire.decode_kv_events(sample("kv-events.removed.device").payload)
    first, second = batch.events
    assert isinstance(first.data, Removed)
    assert len(first.data.block_hashes) == 9
    assert isinstance(second.data, Stored)
    assert (first.event_id, second.event_id) == (5, 6)


def test_cleared_is_a_bare_string() -> None:
    (event,) = wire.decode_kv_events(sample("kv-events.cleared.device.zmqrelay").payload).events
    assert event.data == Cleared()
    assert event.event_id == 5


def test_metrics() -> None:
    metrics = wire.decode_kv_metrics(sample("kv_metrics").payload)
    assert (metrics.node, metrics.kv_used_blocks, metrics.active_decode_blocks) == (
        NodeId(16042023528467273980, 0),
        0,
        None,
    )
    forward = wire.decode_forward_pass(sample("forward-pass-metrics.decode").payload)
    assert forward.node == NodeId(16042023528467273980, 0)
    assert forward.scheduled_requests.sum_decode_kv_tokens == 182
    assert forward.counter_id == 33


def test_c2_an_unknown_kind_is_counted_and_the_next_event_read() -> None:
    read = wire.decode_kv_events(
        payload_of(router_event({"moved": {"to": 1}}), router_event("paused"), router_event("cleared"))
    )
    assert read.unknown == 2
    assert [type(event.data) for event in read.events] == [Unknown, Unknown, Cleared]
    assert read.malformed == 0


def test_a_broken_event_does_not_cost_the_others() -> None:
    read = wire.decode_kv_events(
        payload_of(
            router_event({"removed": {"block_hashes": ["x"]}}),
            router_event("cleared"),
            17,
            {"worker_id": 1},
            router_event({"removed": {"block_hashes": [1]}}),
        )
    )
    assert read.malformed == 3
    assert [event.data for event in read.events] == [Cleared(), Removed([1])]


def test_unknown_fields_are_skipped() -> None:
    read = wire.decode_kv_events(
        payload_of(router_event({"removed": {"block_hashes": [3], "why": "lru"}}, state_source={"a": [1]}))
    )
    assert read.events[0].data == Removed([3])


def test_a_cache_that_is_no_single_workers_is_not_a_nodes() -> None:
    read = wire.decode_kv_events(payload_of(router_event("cleared", residency_domain="cache_owner")))
    assert read.unknown == 1
    assert read.events[0].data == Unknown("residency_domain cache_owner")


def test_hashes_must_be_u64() -> None:
    block = {"block_hash": 1, "tokens_hash": -1}
    assert wire.decode_kv_events(payload_of(router_event({"stored": {"blocks": [block]}}))).malformed == 1


@pytest.mark.parametrize("count", [1, 15, 16, 17, 63, 64, 65, 200, 70_000])
def test_long_lists_are_read_as_short_ones(count: int) -> None:
    rng = random.Random(count)
    names = [rng.getrandbits(64) | 1 << 63 for _ in range(count)]
    tokens = [rng.getrandbits(64) | 1 << 63 for _ in range(count)]
    blocks: list[dict[str, object]] = [
        {"block_hash": name, "tokens_hash": hashed, "mm_extra_info": None}
        for name, hashed in zip(names, tokens, strict=True)
    ]
    data = {"stored": {"parent_hash": 5, "start_position": None, "blocks": blocks}}

    def read() -> object:
        return wire.decode_kv_events(payload_of(router_event(data))).events[0].data

    assert read() == Stored(names, tokens, 5)
    blocks[-1]["mm_extra_info"] = {"mm_objects": [{"mm_hash": 1, "offsets": []}]}
    assert read() == Stored(names, tokens, 5)
    blocks[0]["tokens_hash"] = tokens[0] = 7
    assert read() == Stored(names, tokens, 5)
    blocks[0] = {"tokens_hash": 7, "block_hash": names[0]}
    assert read() == Stored(names, tokens, 5)
    del blocks[0]["block_hash"]
    assert wire.decode_kv_events(payload_of(router_event(data))).malformed == 1


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x93\x01\x02", b"not msgpack at all", msgspec.msgpack.encode({"a": 1})]
)
def test_no_envelope(data: bytes) -> None:
    with pytest.raises(WireError, match=f"{len(data)} bytes"):
        wire.decode_envelope(data)


def test_a_payload_that_is_no_list() -> None:
    with pytest.raises(WireError, match="no list"):
        wire.decode_kv_events(msgspec.msgpack.encode({"a": 1}))


def test_metrics_of_no_worker() -> None:
    with pytest.raises(WireError, match="forward-pass"):
        wire.decode_forward_pass(msgspec.msgpack.encode({"worker_id": "seven"}))
    with pytest.raises(WireError, match="kv_metrics"):
        wire.decode_kv_metrics(msgspec.msgpack.encode({"dp_rank": 1}))
    for used in (-1, 2**62):
        with pytest.raises(WireError, match="kv_used_blocks"):
            wire.decode_kv_metrics(msgspec.msgpack.encode({"worker_id": 1, "kv_used_blocks": used}))


def test_a_dump_is_json_of_stored_events() -> None:
    block = {"block_hash": 2**64 - 1, "tokens_hash": 5, "mm_extra_info": None}
    text = json.dumps([router_event({"stored": {"parent_hash": None, "blocks": [block]}}), router_event("cleared")])
    (event,) = wire.decode_dump(text)
    assert event.node == NodeId(7, 1)
    assert isinstance(event.data, Stored)
    assert event.data.block_hashes == [2**64 - 1]
    with pytest.raises(WireError, match="dump"):
        wire.decode_dump("{]")
