# SPDX-License-Identifier: Apache-2.0
"""Snapshot, plan, revalidated apply (DESIGN §4.4)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kv_events.types import NodeId
from solver.problem import Candidate, Node, Plan, Problem, Value
from tao_dynamo.core import admission, overdue
from tao_dynamo.core.decisions import AskSolve, Decision
from tao_dynamo.core.prefixes import SharedPrefix
from tao_dynamo.core.room import Room
from tao_dynamo.core.session import Session
from tao_dynamo.core.state import State
from tao_dynamo.core.timers import Timer

PREFIX_SHARE = 0.25
"""Share of a node's residual room that may be set aside for shared prefixes not yet on it."""


class Signature(NamedTuple):
    """What must still be true of a session for its placement to be applied."""

    number: int
    epoch: int
    ready: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A frozen copy of candidates and residual capacities that one solve works on."""

    id: int
    problem: Problem
    signatures: dict[str, Signature]
    generations: dict[str, int]


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """What became of a plan, for those who ask. ``bound`` is at least the optimum, ``value`` what was found."""

    snapshot_id: int
    at: float
    candidates: int
    placed: int
    refused: dict[str, int]
    method: str
    seconds: float
    optimal: bool
    note: str
    value: Value
    bound: Value


class Solving:
    """Asks for solves, at most one in flight, and applies what comes back."""

    def __init__(self, state: State, seed: int) -> None:
        self._state = state
        self._seed = seed
        self._next_id = 1
        self._in_flight: Snapshot | None = None
        self._asked_at: float | None = None
        self._last_asked = float("-inf")
        self.records: deque[PlanRecord] = deque(maxlen=20)

    @property
    def in_flight_since(self) -> float | None:
        """When the solve in flight was asked for, None without one."""
        return self._asked_at

    def request(self, t: float) -> list[Decision]:
        """A restart opportunity: serve the overdue, then ask for a solve unless one is in flight or too recent."""
        state = self._state
        if not state.opportunity or not state.rooms or not (state.waiting or state.returning):
            if state.overdraft.held:
                overdue.account(state, t)  # else what they give back while nobody waits would be owed on and on
            return []
        out = overdue.serve(state, t)
        if not (state.waiting or state.returning):
            return out
        if self._asked_at is not None:
            return out
        earliest = self._last_asked + state.policy.solve_interval_s
        if t < earliest:
            state.timers.set(earliest, Timer.SOLVE)
            return out
        self._asked_at = self._last_asked = t
        state.opportunity = False
        state.timers.set(t + state.policy.solve_timeout_s, Timer.SOLVE)
        return [*out, AskSolve()]

    def snapshot(self, t: float) -> Snapshot | None:
        """Freeze what the solve works on. None when there is nothing to decide; then no plan is awaited."""
        state = self._state
        chosen = self._choose(t)
        rooms = state.rooms
        if not chosen or not rooms:
            self._asked_at = None
            return None
        whole = [state.cost(session) for session in chosen]
        prefixes = [state.prefix(session) for session in chosen]
        shared = _set_aside(state, whole, prefixes)
        offer = _offer(state, whole, prefixes, shared)
        if offer.fits_nobody and shared.kept:
            offer = _offer(state, whole, prefixes, Charge())  # what they share must not keep out who fits without it
        if offer.fits_nobody:  # before the credits, which are what a snapshot costs
            state.counters["solves_skipped"] += 1
            self._asked_at = None
            return None
        promised: Counter[tuple[str, NodeId]] = Counter()
        candidates = tuple(
            self._candidate(session, cost, full, t, promised)
            for session, cost, full in zip(chosen, offer.costs, whole, strict=True)
        )
        snapshot = Snapshot(
            id=self._next_id,
            problem=Problem(offer.nodes, candidates, offer.quantum, self._seed + self._next_id, state.policy.balance),
            signatures={s.id: Signature(s.index, s.epoch, s.id in state.waiting) for s in chosen},
            generations={room.name: room.generation for room in rooms.values()},
        )
        self._next_id += 1
        self._in_flight = snapshot
        return snapshot

    def failed(self, snapshot_id: int | None, t: float) -> list[Decision]:
        """The solve gave no plan. The candidates wait for the next one."""
        if snapshot_id is not None and (self._in_flight is None or self._in_flight.id != snapshot_id):
            return []
        self._state.counters["solves_failed"] += 1
        self._in_flight = None
        self._asked_at = None
        self._state.opportunity = True
        return self.request(t)

    def returned(self, snapshot_id: int, plan: Plan, t: float) -> list[Decision]:
        """Apply a plan: what is no longer valid falls out; of the rest the longest prefix that fits is placed."""
        snapshot = self._in_flight
        if snapshot is None or snapshot.id != snapshot_id:
            self._state.counters["plans_ignored"] += 1
            return []
        self._in_flight = None
        self._asked_at = None
        state = self._state
        refused: dict[str, int] = {}
        out: list[Decision] = []
        placed = 0
        full = False
        for placement in plan.placements:
            node = NodeId.parse(placement.node)
            reason = self._invalid(snapshot, placement.candidate, node, t)
            if reason is None:
                session = state.sessions[placement.candidate]
                cost = state.cost(session)
                room = state.rooms[node]
                added = room.added(cost, state.prefix(session))
                full = full or added > admission.room_for(state, room, added)
                if not full:
                    out += admission.settle(state, session, node, t)
                    placed += 1
                    continue
                reason = "capacity"
            refused[reason] = refused.get(reason, 0) + 1
            state.counters[f"placement_refused.{reason}"] += 1
            if (left := state.sessions.get(placement.candidate)) is not None:
                left.last_refusal = reason
        state.counters["plans_applied"] += 1
        state.counters["plans_optimal"] += plan.optimal
        state.counters["placements_applied"] += placed
        asked = len(snapshot.signatures)
        self.records.append(
            PlanRecord(
                snapshot_id=snapshot_id,
                at=t,
                candidates=asked,
                placed=placed,
                refused=refused,
                method=plan.method,
                seconds=plan.seconds,
                optimal=plan.optimal,
                note=plan.note,
                value=plan.value,
                bound=plan.bound,
            )
        )
        state.opportunity = state.opportunity or bool(refused)
        out += self.request(t)
        return out

    def _invalid(self, snapshot: Snapshot, candidate: str, node: NodeId, t: float) -> str | None:
        """The reason for which a placement falls out, None if it stands."""
        state = self._state
        session = state.sessions.get(candidate)
        signature = snapshot.signatures.get(candidate)
        if session is None or signature is None:
            return "session_gone"
        if candidate not in state.waiting and candidate not in state.paused:
            return "not_waiting"
        if (session.index, session.epoch) != (signature.number, signature.epoch):
            return "epoch"
        if not signature.ready and not state.refresh_returning(session, t):
            return "tool_state"
        room = state.rooms.get(node)
        if room is None:
            return "node_gone"
        if room.generation != snapshot.generations.get(str(node)):
            return "node_stale"
        return None

    def _choose(self, t: float) -> list[Session]:
        """The candidates: waiting turns by class and age, then paused sessions about to return."""
        state = self._state
        for session in list(state.returning.values()):
            state.refresh_returning(session, t)
        waiting = [s for s in state.pool() if s.claimed is None]
        limit = state.policy.max_candidates
        if len(waiting) > limit:
            waiting.sort(key=lambda s: -s.tier)
        return [*waiting, *state.returning.values()][:limit]

    def _candidate(
        self, session: Session, cost: int, whole: int, t: float, promised: Counter[tuple[str, NodeId]]
    ) -> Candidate:
        state = self._state
        credit: dict[str, int] = {}
        if own := state.credits(session, t, promised):
            if session.parent is not None and not session.footprint:
                promised.update((session.parent, node) for node in own)
            credit = {state.rooms[node].name: tokens for node, tokens in own.items()}
        return Candidate(
            session.id,
            cost,
            session.id in state.waiting or state.ready(session, t),
            max(session.footprint, whole),
            credit,
            session.tier,
        )


@dataclass(frozen=True, slots=True)
class Charge:
    """Shared prefixes that are charged to the nodes and not to each candidate, and the tokens of them on each node."""

    kept: frozenset[int] = frozenset()
    on: Mapping[NodeId, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Offer:
    """What a snapshot has of sizes: the cost of each candidate, the nodes with what they may give away, the unit."""

    costs: list[int]
    nodes: tuple[Node, ...]
    quantum: int

    @property
    def fits_nobody(self) -> bool:
        """Whether no node has room for any candidate."""
        return min(self.costs) > max(node.capacity for node in self.nodes)


def _set_aside(state: State, whole: list[int], prefixes: list[SharedPrefix | None]) -> Charge:
    """Which shared prefixes to charge to the nodes; those that save most come first.

    The solver's costs add up, a shared prefix does not. So a prefix that every node already holds, or that several
    candidates share, is charged once to the node. Beside it there must be room for one that has it, or else what is
    charged only keeps those out: then, as for every prefix after a node's first, it may take a share of the room at
    most. The others stay in their candidates' costs, which is an upper bound.
    """
    members: dict[int, list[int]] = {}
    tokens: dict[int, int] = {}
    for cost, prefix in zip(whole, prefixes, strict=True):
        if prefix is not None:
            tokens[prefix.key] = prefix.tokens
            members.setdefault(prefix.key, []).append(max(1, cost - prefix.tokens))
    missing: dict[int, list[Room]] = {key: [] for key in members}
    if members:
        for room in state.rooms.values():
            for key in members.keys() - room.prefixes:
                missing[key].append(room)
    kept: set[int] = set()
    on: Counter[NodeId] = Counter()
    mark = state.rooms.mark
    for key in sorted(members, key=lambda key: -(len(members[key]) - 1) * tokens[key]):
        if len(members[key]) < 2 and missing[key]:
            continue
        least = min(members[key])
        charges: dict[NodeId, int] = {}
        for room in missing[key]:
            residual = room.residual(mark)
            if least > (room.capacity if room.idle else residual):
                continue  # nobody who has it can come here
            first = not on[room.node] and tokens[key] + least <= residual
            if not first and on[room.node] + tokens[key] > PREFIX_SHARE * residual:
                break
            charges[room.node] = tokens[key]
        else:
            kept.add(key)
            on.update(charges)
    return Charge(frozenset(kept), on)


def _offer(state: State, whole: list[int], prefixes: list[SharedPrefix | None], shared: Charge) -> Offer:
    """Costs and nodes, shared prefixes charged to the nodes left out of the costs and taken off the room.

    An idle node on which even the candidate of the least cost, as the solver rounds it, does not fit under the
    admission mark offers its whole room: since each would take more than half of it, one at most gets it.
    """
    costs = [
        max(1, cost - prefix.tokens) if prefix is not None and prefix.key in shared.kept else cost
        for cost, prefix in zip(whole, prefixes, strict=True)
    ]
    rooms = state.rooms
    quantum = state.policy.quantum or _quantum(rooms.most_residual(), max(r.block_size for r in rooms.values()))
    least = -(-min(costs) // quantum) * quantum
    nodes: list[Node] = []
    for room in rooms.values():
        charged = shared.on.get(room.node, 0)
        capacity = room.residual(rooms.mark) - charged
        if room.idle and least > capacity // quantum * quantum and 2 * least > room.capacity:
            capacity = room.capacity - charged
        nodes.append(Node(room.name, max(0, capacity)))
    return Offer(costs, tuple(nodes), quantum)


def _quantum(largest: int, block_size: int) -> int:
    """About a thousand quanta on the largest node, and never finer than a block."""
    quantum = max(1, block_size)
    while quantum * 1024 < largest:
        quantum *= 2
    return quantum
