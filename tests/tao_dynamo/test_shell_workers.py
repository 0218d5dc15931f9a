# SPDX-License-Identifier: Apache-2.0
"""Workers that come, change, go, do not fit or cannot be reached."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from kv_events.types import NodeId
from tao_dynamo.shell.workers import Card, Workers, read_card


def card(blocks: int | None = 256, size: int = 16, **runtime: Any) -> str:
    """A card with the fields that Dynamo's has."""
    role = runtime.pop("role", "aggregated")
    return json.dumps(
        {
            "display_name": "tiny",
            "source_path": "/models/tiny",
            "kv_cache_block_size": size,
            "worker_type": role,
            "runtime_config": {"total_kv_blocks": blocks, "data_parallel_size": 1, "data_parallel_start_rank": 0}
            | runtime,
        }
    )


@dataclass
class FakeDiscovery:
    live: list[int] = field(default_factory=list)
    found: dict[int, str] = field(default_factory=dict)

    def instance_ids(self) -> list[int]:
        return self.live

    def cards(self) -> dict[int, str]:
        return self.found


@dataclass
class Listener:
    rooms: dict[NodeId, int] = field(default_factory=dict)
    gone: list[NodeId] = field(default_factory=list)

    def joined(self, node: NodeId, card: Card, capacity_tokens: int, block_size: int) -> None:
        self.rooms[node] = capacity_tokens

    def left(self, node: NodeId) -> None:
        self.gone.append(node)
        del self.rooms[node]


class World:
    def __init__(self, **more: Any) -> None:
        self.now = 100.0
        self.discovery = FakeDiscovery()
        self.listener = Listener()
        self.workers = Workers(self.discovery, self.listener, clock=lambda: self.now, **more)

    def there(self, **cards: str) -> None:
        self.discovery.found = {int(name[1:]): text for name, text in cards.items()}
        self.discovery.live = list(self.discovery.found)
        self.workers.sync()


def test_capacity_is_per_rank_and_ranks_start_where_the_worker_says() -> None:
    world = World()
    world.there(w7=card(data_parallel_size=2, data_parallel_start_rank=4))
    assert world.listener.rooms == {NodeId(7, 4): 4096, NodeId(7, 5): 4096}


def test_a_worker_is_replaced_and_its_old_id_goes() -> None:
    world = World()
    world.there(w7=card())
    world.there(w12=card(blocks=512))
    assert world.listener.gone == [NodeId(7, 0)]
    assert world.listener.rooms == {NodeId(12, 0): 8192}


def test_a_worker_without_its_card_is_waited_for() -> None:
    world = World()
    world.discovery.live = [7]
    world.workers.sync()
    assert not world.listener.rooms
    world.there(w7=card())
    assert NodeId(7, 0) in world.listener.rooms


def test_another_capacity_is_told_again() -> None:
    world = World()
    world.there(w7=card())
    world.there(w7=card(blocks=100))
    assert world.listener.rooms == {NodeId(7, 0): 1600}
    assert not world.listener.gone


def test_c7_a_worker_of_another_block_size_is_refused_naming_both_and_the_flag() -> None:
    world = World(block_size=32)
    world.there(w7=card(size=64), w8=card(size=32))
    assert list(world.listener.rooms) == [NodeId(8, 0)]
    for part in ("32", "64", "--router-block-size"):
        assert part in world.workers.refused[7]
    world.there(w8=card(size=32))
    assert not world.workers.refused


def test_c7_without_the_flag_each_node_has_its_own_block_size() -> None:
    world = World()
    world.there(w7=card(size=16), w8=card(size=64))
    assert world.listener.rooms == {NodeId(7, 0): 4096, NodeId(8, 0): 16384}


def test_a_worker_that_does_not_tell_its_capacity_needs_the_flag() -> None:
    world = World()
    world.there(w7=card(blocks=None))
    assert "--tao-node-capacity" in world.workers.refused[7]
    world = World(node_capacity=5000)
    world.there(w7=card(blocks=None))
    assert world.listener.rooms == {NodeId(7, 0): 5000}


def test_workers_of_a_disaggregated_graph_are_refused_by_a_clear_line() -> None:
    world = World()
    world.there(w7=card(role="decode"), w8=card(role="prefill"), w9=card())
    assert list(world.listener.rooms) == [NodeId(9, 0)]
    assert "decode" in world.workers.refused[7]
    assert "prefill" in world.workers.refused[8]


def test_an_unreachable_worker_is_left_out_for_longer_each_time() -> None:
    world = World()
    world.there(w7=card(), w8=card())
    world.workers.suspect(7)
    assert list(world.listener.rooms) == [NodeId(8, 0)]
    world.now += 3.1
    world.workers.sync()
    assert NodeId(7, 0) in world.listener.rooms
    world.workers.suspect(7)
    world.now += 3.1
    world.workers.sync()
    assert NodeId(7, 0) not in world.listener.rooms
    world.now += 3.0
    world.workers.sync()
    assert NodeId(7, 0) in world.listener.rooms
    world.workers.trust(7)
    world.workers.suspect(7)
    world.now += 3.1
    world.workers.sync()
    assert NodeId(7, 0) in world.listener.rooms


def test_one_outage_is_one_suspicion_however_many_turns_fail_of_it() -> None:
    world = World()
    world.there(w7=card(), w8=card())
    for _ in range(6):
        world.workers.suspect(7)
        world.now += 0.002
    world.now += 3.1
    world.workers.sync()
    assert NodeId(7, 0) in world.listener.rooms
    # One that has gone altogether is not suspected: should it come back, it is taken at its word.
    world.there(w8=card())
    world.workers.suspect(7)
    world.there(w7=card(), w8=card())
    assert NodeId(7, 0) in world.listener.rooms


def test_garbage_for_a_card_is_no_card() -> None:
    for text in ("", "[]", "null", "{", '{"runtime_config": 3}'):
        assert read_card(7, text, lambda _data: None) is None
    bare = read_card(7, "{}", lambda _data: 77)
    assert bare is not None
    assert bare.capacity_tokens is None
    assert bare.host_tokens == 77


def test_a_worker_with_another_model_is_refused_and_an_adapters_card_is_not() -> None:
    world = World()
    world.there(w7=card())
    world.workers.model = "tiny"
    other = json.loads(card()) | {"display_name": "huge"}
    adapter = json.loads(card()) | {"display_name": "tiny-law", "lora": {"name": "tiny-law"}}
    world.there(w7=card(), w8=json.dumps(other), w9=json.dumps(adapter))
    assert set(world.listener.rooms) == {NodeId(7, 0), NodeId(9, 0)}
    assert world.workers.refused == {
        8: "it serves huge; this router is for tiny: each needs a router of its own",
    }
