# SPDX-License-Identifier: Apache-2.0
"""Keeps the index in step with the bus: order, hold-back, resync. The async half of ``kv_events.stream``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from kv_events.index import BlockIndex
from kv_events.reader import Connection
from kv_events.resync import Dump, ResyncSource
from kv_events.stream import Apply, Healed, Recovery, Restarted, Resync, Sequencer
from kv_events.types import NodeId
from kv_events.watch import Watch
from kv_events.wire import Envelope, KvBatch, KvEvent, Removed, Stored

log = logging.getLogger(__name__)

_SLICE = 4096
_MAX_DOUBTS = 3


class NodeListener(Protocol):
    """Whoever wants to hear what happens to a node as a whole."""

    def on_node(self, node: NodeId, change: Change, reason: str) -> None:
        """Hear of a change; called on the event loop, between two events."""


Change = Literal["stale", "recovered", "restarted", "silent", "mismatch", "confirmed"]


@dataclass
class FollowerCounters:
    """Since the follower was made."""

    resyncs: int = 0
    """Nodes whose state was taken from a dump."""
    dumps: int = 0
    dump_failures: int = 0


class Follower:
    """Applies the events of the bus to an index, and heals it from the workers' own state.

    Args:
        index: what to keep in step.
        source: where the workers' state comes from; None: lost nodes stay stale until their engine restarts.
        listener: told of stale, recovered and restarted nodes.
        settle_s: wait before a dump, so that whoever answers it has seen what we have seen.
        jitter_s: further wait, drawn uniformly, so that router replicas do not all ask at once.
        spacing_s: least time between two dumps.
        retry_s: wait after a dump that failed or was too old; doubles up to 30 s.
        grace_s, min_turns: see ``kv_events.watch.Watch``.
        clock: seconds, going forward.
        rng: draws the jitter.
    """

    def __init__(
        self,
        index: BlockIndex,
        source: ResyncSource | None,
        listener: NodeListener | None = None,
        *,
        settle_s: float = 0.25,
        jitter_s: float = 0.5,
        spacing_s: float = 1.0,
        retry_s: float = 0.5,
        grace_s: float = 30.0,
        min_turns: int = 20,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self.index = index
        self.stream = Sequencer()
        self.counters = FollowerCounters()
        self.watch = Watch(
            index.begins,
            self.stream.heard,
            grace_s=grace_s,
            min_turns=min_turns,
        )
        self._source = source
        self._listener = listener
        self._settle = settle_s
        self._jitter = jitter_s
        self._spacing = spacing_s
        self._retry = retry_s
        self._dumped_at = float("-inf")
        self._doubts: dict[NodeId, int] = {}
        self._clock = clock
        self._rng = rng or random.Random()
        self._lock = asyncio.Lock()
        self._left: set[int] = set()
        """Workers that left while a message or a dump is being applied: what is still to come of it is nobody's."""
        self._task: asyncio.Task[None] | None = None

    async def on_kv_events(self, envelope: Envelope, batch: KvBatch) -> None:
        """Take in one message; gives way to other tasks now and then when it is a big one."""
        async with self._lock:
            self._left.clear()
            for action in self.stream.receive(envelope, batch):
                await self._do(action)

    def on_connection(self, state: Connection) -> None:
        """Hear of the bus: what we know is stale while it is away, and is fetched anew when it is there."""
        if state is Connection.DISCONNECTED:
            for node in self.index.nodes:
                self._mark(node, stale=True, reason="the event bus is away")
        else:
            self.resync(f"the event bus is {state.value}")

    def on_dropped(self, subject: str) -> None:
        """Hear that messages were dropped because we were too slow."""
        for action in self.stream.lose_track(f"messages of {subject} were dropped", unseen=True):
            self._lost(action)

    def node_joined(self, node: NodeId, block_size: int) -> None:
        """Name a node and its tokens per block; what it holds already is fetched."""
        self.index.set_block_size(node, block_size)
        for action in self.stream.expect(node):
            self._lost(action)

    def worker_left(self, worker_id: int) -> list[NodeId]:
        """Forget a worker; a resync that is under way for it comes to nothing. Return its nodes."""
        self._left.add(worker_id)
        self.stream.forget_worker(worker_id)
        nodes = self.index.drop_worker(worker_id)
        for node in nodes:
            self.watch.forget(node)
            self._doubts.pop(node, None)
        return nodes

    def resync(self, reason: str, nodes: list[NodeId] | None = None) -> None:
        """Fetch the state of nodes (None: all) anew."""
        for action in self.stream.lose_track(reason, nodes):
            self._lost(action)

    def ran(self, node: NodeId, hashes: Sequence[int]) -> None:
        """Note that a turn with this prompt ran on a node, whose blocks should be announced from there now."""
        if hashes:
            self.watch.ran(node, hashes[0], self._clock())

    def check(self) -> None:
        """Name silent and mismatching nodes, each once; to be called about once a second."""
        for finding in self.watch.check(self._clock()):
            log.warning("%s", finding.text)
            self._tell(finding.node, finding.verdict, finding.text)

    async def close(self) -> None:
        """Stop; the index stays as it is."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _do(self, action: Apply | Restarted | Resync | Healed) -> None:
        node = action.event.node if isinstance(action, Apply) else action.node
        if node.worker_id in self._left:
            return
        if isinstance(action, Apply):
            await self._apply(action.event)
        elif isinstance(action, Restarted):
            if self.index.holds_any(action.node):
                log.warning("node %s: its engine restarted; its blocks are forgotten", action.node)
            self.index.clear(action.node)
            self._tell(action.node, "restarted", "its engine restarted")
            if self._source is None:
                self._mark(action.node, stale=False, reason="it restarted")
        elif isinstance(action, Healed):
            self._mark(action.node, stale=False, reason="it restarted from the beginning")
        else:
            for event in self._lost(action):
                await self._apply(event)

    def _lost(self, action: object) -> Sequence[KvEvent]:
        """Have a node's state fetched; without a source, return the events to go on with, and let it stay stale."""
        if not isinstance(action, Resync):
            return ()
        node = action.node
        self._mark(node, stale=True, reason=action.reason)
        if self._source is None:
            self.stream.dumping()
            recovery = self.stream.dumped(node)
            return recovery.held if recovery is not None else ()
        log.info("node %s: %s; its state is to be fetched", node, action.reason)
        if self._task is None:
            self._task = asyncio.create_task(self._heal(self._source), name="kv_events resync")
        return ()

    async def _apply(self, event: KvEvent) -> None:
        t = self._clock()
        for piece in _pieces(event):
            if event.node.worker_id in self._left:
                return
            self.index.apply(piece, t)
            if piece is not event:
                await asyncio.sleep(0)

    async def _heal(self, source: ResyncSource) -> None:
        """Fetch dumps until no node waits for one."""
        wait = self._retry
        try:
            while self.stream.lost():
                await asyncio.sleep(self._settle + self._rng.uniform(0, self._jitter))
                await asyncio.sleep(max(0.0, self._dumped_at + self._spacing - self._clock()))
                nodes = self.stream.dumping()
                if not nodes:
                    break
                self._dumped_at = self._clock()
                if await self._one_dump(source, nodes):
                    wait = self._retry
                else:
                    await asyncio.sleep(wait)
                    wait = min(2 * wait, 30.0)
        finally:
            if self._task is asyncio.current_task():
                self._task = None

    async def _one_dump(self, source: ResyncSource, nodes: list[NodeId]) -> bool:
        self.counters.dumps += 1
        try:
            dump = await source.dump()
        except Exception as error:  # noqa: BLE001 - whatever it is, the node goes on waiting and we go on asking
            self.counters.dump_failures += 1
            log.warning("no dump of the workers' state: %s", repr(error))
            for node in nodes:
                self.stream.failed(node)
            return False
        by_node: dict[NodeId, list[KvEvent]] = {node: [] for node in nodes}
        for event in dump.events:
            if event.node in by_node:
                by_node[event.node].append(event)
        healed = [await self._take(node, by_node[node], dump) for node in nodes]
        return all(healed)

    async def _take(self, node: NodeId, events: list[KvEvent], dump: Dump) -> bool:
        async with self._lock:
            self._left.clear()
            recovery = self.stream.dumped(node, dump.as_of.get(node))
            if recovery is None:
                return True
            if recovery.usable:
                self.counters.resyncs += 1
                self.index.clear(node)
                done = 0
                for event in (*events, *recovery.held):
                    await self._apply(event)
                    done += len(event.data.block_hashes) if isinstance(event.data, (Stored, Removed)) else 1
                    if done >= _SLICE:
                        done = 0
                        await asyncio.sleep(0)
                if node.worker_id in self._left:
                    return True
            again = recovery.again or self._doubt(node, recovery)
            if again is not None:
                log.warning("node %s: %s; its state is fetched once more", node, again.reason)
                return False
            self._doubts.pop(node, None)
            self._mark(node, stale=False, reason="its state was fetched anew")
            return True

    def _doubt(self, node: NodeId, recovery: Recovery) -> Resync | None:
        """Ask for another dump if events since the last one hang on blocks that it should have had."""
        stats = self.index.node_stats(node)
        doubts = self._doubts.get(node, 0)
        if not recovery.held or stats is None or not stats.orphans or doubts >= _MAX_DOUBTS:
            return None
        self._doubts[node] = doubts + 1
        return self.stream.doubt(node, recovery.held, "the dump was older than the events")

    def _mark(self, node: NodeId, *, stale: bool, reason: str) -> None:
        if self.index.is_stale(node) != stale:
            self.index.set_stale(node, stale)
            self._tell(node, "stale" if stale else "recovered", reason)

    def _tell(self, node: NodeId, change: Change, reason: str) -> None:
        if self._listener is not None:
            self._listener.on_node(node, change, reason)


def _pieces(event: KvEvent) -> Iterator[KvEvent]:
    """Cut a big event into several that do the same."""
    data = event.data
    if isinstance(data, Removed) and len(data.block_hashes) > _SLICE:
        for at in range(0, len(data.block_hashes), _SLICE):
            yield KvEvent(event.node, event.event_id, Removed(data.block_hashes[at : at + _SLICE]), event.tier)
    elif isinstance(data, Stored) and len(data.block_hashes) > _SLICE:
        parent, start = data.parent_hash, data.start_position
        for at in range(0, len(data.block_hashes), _SLICE):
            names = data.block_hashes[at : at + _SLICE]
            part = Stored(names, data.tokens_hashes[at : at + _SLICE], parent, start)
            yield KvEvent(event.node, event.event_id, part, event.tier)
            parent, start = names[-1], None
    else:
        yield event
