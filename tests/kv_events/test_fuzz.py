# SPDX-License-Identifier: Apache-2.0
"""Mutated messages: nothing is raised but WireError, and nothing grows beyond its bound.

``TAO_FUZZ=100000`` in the environment makes the run as long as one likes.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import random
import tracemalloc

import pytest

from kv_events import stream, wire
from kv_events.follow import Follower
from kv_events.index import BlockIndex
from kv_events.stream import Sequencer
from tao_dynamo.errors import WireError
from tests.kv_events.events import A, B, C, FakeSource, chain, cleared, message, removed, stored
from tests.kv_events.test_reader import sample

ROUNDS = int(os.environ.get("TAO_FUZZ", "25000"))
NAMES = ("kv-events.stored.device", "kv-events.removed.device", "kv-events.cleared.device.zmqrelay")


def seeds() -> list[bytes]:
    made = [sample(name) for name in NAMES]
    for at, node in enumerate((A, B, C)):
        made.append(message([stored(range(1, 40), node=node)], 0, publisher=at))
        made.append(message([removed([3, 7, 99], node=node, at=2), stored([40], 39, node=node, at=3)], 1, publisher=at))
        made.append(message([cleared(node=node, at=4)], 2, publisher=at))
    return made


def mutated(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    made = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 2, 8))):
        at = rng.randrange(len(made)) if made else 0
        kind = rng.random()
        if kind < 0.5 and made:
            made[at] = rng.choice((0, 1, 0x7F, 0x80, 0xC0, 0xC1, 0xCF, 0xD9, 0xDF, 0xFF, rng.randrange(256)))
        elif kind < 0.65:
            del made[at : at + rng.randrange(1, 20)]
        elif kind < 0.8:
            made[at:at] = rng.randbytes(rng.randrange(1, 12))
        elif kind < 0.9:
            other = rng.choice(others)
            made[at : at + 16] = other[at : at + 16]
        else:
            del made[at:]
    return bytes(made)


async def feed(follower: Follower, data: bytes, rng: random.Random) -> bool:
    try:
        envelope = wire.decode_envelope(data)
        batch = wire.decode_kv_events(envelope.payload)
    except WireError:
        return False
    if rng.random() < 0.5:
        # As it is, most mutants would be dropped as doubles.
        envelope = wire.Envelope(
            envelope.publisher_id, rng.randrange(2**64), b"", rng.randrange(-(2**63), 2**63), "kv-events"
        )
    await follower.on_kv_events(envelope, batch)
    return True


@pytest.mark.timeout(600)
async def test_no_crash_and_no_growth(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "kv_events")  # pytest keeps what is logged
    monkeypatch.setattr(stream, "_MAX_PUBLISHERS", 16)
    rng = random.Random(7)
    others = seeds()
    index = BlockIndex(max_blocks=2_000, max_orphans=500, max_nodes=8)
    follower = Follower(index, None, settle_s=0.0, jitter_s=0.0)
    follower.stream = Sequencer(max_held=500, max_nodes=8)
    taken = 0

    async def some(rounds: int) -> None:
        nonlocal taken
        for _ in range(rounds):
            taken += await feed(follower, mutated(rng, rng.choice(others), others), rng)

    tracemalloc.start()
    sizes = []
    for _ in range(4):
        await some(ROUNDS // 4)
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    kept = ", ".join(f"{size / 1e6:.2f}" for size in sizes)
    print(f"{ROUNDS} mutants, {taken} of them readable; MB kept after each quarter: {kept}")
    while index._leaving:  # what departed nodes held is taken away a little with every event
        index._sweep()
    stats = index.stats()
    assert taken > ROUNDS // 4
    assert stats.blocks <= stats.resident <= 2_000
    assert stats.orphans <= 500
    assert stats.nodes <= 8
    # Full after the first half; what comes then takes the place of what was there.
    assert sizes[3] - sizes[1] < 200_000
    index.drop_worker(A.worker_id)
    await follower.on_kv_events(wire.Envelope(12345, 0, b""), wire.KvBatch([stored([1, 2])]))
    assert index.overlap(chain([1, 2])).get(A) == 2 or stats.nodes == 8


async def test_mutants_never_raise_while_nodes_are_lost() -> None:
    rng = random.Random(8)
    others = seeds()
    follower = Follower(BlockIndex(max_nodes=64), FakeSource(stored([1, 2])), settle_s=0.0, jitter_s=0.0, spacing_s=0.0)
    for at in range(ROUNDS // 6):
        await feed(follower, mutated(rng, rng.choice(others), others), rng)
        if at % 50 == 0:
            follower.on_dropped("x")
    await follower.close()


def test_metrics_decoders_raise_nothing_but_wire_errors() -> None:
    rng = random.Random(9)
    others = [sample("kv_metrics"), sample("forward-pass-metrics.decode")]
    payloads = [wire.decode_envelope(data).payload for data in others]
    good = 0
    for _ in range(ROUNDS):
        data = mutated(rng, rng.choice(payloads), payloads)
        for decode in (wire.decode_kv_metrics, wire.decode_forward_pass):
            with contextlib.suppress(WireError):
                good += decode(data).node is not None
    assert good > ROUNDS // 10
