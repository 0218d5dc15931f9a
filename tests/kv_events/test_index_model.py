# SPDX-License-Identifier: Apache-2.0
"""The index against the plainest thing that could be right, under any sequence of events."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kv_events.chain import next_hash
from kv_events.index import BlockIndex
from kv_events.types import NodeId
from kv_events.wire import Cleared, KvEvent, Removed, Stored
from tests.kv_events.events import A, B, C, tokens_hash

TIERS = ("device", "host_pinned")
FULL = [tuple(path) for path in ("abcdef", "abcdgh", "abijkl", "abijkm", "nopqrs", "nopqtu")]
PATHS = sorted({path[:depth] for path in FULL for depth in range(7)})
NAMES = {path: 1000 + at for at, path in enumerate(PATHS)}


def hashes(path: tuple[str, ...]) -> list[int]:
    chained: list[int] = []
    for depth in range(1, len(path) + 1):
        chained.append(next_hash(chained[-1] if chained else None, tokens_hash(ord(path[depth - 1]))))
    return chained


class Model:
    """Sets of paths, walked; a run whose parent is not there waits."""

    def __init__(self) -> None:
        self.held: dict[tuple[NodeId, str], set[tuple[str, ...]]] = {}
        self.waiting: list[tuple[NodeId, str, list[tuple[str, ...]], set[tuple[str, ...]]]] = []

    def there(self, node: NodeId, tier: str, path: tuple[str, ...]) -> bool:
        tiers = TIERS if tier != "device" else ("device",)
        return not path or any(path in self.held.get((node, each), ()) for each in tiers)

    def store(self, node: NodeId, tier: str, run: list[tuple[str, ...]]) -> None:
        if not self.there(node, tier, run[0][:-1]):
            for other in self.waiting:
                if other[0] == node:
                    other[3].difference_update(run)
            self.waiting.append((node, tier, run, set()))
            return
        self.held.setdefault((node, tier), set()).update(run)
        struck = []
        again = True
        while again:
            again = False
            for entry in list(self.waiting):
                if entry[0] == node and self.there(node, entry[1], entry[2][0][:-1]):
                    self.waiting.remove(entry)
                    self.held.setdefault((node, entry[1]), set()).update(entry[2])
                    struck.append(entry)
                    again = True
        for _, its_tier, _, gone in struck:
            self.held[node, its_tier].difference_update(gone)

    def remove(self, node: NodeId, tier: str, path: tuple[str, ...]) -> None:
        held = self.held.get((node, tier), set())
        if path in held:
            held.remove(path)
            return
        homes = [entry for entry in self.waiting if entry[0] == node and path in entry[2]]
        if homes:
            parent = homes[-1][2][0][:-1]
            for entry in homes:
                if entry[2][0][:-1] == parent and entry[1] == tier:
                    entry[3].add(path)

    def clear(self, node: NodeId, tier: str) -> None:
        self.held.pop((node, tier), None)
        self.waiting = [entry for entry in self.waiting if entry[:2] != (node, tier)]

    def overlap(self, path: tuple[str, ...]) -> dict[NodeId, int]:
        found = {}
        for node in (A, B, C):
            held = self.held.get((node, "device"), set())
            depth = 0
            while depth < len(path) and path[: depth + 1] in held:
                depth += 1
            if depth:
                found[node] = depth
        return found


nodes = st.sampled_from([A, B, C])
tiers = st.sampled_from(["device", "device", "device", "host_pinned"])
runs = st.tuples(st.sampled_from(FULL), st.integers(0, 5), st.integers(1, 6))
steps = st.one_of(
    st.tuples(st.just("store"), nodes, tiers, runs),
    st.tuples(st.just("store"), nodes, tiers, runs),
    st.tuples(st.just("remove"), nodes, tiers, st.lists(st.sampled_from(PATHS[1:]), max_size=4)),
    st.tuples(st.just("clear"), nodes, tiers, st.none()),
    st.tuples(st.just("drop"), nodes, tiers, st.none()),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(steps, max_size=40), st.booleans())
def test_equal_to_the_plain_model(todo: list[tuple[str, NodeId, str, object]], opaque: bool) -> None:
    index, model = BlockIndex(), Model()

    def name(path: tuple[str, ...]) -> int:
        return NAMES[path] if opaque else hashes(path)[-1]

    for what, node, tier, argument in todo:
        if what == "store":
            path, start, size = argument  # type: ignore[misc]
            run = [path[: depth + 1] for depth in range(start, min(6, start + size))]
            model.store(node, tier, run)
            tokens = [tokens_hash(ord(item[-1])) for item in run]
            parent = name(run[0][:-1]) if start else None
            index.apply(KvEvent(node, 1, Stored([name(item) for item in run], tokens, parent), tier), 0.0)
        elif what == "remove":
            for path in argument:  # type: ignore[attr-defined]
                model.remove(node, tier, path)
            index.apply(KvEvent(node, 1, Removed([name(path) for path in argument]), tier), 0.0)  # type: ignore[attr-defined]
        elif what == "clear":
            model.clear(node, tier)
            index.apply(KvEvent(node, 1, Cleared(), tier), 0.0)
        else:
            for each in TIERS:
                model.clear(node, each)
            index.drop_node(node)
        for path in FULL:
            assert index.overlap(hashes(path)) == model.overlap(path)
    for node in (A, B, C):
        index.drop_node(node)
    for _ in range(10):
        index.apply(KvEvent(A, 1, Removed([1])), 0.0)
    assert index.stats().blocks == 0
    forest = index._forest
    assert not any((forest._heads, forest._children, forest._lost, forest._holders[index.node(A).bit].book))
    assert len(forest._holders) == 1
    assert forest.held == 0
    assert forest._runs.count(None) == len(forest._runs) == len(forest._free)


@settings(max_examples=100, deadline=None)
@given(st.permutations(range(12)))
def test_any_order_of_stored_events_gives_the_same_index(order: list[int]) -> None:
    index = BlockIndex()
    spine = [1 + at for at in range(12)]
    for at in order:
        parent = spine[at - 1] if at else None
        index.apply(KvEvent(A, 1, Stored([spine[at]], [tokens_hash(spine[at])], parent)), 0.0)
    chained: list[int] = []
    for item in spine:
        chained.append(next_hash(chained[-1] if chained else None, tokens_hash(item)))
    assert index.overlap(chained) == {A: 12}
