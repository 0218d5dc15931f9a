# SPDX-License-Identifier: Apache-2.0
"""``tao-bench index``: how fast the KV index is, beside a plain one, and what a million blocks take.

The plain index is the obvious one (msgpack, sets per node, a walk per question), as the reference that comes with the
notes on Dynamo does it; ``--reference FILE`` runs that file itself (its class ``KvIndex``) instead.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import random
import statistics
import time
import tracemalloc
from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kv_events import wire
from kv_events.chain import SEED, TokenChain, block_hashes, pack_pair, sequence_hashes, xxh3
from kv_events.credit import CreditTable
from kv_events.index import BlockIndex
from kv_events.types import NodeId
from tao_dynamo.errors import ConfigError

BLOCK = 16


class PlainIndex:
    """Sets of sequence hashes per node and tier."""

    def __init__(self) -> None:
        self.names: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        self.tiers: dict[tuple[int, int], dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))

    def on_msg(self, data: bytes) -> None:
        """Take in one message."""
        import msgpack

        envelope = msgpack.unpackb(data, raw=False)
        for item in msgpack.unpackb(envelope["payload"], raw=False, strict_map_key=False):
            self._apply(item)

    def overlap_of(self, hashes: Sequence[int]) -> dict[tuple[int, int], int]:
        """Walk the chain on every node."""
        found = {}
        for node, tiers in self.tiers.items():
            held = tiers["device"]
            count = 0
            for block in hashes:
                if block not in held:
                    break
                count += 1
            found[node] = count
        return found

    def _apply(self, item: dict[str, Any]) -> None:
        event = item["event"]
        node = (item["worker_id"], event.get("dp_rank", 0))
        tier = item.get("storage_tier", "device")
        data = event["data"]
        names, tiers = self.names[node], self.tiers[node]
        if data == "cleared":
            names.clear()
            tiers.clear()
        elif "stored" in data:
            parent = data["stored"]["parent_hash"]
            block = None if parent is None else names.get(parent)
            if parent is not None and block is None:
                return
            for stored in data["stored"]["blocks"]:
                local = stored["tokens_hash"]
                block = local if block is None else xxh3(pack_pair(block, local), seed=SEED)
                names[stored["block_hash"]] = block
                tiers[tier].add(block)
        elif "removed" in data:
            for name in data["removed"]["block_hashes"]:
                block = names.get(name)
                if block is not None:
                    tiers[tier].discard(block)
                    if not any(block in held for held in tiers.values()):
                        names.pop(name, None)


def messages(chains: Sequence[Sequence[int]], *, opaque: bool, run: int, worker: int = 1 << 63) -> list[bytes]:
    """Return stored messages for chains of tokens hashes, ``run`` blocks each, as a worker publishes them."""
    made: list[bytes] = []
    for chain in chains:
        names = [(block * 0x9E3779B97F4A7C15 + 1) % 2**64 if opaque else block for block in sequence_hashes(chain)]
        for at in range(0, len(chain), run):
            blocks = [
                {"block_hash": name, "tokens_hash": tokens, "mm_extra_info": None}
                for name, tokens in zip(names[at : at + run], chain[at : at + run], strict=True)
            ]
            data = {"stored": {"parent_hash": names[at - 1] if at else None, "start_position": None, "blocks": blocks}}
            event = {"event_id": len(made) + 1, "data": data, "dp_rank": 0}
            item = {"worker_id": worker, "storage_tier": "device", "residency_domain": "worker", "event": event}
            payload = msgspec.msgpack.encode([item])
            envelope = {"publisher_id": 5, "sequence": len(made), "published_at": 0, "topic": "kv-events"}
            made.append(msgspec.msgpack.encode({**envelope, "payload": payload}))
    return made


def best_of(repeats: int, work: Callable[[], object], setup: Callable[[], object] | None = None) -> float:
    """Return the median of some repeats, in seconds of CPU time, which other work on the machine leaves alone."""
    times = []
    for _ in range(repeats):
        if setup is not None:
            setup()
        begun = time.process_time()
        made = work()
        times.append(time.process_time() - begun)
        del made
    return statistics.median(times)


def apply_ours(data: Sequence[bytes]) -> BlockIndex:
    """Decode and apply with our index."""
    index = BlockIndex()
    for message in data:
        for event in wire.decode_kv_events(wire.decode_envelope(message).payload).events:
            index.apply(event, 0.0)
    return index


def bench_apply(reference: Callable[[], Any], rng: random.Random, *, blocks: int, repeats: int) -> list[dict[str, Any]]:
    """Time decoding and applying stored blocks, ours and the reference interleaved."""
    rows = []
    for opaque in (False, True):
        for run in (512, 64, 8, 1):
            length = 512
            chains = [[rng.getrandbits(64) for _ in range(length)] for _ in range(max(1, blocks // length))]
            data = messages(chains, opaque=opaque, run=run)
            count = len(chains) * length

            def theirs(data: list[bytes] = data) -> object:
                plain = reference()
                for message in data:
                    plain.on_msg(message)
                return plain

            ours_s, theirs_s = [], []
            for _ in range(repeats):
                ours_s.append(best_of(1, lambda data=data: apply_ours(data)))  # type: ignore[misc]
                theirs_s.append(best_of(1, theirs))
            ours_us = statistics.median(ours_s) / count * 1e6
            theirs_us = statistics.median(theirs_s) / count * 1e6
            rows.append(
                {
                    "names": "opaque" if opaque else "sequence hashes",
                    "blocks per event": run,
                    "ours us/block": round(ours_us, 3),
                    "reference us/block": round(theirs_us, 3),
                    "times faster": round(theirs_us / ours_us, 2),
                }
            )
    return rows


def bench_overlap(rng: random.Random, *, tokens: int, nodes: int, repeats: int) -> dict[str, Any]:
    """Time the overlap of one long session over many nodes, each holding a prefix of its own length."""
    words = [rng.randrange(150_000) for _ in range(tokens)]
    more = words + [rng.randrange(150_000) for _ in range(40 * BLOCK)]
    tokens_hashes = block_hashes(words, BLOCK)
    index, plain = BlockIndex(), PlainIndex()
    for rank in range(nodes):
        node = NodeId((1 << 63) + rank, 0)
        index.set_block_size(node, BLOCK)
        held = tokens_hashes[: rng.randrange(1, len(tokens_hashes) + 1)]
        for message in messages([held], opaque=False, run=64, worker=node.worker_id):
            plain.on_msg(message)
            for event in wire.decode_kv_events(wire.decode_envelope(message).payload).events:
                index.apply(event, 0.0)
    hashes = array("Q", sequence_hashes(tokens_hashes))
    walked = {NodeId(*node): count for node, count in plain.overlap_of(hashes).items()}
    if index.overlap(hashes, BLOCK) != walked:
        raise AssertionError("the two indexes differ")
    chain = TokenChain(BLOCK)
    chain.update(words)
    table = CreditTable(index)
    table.turn("s", {BLOCK: chain.hashes}, 0.0)
    table.resident("s")
    shorter = TokenChain(BLOCK)

    def before_turn() -> None:
        shorter.hashes = array("Q", chain.hashes)
        shorter.update(words)
        table.turn("s", {BLOCK: shorter.hashes}, 0.0)
        table.resident("s")

    packed = array("I", more)

    def turn(prompt: Sequence[int]) -> Callable[[], object]:
        def work() -> object:
            shorter.update(prompt)
            table.turn("s", {BLOCK: shorter.hashes}, 0.0)
            return table.resident("s")

        return work

    last = NodeId((1 << 63) + nodes, 0)
    index.set_block_size(last, BLOCK)
    index.apply(wire.KvEvent(last, 1, wire.Stored(hashes.tolist(), tokens_hashes)), 0.0)
    fresh = block_hashes(more, BLOCK)[len(hashes) :]
    fresh_blocks = sequence_hashes(fresh, hashes[-1])

    def ask() -> object:
        return table.resident("s")

    def grown() -> None:
        """A turn ran on one node, which announced its blocks, and the next prompt has come."""
        before_turn()
        shorter.update(packed)
        index.apply(wire.KvEvent(last, 1, wire.Stored(fresh_blocks, fresh, hashes[-1])), 0.0)
        table.turn("s", {BLOCK: shorter.hashes}, 0.0)

    def undo() -> None:
        index.apply(wire.KvEvent(last, 1, wire.Removed(fresh_blocks[::-1])), 0.0)
        grown()

    return {
        "tokens": tokens,
        "nodes": nodes,
        "overlap ms": round(best_of(repeats, lambda: index.overlap(hashes, BLOCK)) * 1e3, 4),
        "overlap by walking ms": round(best_of(3, lambda: plain.overlap_of(hashes)) * 1e3, 3),
        "hash all tokens ms": round(best_of(repeats, lambda: TokenChain(BLOCK).update(words)) * 1e3, 3),
        "overlap, last turn new us": round(best_of(repeats, ask, undo) * 1e6, 2),
        "hash and overlap, last turn new, tokens as array us": round(
            best_of(repeats, turn(packed), before_turn) * 1e6, 1
        ),
        "the same and hashing, tokens as list us": round(best_of(repeats, turn(more), before_turn) * 1e6, 1),
    }


def bench_credit(rng: random.Random, *, sessions: int, nodes: int) -> dict[str, Any]:
    """Time the credits of many sessions over many nodes: each session has run on two of them."""
    index = BlockIndex()
    table = CreditTable(index)
    ids = [NodeId((1 << 63) + rank, 0) for rank in range(nodes)]
    for node in ids:
        index.set_block_size(node, BLOCK)
    shared = [rng.getrandbits(64) for _ in range(20)]
    blocks = 0
    for session in range(sessions):
        own = shared + [rng.getrandbits(64) for _ in range(44)]
        chain = array("Q", sequence_hashes(own))
        table.turn(str(session), {BLOCK: chain}, 0.0)
        for node in rng.sample(ids, 2):
            index.apply(wire.KvEvent(node, 1, wire.Stored(chain.tolist(), own)), 0.0)
            table.ran_on(str(session), node, 64 * BLOCK, 0.0)
            blocks += 44

    def everyone() -> int:
        return sum(len(table.credits(str(session), 1.0)) for session in range(sessions))

    pairs = everyone()
    return {
        "sessions": sessions,
        "nodes": nodes,
        "blocks": blocks,
        "non-zero pairs": pairs,
        "credits of all sessions s": round(best_of(3, everyone), 3),
        "per session us": round(best_of(3, everyone) / sessions * 1e6, 2),
    }


def bench_memory(rng: random.Random, *, blocks: int) -> list[dict[str, Any]]:
    """Measure what the index keeps per block, with an engine's own names and with sequence hashes."""
    rows = []
    for opaque in (False, True):
        chains = [[rng.getrandbits(64) for _ in range(1000)] for _ in range(blocks // 1000)]
        data = messages(chains, opaque=opaque, run=50)
        gc.collect()
        tracemalloc.start()
        index = apply_ours(data)
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        held = index.stats().resident
        rows.append(
            {
                "names": "opaque" if opaque else "sequence hashes",
                "blocks": held,
                "bytes per block": round(used / held, 1),
                "MB per million blocks": round(used / held),
            }
        )
    return rows


def _reference(path: str) -> Callable[[], Any]:
    if not path:
        return PlainIndex
    spec = importlib.util.spec_from_file_location("reference_index", path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise ConfigError("--reference", path, "a Python file with a class KvIndex")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: Callable[[], Any] = module.KvIndex
    return made


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    made = argparse.ArgumentParser(
        prog="tao-bench index",
        description="Time and weigh the KV index.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = made.add_argument
    add("--reference", default="", help="Python file with a class KvIndex to compare with; empty: our plain one")
    add("--blocks", type=int, default=50_000, help="blocks per timing of apply")
    add("--repeats", type=int, default=7, help="repeats, of which the median is given")
    add("--tokens", type=int, default=32_768, help="tokens of the session asked about")
    add("--nodes", type=int, default=64, help="nodes asked about")
    add("--sessions", type=int, default=20_000, help="sessions of the credit table")
    add("--credit-nodes", type=int, default=512, help="nodes of the credit table")
    add("--memory-blocks", type=int, default=1_000_000, help="blocks whose memory is measured; 0: none")
    add("--seed", type=int, default=0, help="seed")
    add("--json", action="store_true", help="print JSON only")
    return made


def main(argv: Sequence[str]) -> int:
    """Run all of it."""
    options = parser().parse_args(argv)
    rng = random.Random(options.seed)
    reference = _reference(options.reference)
    result: dict[str, Any] = {
        "apply": bench_apply(reference, rng, blocks=options.blocks, repeats=options.repeats),
        "overlap": bench_overlap(rng, tokens=options.tokens, nodes=options.nodes, repeats=25 * options.repeats),
        "credit": bench_credit(rng, sessions=options.sessions, nodes=options.credit_nodes),
    }
    if options.memory_blocks:
        result["memory"] = bench_memory(rng, blocks=options.memory_blocks)
    if options.json:
        print(json.dumps(result))
        return 0
    for title, found in result.items():
        for row in found if isinstance(found, list) else [found]:
            print(f"{title}: " + ", ".join(f"{key} {value}" for key, value in row.items()))
    return 0


if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:]))
