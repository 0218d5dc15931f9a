# SPDX-License-Identifier: Apache-2.0
"""Wires what comes over the bus to the tables and the core: KV events, load, tool events, nodes that come and go."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable

from kv_events.credit import CreditTable
from kv_events.follow import Change, Follower
from kv_events.reader import Connection
from kv_events.resync import Dump
from kv_events.types import NodeId
from kv_events.wire import Envelope, ForwardPass, KvBatch, KvMetrics
from tao_dynamo.errors import StackError, WireError
from tao_dynamo.shell.logs import Events
from tao_dynamo.shell.loop import Driver
from tao_dynamo.shell.tenants import Tenants
from tao_dynamo.shell.workers import Card
from tool_hooks.events import ToolEvent, decode
from tool_hooks.predictor import Predictor

log = Events("tao.bus")

LOAD_WINDOW_S = 1.0
DUMP_TIMEOUT_S = 10.0
_MAX_GUESSES = 100_000
MOST_LEFT = 1024
"""Workers of which is remembered that they left: one that drains does so for minutes, not for so many others."""


class RouterDump:
    """The workers' state out of Dynamo's own KV router, for warm start and resync.

    Args:
        dump: its ``dump_events``.
    """

    def __init__(self, dump: Callable[[], Awaitable[str]]) -> None:
        self._dump = dump

    async def dump(self) -> Dump:
        """Return the state of all nodes.

        Raises:
            StackError: Dynamo's router did not tell.
            WireError: what it told cannot be read.
        """
        try:
            text = await asyncio.wait_for(self._dump(), DUMP_TIMEOUT_S)
        except asyncio.TimeoutError as error:
            raise StackError(f"Dynamo's KV router gave no dump within {DUMP_TIMEOUT_S:g} s") from error
        except Exception as error:
            raise StackError(f"Dynamo's KV router gave no dump: {error}") from error
        return await asyncio.to_thread(Dump.from_json, text)


class Bus:
    """Handler of the event reader, and listener to the follower and to the worker watch.

    Args:
        driver: the core.
        credit: the credit table.
        predictor: of tool calls.
        use_kv_events: False: no node is believed to publish any.
        tenants: whose session is whose; without it every session is everybody's.
    """

    def __init__(
        self,
        driver: Driver,
        credit: CreditTable,
        predictor: Predictor,
        *,
        use_kv_events: bool = True,
        tenants: Tenants | None = None,
    ) -> None:
        self.counters: Counter[str] = Counter()
        self.tool_events: Counter[str] = Counter()
        self.connected = False
        self.lag_s = 0.0
        self.verdicts: dict[NodeId, Change] = {}
        self.follower: Follower | None = None
        self.on_eta_error: Callable[[float], None] = lambda _s: None
        self.tenants = tenants or Tenants()
        self._driver = driver
        self._credit = credit
        self._predictor = predictor
        self._use_kv_events = use_kv_events
        self._block_sizes: dict[NodeId, int] = {}
        self._silent: set[NodeId] = set()
        self._left: OrderedDict[int, None] = OrderedDict()
        """Workers that have left, the last ones. Those that drain go on publishing, and would be followed as new."""
        self._least_load: dict[NodeId, int] = {}
        self._told_load: dict[NodeId, int] = {}
        self._guesses: OrderedDict[tuple[str, str], float] = OrderedDict()

    # --- the reader's handler

    async def on_kv_events(self, envelope: Envelope, batch: KvBatch) -> None:
        """Take one message of topic ``kv-events``."""
        if envelope.published_at:
            self.lag_s = max(0.0, time.time() - envelope.published_at / 1e3)
        if self.follower is not None and not (batch.events and batch.events[0].node.worker_id in self._left):
            await self.follower.on_kv_events(envelope, batch)

    def on_kv_metrics(self, metrics: KvMetrics) -> None:
        """Take one message of topic ``kv_metrics``."""
        size = self._block_sizes.get(metrics.node)
        if size is None or metrics.kv_used_blocks is None:
            return
        used = metrics.kv_used_blocks * size
        known = self._least_load.get(metrics.node)
        self._least_load[metrics.node] = used if known is None else min(known, used)

    def on_forward_pass(self, metrics: ForwardPass) -> None:
        """Take one message of topic ``forward-pass-metrics``."""
        self.counters["forward_passes"] += metrics.node in self._block_sizes

    def on_tool_event(self, data: bytes, namespace: str) -> None:
        """Take one message of ``agent-tool-events``, and the namespace that it came over."""
        try:
            event = decode(data)
        except WireError as error:
            self.counters["tool_events_malformed"] += 1
            log.debug("tool_event_malformed", error=error)
            return
        self.tool_events[event.kind] += 1
        if event.session_id not in self._credit:
            self.counters["tool_events_unknown_session"] += 1
            return
        if not self.tenants.may_speak(event.session_id, event.tenant, namespace):
            self.counters["tool_events_foreign_tenant"] += 1
            return
        self._predict(event)
        self._driver.feed(self._driver.scheduler.tool_changed, event.session_id)

    def on_connection(self, state: Connection) -> None:
        """Hear that the bus came, went or came back."""
        self.connected = state is not Connection.DISCONNECTED
        self.counters[f"bus_{state.value}"] += 1
        if self.follower is not None:
            self.follower.on_connection(state)

    def on_dropped(self, subject: str) -> None:
        """Hear that messages were dropped because we were too slow."""
        self.counters["bus_dropped"] += 1
        if self.follower is not None:
            self.follower.on_dropped(subject)

    # --- the follower's listener

    def on_node(self, node: NodeId, change: Change, reason: str) -> None:
        """Hear what happens to a node's stream of events."""
        scheduler = self._driver.scheduler
        self.counters[f"node_{change}"] += 1
        if change in ("stale", "recovered"):
            self._driver.feed(scheduler.node_stale, node, change == "stale")
            log.info("node_stream", node=node, change=change, reason=reason)
        elif change == "restarted":
            # Plans that rest on the old blocks fall out; whether the node is stale has not changed.
            stale = self.follower is not None and self.follower.index.is_stale(node)
            self._driver.feed(scheduler.node_stale, node, True)
            self._driver.feed(scheduler.node_stale, node, stale)
        else:
            self.verdicts[node] = change
            self._credit.approximate(node, change != "confirmed" or node in self._silent)

    # --- the worker watch's listener

    def joined(self, node: NodeId, card: Card, capacity_tokens: int, block_size: int) -> None:
        """A node is there, or tells another capacity than before."""
        self._block_sizes[node] = block_size
        self._left.pop(node.worker_id, None)
        if self._use_kv_events and card.publishes_events:
            self._silent.discard(node)
        else:
            self._silent.add(node)
        self._credit.approximate(node, node in self._silent)
        if card.host_tokens:
            self._credit.value_tier("host_pinned", self._driver.scheduler.policy.host_credit)
        self._driver.feed(
            self._driver.scheduler.node_joined,
            node,
            capacity_tokens=capacity_tokens,
            block_size=block_size,
            host_tokens=card.host_tokens,
        )
        if self.follower is not None and node not in self._silent:
            self.follower.node_joined(node, block_size)

    def left(self, node: NodeId) -> None:
        """A node is gone."""
        for table in (self._block_sizes, self._least_load, self._told_load):
            table.pop(node, None)
        self.verdicts.pop(node, None)
        self._silent.discard(node)
        self._driver.feed(self._driver.scheduler.node_left, node)
        if not any(n.worker_id == node.worker_id for n in self._block_sizes):
            self._left[node.worker_id] = None
            if len(self._left) > MOST_LEFT:
                self._left.popitem(last=False)
            if self.follower is not None:
                self.follower.worker_left(node.worker_id)

    # --- what the tables are asked

    def publishing_nodes(self) -> list[tuple[NodeId, int]]:
        """Nodes that publish KV events, with their block sizes."""
        return [(node, size) for node, size in self._block_sizes.items() if node not in self._silent]

    def load(self, node: NodeId) -> int | None:
        """Tokens that running requests used on the node in the last window, as its engine measures; None: not told."""
        return self._told_load.get(node)

    @property
    def block_sizes(self) -> set[int]:
        """The block sizes in use."""
        return set(self._block_sizes.values())

    @property
    def stale_nodes(self) -> int:
        """Nodes whose state is being fetched, or cannot be."""
        if self.follower is None:
            return 0
        index = self.follower.index
        return sum(index.is_stale(node) for node in self._block_sizes if node not in self._silent)

    # --- time

    async def run(self) -> None:
        """Tell the core the nodes' load, and look for silent ones, once in a while, for ever."""
        while True:
            await asyncio.sleep(LOAD_WINDOW_S)
            try:
                self.tell_load()
                if self.follower is not None:
                    self.follower.check()
            except Exception:
                self.counters["faults"] += 1
                log.exception("bus_failed")

    def tell_load(self) -> None:
        """Tell the least load of the last window: what was there all the time, and not what has just ended."""
        for node, used in self._least_load.items():
            if self._told_load.get(node) != used or used:
                self._told_load[node] = used
                self._driver.feed(self._driver.scheduler.node_load, node, used_tokens=used)
        self._least_load.clear()

    # --- tools

    def _predict(self, event: ToolEvent) -> None:
        predictor, t = self._predictor, self._driver.clock()
        session, call = event.session_id, event.tool_call_id
        if event.kind == "tool_start":
            predictor.started(
                session,
                call,
                event.tool_key or (None if event.command else event.tool_class),
                t,
                declared_s=event.declared_s,
                timeout_s=event.timeout_s,
                command=event.command,
                tenant=self.tenants.history(session, event.tenant),
            )
            expected = predictor.remaining(session, t)
            if expected is not None:
                self._guesses[session, call] = t + expected.seconds
                if len(self._guesses) > _MAX_GUESSES:
                    self._guesses.popitem(last=False)
        elif event.kind == "tool_progress":
            predictor.progressed(session, call, t, fraction=event.fraction, remaining_s=event.remaining_s)
        else:
            guess = self._guesses.pop((session, call), None)
            if guess is not None:
                self.on_eta_error(abs(t - guess))
            predictor.ended(session, call, t, duration_s=event.duration_s)
