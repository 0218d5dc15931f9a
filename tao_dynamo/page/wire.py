# SPDX-License-Identifier: Apache-2.0
"""The snapshot as it travels: one JSON document, from which the page and ``tao top`` are drawn.

Times are in seconds, room in tokens. A field that has its default value is left out of the JSON of a row.
"""

from __future__ import annotations

import msgspec


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A node.

    Attributes:
        node: its id, ``worker/rank``.
        name: the shortest ending of that id that is unique among the nodes.
        capacity: its KV room.
        reserved: room that TAO has given away; ``running`` of it to sessions whose turn runs.
        foreign: room in use by what is not TAO's.
        claimed: room kept free for overdue sessions.
        residual: what may still be given, up to the admission mark.
        used: room that running requests use, as the engine measures it; None: not told.
        cached: tokens whose KV the events say is there, used by anyone or not.
        sessions: sessions that hold room here; ``running_sessions`` of them have a running turn.
        stale: its events had a gap and are being fetched anew.
        events: ``ok``, ``silent`` (it publishes no KV events) or ``mismatch`` (its blocks are not those expected).
    """

    node: str
    name: str
    capacity: int
    reserved: int
    running: int
    foreign: int
    claimed: int
    residual: int
    used: int | None
    cached: int
    sessions: int
    running_sessions: int
    stale: bool
    events: str


class SessionRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session.

    Attributes:
        id: the core's name for it, to ask ``explain`` with.
        session: the id that the client knows, where that is another one (a branch).
        state: ``running``, ``tool``, ``idle``, ``waiting`` or ``paused``.
        for_s: how long it has been in that state.
        place: its place in the waiting pool, from 1; 0 outside it.
        waited_s: how long its turn has waited.
        overdue: that is longer than the bound.
        reason: in words, why it has no room.
        node: where it holds room; ``held`` tokens of its own.
        footprint: its context so far; ``cost``: what it needs.
        ready: it counts as ready.
        credits: credit per node.
        tool: what kind of tool call runs, the one that returns last; ``calls`` how many run.
        tool_elapsed_s, returns_in_s: how long that one has run, and is expected to run still.
        source: what that expectation rests on.
        output: tokens its running turns have produced.
        parent: the session that waits for this one.
        marked: it will be paused when its turn ends.
    """

    id: str
    state: str
    for_s: float
    session: str | None = None
    place: int = 0
    waited_s: float | None = None
    overdue: bool = False
    reason: str = ""
    node: str | None = None
    held: int = 0
    footprint: int = 0
    cost: int = 0
    ready: bool = False
    credits: dict[str, int] = {}
    tool: str | None = None
    calls: int = 0
    tool_elapsed_s: float | None = None
    returns_in_s: float | None = None
    source: str | None = None
    output: int = 0
    parent: str | None = None
    marked: bool = False

    @property
    def best(self) -> tuple[str, int] | None:
        """The node with the most credit, and that credit."""
        return max(self.credits.items(), key=lambda item: item[1]) if self.credits else None


class PlanRow(msgspec.Struct, frozen=True, kw_only=True):
    """A plan.

    Attributes:
        ago_s: since it came back.
        method: what made it, in ``seconds``.
        candidates: sessions it chose from; ``placed`` were given room.
        refused: placements that were no longer valid, by reason, in words.
        optimal: its value is proven to be the optimum.
        value, bound: (credit, ready, footprint) found, and what the optimum is at most.
        note: what the solver says of it.
    """

    id: int
    ago_s: float
    method: str
    seconds: float
    candidates: int
    placed: int
    refused: dict[str, int]
    optimal: bool
    value: tuple[int, int, int]
    bound: tuple[int, int, int]
    note: str


class BusHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The event bus. ``lag_s`` is the age of the last KV event when it arrived, by its publisher's clock."""

    connected: bool
    listens: bool
    lag_s: float
    gaps: int
    stale_nodes: int
    resyncs: int
    dropped: int
    malformed: int
    disconnects: int
    messages: int
    tool_events: dict[str, int]
    blocks: int


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the router started."""

    live_turns: int
    turns: int
    failed: int
    cancelled: int
    displaced: int
    refused: int
    pauses: int
    restarts: int
    plans: int
    fallbacks: int
    planner_restarts: int
    prompt_tokens: int
    cached_tokens: int


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The router at one moment.

    Attributes:
        at: Unix time.
        took_ms: what it cost to look, in time of the processor.
        problems: what an operator should know, in words; empty when all is well.
        sessions: the waiting pool in its order, the paused, then the others; ``left_out`` more are not listed.
        plans: newest first.
    """

    version: str
    at: float
    up_s: float
    took_ms: float
    policy: str
    shared_prefixes: bool
    admission_mark: float
    pause_mark: float
    waiting_bound_s: float
    problems: list[str]
    by_state: dict[str, int]
    nodes: list[NodeRow]
    sessions: list[SessionRow]
    left_out: int
    plans: list[PlanRow]
    solving: bool
    bus: BusHealth
    totals: Totals


def short_names(nodes: list[str]) -> dict[str, str]:
    """The shortest ending of each ``worker/rank``, four digits or more of the worker, that tells the nodes apart."""
    whole = {node: node.partition("/")[0] for node in nodes}
    digits = 4
    while digits < 20 and len({worker[-digits:] for worker in whole.values()}) < len(set(whole.values())):
        digits += 1
    return {node: f"{worker[-digits:]}/{node.partition('/')[2]}" for node, worker in whole.items()}
