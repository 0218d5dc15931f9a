# SPDX-License-Identifier: Apache-2.0
"""The tables of the core, and the few moves that keep them consistent with each other.

Every change of who holds room goes through :meth:`State.hold` and :meth:`State.release`, every change of who
waits through :meth:`State.to_pool` and :meth:`State.leave_pool`.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence

from kv_events.types import NodeId
from tao_dynamo.core import family
from tao_dynamo.core.overdraft import Overdraft
from tao_dynamo.core.policy import Policy
from tao_dynamo.core.prefixes import PrefixRegistry, SharedPrefix
from tao_dynamo.core.pressing import Pressing
from tao_dynamo.core.room import Room
from tao_dynamo.core.rooms import Rooms
from tao_dynamo.core.seams import CreditSource, ReadinessSource
from tao_dynamo.core.session import Session, SessionState
from tao_dynamo.core.timers import Timer, Timers


class State:
    """Sessions, rooms, the waiting pool and the counters.

    ``opportunity`` is raised by whatever may let a session of the pool be placed: room freed, tool about to
    return, a session arrived that fits somewhere, a node joined. Without one, a solve would answer as the last did.
    """

    def __init__(self, policy: Policy, credit: CreditSource, readiness: ReadinessSource) -> None:
        self.policy = policy
        self.credit = credit
        self.readiness = readiness
        self.sessions: OrderedDict[str, Session] = OrderedDict()
        self.rooms = Rooms(policy.admission_mark)
        self.waiting: dict[str, Session] = {}
        self.paused: dict[str, Session] = {}
        self.returning: dict[str, Session] = {}
        self.pressing = Pressing()
        self.overdue_holders: dict[str, Session] = {}
        self.overdraft = Overdraft()
        self.requests: dict[str, str] = {}
        self.guests: dict[str, NodeId] = {}
        self.prefixes = PrefixRegistry()
        self.by_index: dict[int, Session] = {}
        self.timers = Timers()
        self.opportunity = False
        self.out_of_order = False
        self.host_tier = False
        self.contexts = 0
        self.looked_up_to = 0
        self.counters: Counter[str] = Counter()
        self._next_index = 1

    # --- sessions ---------------------------------------------------------------------------------

    def session(self, session_id: str, t: float, *, parent: str | None = None) -> Session:
        """The session of this id, made if there is none."""
        session = self.sessions.get(session_id)
        if session is None:
            session = Session(session_id, self._next_index, created_at=t, since=t, last_active=t, parent=parent)
            self._next_index += 1
            self.sessions[session_id] = session
            self.by_index[session.index] = session
            if parent == session_id:
                session.parent = None
            elif parent is not None and (owner := self.sessions.get(parent)) is not None:
                owner.children.add(session_id)
                self.refresh_parent(owner, t)
            self.counters["sessions"] += 1
        return session

    def touch(self, session: Session, t: float) -> None:
        """Something happened to the session: it is the last to expire, and older plans do not know it."""
        session.epoch += 1
        self.heard(session, t)

    def heard(self, session: Session, t: float) -> None:
        """The session's tools were heard of. A plan made before still stands, timers set before do not."""
        session.last_active = t
        session.tool_epoch += 1
        self.sessions.move_to_end(session.id)
        if session.branch_of is not None and (base := self.sessions.get(session.branch_of)) is not None:
            base.last_active = t
            self.sessions.move_to_end(base.id)
        if session.parent is not None and (owner := self.sessions.get(session.parent)) is not None:
            owner.child_heard_at = t
            self.refresh_parent(owner, t)

    def close(self, session: Session, t: float) -> None:
        """Forget the session and everything kept for it."""
        self.release(session)
        self.leave_pool(session)
        self.set_footprint(session, 0)
        del self.sessions[session.id]
        del self.by_index[session.index]
        for request_id in session.turns:
            self.requests.pop(request_id, None)
        for index in self.prefixes.remove(session.index):
            self._prefix_changed(index)
        if session.branch_of is not None and (base := self.sessions.get(session.branch_of)) is not None:
            base.branches.discard(session.id)
        if session.parent is not None and (owner := self.sessions.get(session.parent)) is not None:
            owner.children.discard(session.id)
            self.refresh_parent(owner, t)
        if session.branch_of is None:
            self.credit.forget(session.id)
            self.readiness.forget(session.id)
        self.counters["sessions_closed"] += 1

    def set_footprint(self, session: Session, tokens: int) -> None:
        """The session's context is so long now."""
        self.contexts += tokens - session.footprint
        session.footprint = tokens

    def refresh_parent(self, parent: Session, t: float) -> None:
        """A child of it came, went or was heard of: it may wait for children now, or no longer."""
        if parent.turns:
            return
        if parent.node is not None:
            parent.enter(self.between_turns(parent), t)
            self.hold(parent, parent.node)
        else:
            self.refresh_returning(parent, t)

    def register_prefix(self, session: Session, hashes: Sequence[int], block_size: int) -> None:
        """Count the session's first prompt in among the shared prefixes."""
        session.registered = True
        if self.policy.shared_prefixes and session.branch_of is None:
            for index in self.prefixes.add(session.index, hashes, block_size):
                self._prefix_changed(index)

    def _prefix_changed(self, index: int) -> None:
        session = self.by_index.get(index)
        if session is None:
            return
        session.common = self.prefixes.shared(index)
        if session.node is not None:
            self.hold(session, session.node)

    # --- value ------------------------------------------------------------------------------------

    def ready(self, session: Session, t: float) -> bool:
        """Whether the session counts as ready (DESIGN §4.2).

        Between turns with no tool known it does so for the default tool time only: nobody knows what it does,
        and for ever is too long.
        """
        if session.pending:
            return True
        if self.readiness.running(session.id):
            return self.readiness.ready(session.id, t)
        if family.waits_for_children(session):
            return False
        if self.policy.candidates == "all":
            return True
        return t - session.last_active <= self.policy.default_tool_s

    def credits(self, session: Session, t: float, promised: family.Promised | None = None) -> dict[NodeId, int]:
        """Credit on each live node, in tokens. What several sessions share is no session's own.

        A child that has not run yet has its parent's instead, as far as their prompts agree.
        """
        if session.branch_of is not None:
            return {}
        # In a host tier that holds whoever waits nothing grows old: what is there counts in full.
        found = self.credit.resident(session.id) if self.host_tier else self.credit.credits(session.id, t)
        inherits = session.parent is not None and not session.footprint
        if not found and not inherits:
            return {}
        own = {node: tokens for node, tokens in found.items() if tokens > 0 and node in self.rooms}
        if own and session.common is not None:
            shared, resident = session.common.tokens, self.credit.resident(session.id)
            for node, tokens in list(own.items()):
                whole = resident.get(node, 0)
                own[node] = tokens * (whole - shared) // whole if whole > shared else 0
                if not own[node]:
                    del own[node]
        if inherits:
            for node, tokens in family.inherited(self, session, t, promised).items():
                own[node] = max(own.get(node, 0), tokens)
        return own

    def prefix(self, session: Session) -> SharedPrefix | None:
        """The part of its cost that it shares: what its first prompt has in common, unless it needs less than that."""
        common = session.common
        return common if common is not None and common.tokens <= self.cost(session) else None

    def cost(self, session: Session) -> int:
        """Tokens it needs on a node that does not hold its shared prefix.

        Where the operator lets a session run alone that fits no node, it needs all of the largest.
        """
        tokens = max(1, session.reserved)
        return min(tokens, self.largest_capacity()) if self.policy.never_fits == "alone" else tokens

    @property
    def pause_mark(self) -> float:
        """Share of a node's capacity above which sessions are paused."""
        return 1.0 if self.host_tier else self.policy.pause_mark

    @property
    def target_mark(self) -> float:
        """Share of a node's capacity to which pausing brings it down."""
        return 1.0 if self.host_tier else self.policy.target_mark

    # --- room -------------------------------------------------------------------------------------

    def hold(self, session: Session, node: NodeId) -> None:
        """Reserve what the session needs on the node, or bring the reservation up to date."""
        prefix = self.prefix(session)
        own = max(0, self.cost(session) - (prefix.tokens if prefix else 0))
        if self.host_tier and session.state is SessionState.TOOL and not session.turns:
            own = 0
        elif session.long_tool and not session.turns:
            own = int(own * self.policy.long_tool_part(self.refill_s(self.rooms[node])))
        room = self.rooms[node]
        self.move(session, node)
        before = room.reserved
        room.hold(session.id, own, prefix, live=bool(session.turns))
        self.opportunity = self.opportunity or room.reserved < before

    def growth(self, session: Session) -> int:
        """Tokens by which the session's reservation would grow if it were brought up to date."""
        if session.node is None:
            return self.cost(session)
        prefix = self.prefix(session)
        own = max(0, self.cost(session) - (prefix.tokens if prefix else 0))
        return self.rooms[session.node].raised_by(session.id, own, prefix)

    def release(self, session: Session) -> int:
        """Give the session's room back, once. Returns the tokens freed."""
        self.unclaim(session)
        self.overdue_holders.pop(session.id, None)
        session.early_until = None
        session.marked = False
        if session.node is None:
            return 0
        room = self.rooms.get(session.node)
        self.move(session, None)
        self.opportunity = True
        return room.release(session.id) if room is not None else 0

    def move(self, session: Session, node: NodeId | None) -> None:
        """The session holds room on this node now; its parent keeps count of where its children are."""
        if node == session.node:
            return
        owner = self.sessions.get(session.parent) if session.parent is not None else None
        if owner is not None and session.id in owner.children:
            if session.node is not None:
                left = owner.children_on.get(session.node, 0) - 1
                if left > 0:
                    owner.children_on[session.node] = left
                else:
                    owner.children_on.pop(session.node, None)
            if node is not None:
                owner.children_on[node] = owner.children_on.get(node, 0) + 1
        session.node = node

    def unclaim(self, session: Session) -> None:
        """Drop the room that was kept free for the session."""
        if session.claimed is not None and (room := self.rooms.get(session.claimed)) is not None:
            room.unclaim(session.id)
            self.opportunity = True
        session.claimed = None

    def refill_s(self, room: Room) -> float | None:
        """T* of a node: seconds in which it would compute a whole cache anew (DESIGN §4.5). None while unknown."""
        rate = self.policy.prefill_rate or room.prefill.tokens_per_s
        return room.capacity / rate if rate else None

    def largest_capacity(self) -> int:
        """Tokens of the largest node."""
        return self.rooms.largest

    # --- the pool ---------------------------------------------------------------------------------

    def to_pool(self, session: Session, t: float, *, since: float | None = None) -> None:
        """The session has no room: it waits with its turn, or it is paused between turns.

        ``since``: from when on it counts as waiting, if not from now.
        """
        if session.pending:
            self.classify(session)
            if session.waiting_since is None:
                session.waiting_since = t if since is None else since
                for share in (0.5, 1.0):
                    at = session.waiting_since + share * self.policy.waiting_bound_s
                    self.timers.set(max(at, t), Timer.OVERDUE, session.id)
            session.enter(SessionState.WAITING, t)
            self.paused.pop(session.id, None)
            self.returning.pop(session.id, None)
            self.waiting[session.id] = session
            self.out_of_order = self.out_of_order or since is not None
        else:
            session.enter(SessionState.PAUSED, t)
            self.waiting.pop(session.id, None)
            session.waiting_since = None
            self.pressing.discard(session)
            self.paused[session.id] = session
            self.refresh_returning(session, t)

    def pool(self) -> list[Session]:
        """Who waits, oldest first. Turns that came back to the pool are put in their places only here, all at once."""
        if self.out_of_order:
            oldest_first = sorted(self.waiting.values(), key=lambda each: each.waiting_since or 0.0)
            self.waiting = {each.id: each for each in oldest_first}
            self.out_of_order = False
        return list(self.waiting.values())

    def classify(self, session: Session) -> None:
        """Its most urgent turn that has no room yet decides the session's class, and its place among the overdue."""
        tier = max(live.turn.tier for live in session.pending)
        if tier != session.tier:
            pressing = session.pressing is not None
            self.pressing.discard(session)
            session.tier = tier
            if pressing:
                self.pressing.add(session)

    def leave_pool(self, session: Session) -> None:
        """The session waits no longer."""
        self.waiting.pop(session.id, None)
        self.paused.pop(session.id, None)
        self.returning.pop(session.id, None)
        session.waiting_since = None
        self.pressing.discard(session)
        session.last_refusal = None
        self.unclaim(session)

    def refresh_returning(self, session: Session, t: float) -> bool:
        """Whether a paused session is about to return and may be placed early; keeps the set of those."""
        if session.id not in self.paused:
            return False
        known = session.tool_seen or self.policy.candidates == "all"
        if known and (self.policy.candidates == "all" or self.ready(session, t)):
            if session.id not in self.returning:
                self.returning[session.id] = session
                self.opportunity = True
            return True
        self.returning.pop(session.id, None)
        return False

    def between_turns(self, session: Session) -> SessionState:
        """The state of a session that holds room and has no turn."""
        known = self.readiness.running(session.id) or family.waits_for_children(session)
        return SessionState.TOOL if known else SessionState.IDLE

    def watch_readiness(self, session: Session, t: float) -> None:
        """Look again when the session's readiness may change by itself."""
        change = self.readiness.next_change(session.id, t)
        if change is not None:
            self.timers.set(max(change, t + 0.001), Timer.READINESS, session.id, session.tool_epoch)

    def watch_long_tool(self, session: Session, t: float) -> None:
        """Look again when the session's tool has run for long."""
        if session.node is None or self.policy.long_tool_factor == 1.0:
            return
        threshold = self.policy.long_tool_threshold_s(self.refill_s(self.rooms[session.node]))
        self.timers.set(t + threshold, Timer.LONG_TOOL, session.id, session.tool_epoch)

    def expect_return(self, session: Session, t: float) -> None:
        """Room was given before the tool returned: it is given up again if no turn comes in time."""
        remaining = self.readiness.remaining(session.id, t)
        wait = 2.0 * (remaining.seconds if remaining else 0.0) + self.policy.early_grace_s
        session.early_until = t + wait
        self.timers.set(t + wait, Timer.EARLY, session.id)
