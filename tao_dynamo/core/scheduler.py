# SPDX-License-Identifier: Apache-2.0
"""The scheduler: a state machine that takes events and the time, and returns decisions.

It never awaits, logs, reads a clock or touches a socket; the live router and the simulator drive it alike.
Every method that takes ``t`` (seconds, any clock that does not run backwards) may be called in any order:
events for unknown sessions, requests or nodes change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from kv_events.types import NodeId
from solver.problem import Plan
from tao_dynamo.core import admission, boundary, conserving, housekeeping, load, marks, overdue, pausing, views
from tao_dynamo.core.decisions import Decision, Refuse, RefuseReason, WakeAt
from tao_dynamo.core.policy import DEFAULT, Policy
from tao_dynamo.core.seams import CreditSource, ReadinessSource
from tao_dynamo.core.session import Session
from tao_dynamo.core.solving import Snapshot, Solving
from tao_dynamo.core.state import State
from tao_dynamo.core.timers import Due, Timer
from tao_dynamo.core.turn import LiveTurn, Turn

SWEEP_S = 1.0
GROWTH_STEP = 64


class Scheduler:
    """Decides which waiting sessions get room now, and on which node.

    Args:
        policy: the constants in force.
        credit: where the KV-cache credit of a session comes from.
        readiness: where tool calls and their remaining time come from.
        seed: of the solver's order of ties.
    """

    def __init__(
        self, policy: Policy = DEFAULT, *, credit: CreditSource, readiness: ReadinessSource, seed: int = 0
    ) -> None:
        self.policy = policy
        self._state = State(policy, credit, readiness)
        self._solving = Solving(self._state, seed)
        self._woken_at: float | None = None
        self._sweeping = False

    # --- nodes ------------------------------------------------------------------------------------

    def node_joined(
        self, node: NodeId, *, capacity_tokens: int, block_size: int, t: float, host_tokens: int = 0
    ) -> list[Decision]:
        """A node is there, or tells another capacity than before."""
        self._state.rooms.join(node, capacity_tokens, block_size, host_tokens)
        self._state.opportunity = True
        out = [*marks.choose(self._state, t), *pausing.relieve(self._state, node, t)]
        return self._after([*out, *housekeeping.refuse_hopeless(self._state, t)], t)

    def node_left(self, node: NodeId, t: float) -> list[Decision]:
        """A node is gone. Sessions between turns lose their room; running turns end by their own events."""
        state = self._state
        room = state.rooms.get(node)
        if room is None:
            return []
        out: list[Decision] = []
        for holder in room.holders:
            session = state.sessions.get(holder)
            if session is not None and not session.running:
                out.append(pausing.pause(state, session, t))
        for session_id in list(room.claims):
            if session_id in state.sessions:
                state.unclaim(state.sessions[session_id])
        state.rooms.leave(node)
        for holder in room.holders:
            if (session := state.sessions.get(holder)) is not None:
                state.move(session, None)
                state.overdue_holders.pop(holder, None)
        state.credit.forget_node(node)
        out += marks.choose(state, t)
        return self._after([*out, *housekeeping.refuse_hopeless(self._state, t)], t)

    def node_stale(self, node: NodeId, stale: bool, t: float) -> list[Decision]:
        """The node's event stream has a gap, or is whole again. Plans made before fall out for this node."""
        room = self._state.rooms.get(node)
        if room is None:
            return []
        if room.stale != stale or stale:
            room.generation += 1
        room.stale = stale
        return self._after([], t)

    def node_load(self, node: NodeId, *, used_tokens: int, t: float) -> list[Decision]:
        """Tokens in use by running requests, as the engine measures them. What is above ours is not ours."""
        state = self._state
        room = state.rooms.get(node)
        if room is None:
            return []
        foreign = min(max(0, used_tokens - load.of_ours(state, room)), room.capacity)
        state.opportunity = state.opportunity or foreign < room.foreign
        room.load(foreign)
        return self._after(pausing.relieve(state, node, t), t)

    # --- turns ------------------------------------------------------------------------------------

    def turn_arrived(self, turn: Turn, t: float) -> list[Decision]:
        """A request has come in. It is admitted or refused now, or waits for a later decision."""
        if turn.session_id is None:
            return self._after(admission.arrive_guest(self._state, turn, t), t)
        out = admission.arrive(self._state, turn, t)
        return self._after(out or conserving.make_way_at_once(self._state, t), t)

    def first_token(self, request_id: str, t: float) -> list[Decision]:
        """The turn's first token came back: its prompt is on the node."""
        found = self._find(request_id)
        if found is not None:
            session, live = found
            if live.first_token_at is None:
                live.first_token_at = t
                if session.node is not None and session.branch_of is None:
                    self._state.credit.ran_on(session.id, session.node, live.turn.prompt_tokens, t)
        return []

    def tokens(self, request_id: str, n: int, t: float) -> list[Decision]:
        """``n`` more tokens came back. Beyond what was expected the reservation grows."""
        found = self._find(request_id)
        if found is None:
            return []
        session, live = found
        live.generated += n
        if live.generated <= live.expected_output:
            return []
        live.expected_output = live.generated + max(GROWTH_STEP, live.generated // 4)
        if session.node is None:
            return []
        self._state.hold(session, session.node)
        return self._after(pausing.relieve(self._state, session.node, t), t)

    def turn_ended(
        self,
        request_id: str,
        *,
        t: float,
        cached_tokens: int | None = None,
        output_tokens: int | None = None,
        ok: bool = True,
    ) -> list[Decision]:
        """The turn is over: served, failed or cancelled. Its room is released exactly once.

        Args:
            request_id: which turn.
            t: now.
            cached_tokens: prompt tokens that the engine took from its cache.
            output_tokens: tokens produced, where they were not reported by :meth:`tokens`.
            ok: False if it failed or was cancelled; then nothing is learnt from its length.
        """
        state = self._state
        if admission.guest_ended(state, request_id):
            return self._after([], t)
        session_id = state.requests.pop(request_id, None)
        session = state.sessions.get(session_id) if session_id is not None else None
        if session is None:
            return []
        live = session.turns.pop(request_id)
        session.turn_ended_at = t
        state.touch(session, t)
        if live.admitted_at is not None:
            if output_tokens is not None:
                live.generated = output_tokens
            session.widest = max(session.widest, live.context)
            others = (other.context for other in session.turns.values())
            state.set_footprint(session, max(session.widest, *others, 0))
            if ok:
                session.learn_output(live.generated)
                state.counters["turns_done"] += 1
                if session.node is not None and session.branch_of is None:
                    state.credit.ran_on(session.id, session.node, live.context, t)
            if cached_tokens is not None:
                state.counters["cached_tokens"] += cached_tokens
                if session.node is not None and live.first_token_at is not None:
                    computed = live.turn.prompt_tokens - cached_tokens
                    state.rooms[session.node].prefill.observe(computed, live.first_token_at - live.admitted_at)
            state.counters["prompt_tokens"] += live.turn.prompt_tokens
        room = state.rooms.get(session.node) if session.node is not None else None
        out = boundary.settle_down(state, session, t)
        if room is not None:
            out += conserving.make_way_on(state, room, t)
        return self._after(out, t)

    def turn_cancelled(self, request_id: str, t: float) -> list[Decision]:
        """The client left, while waiting or streaming."""
        if request_id in self._state.requests or request_id in self._state.guests:
            self._state.counters["turns_cancelled"] += 1
        return self.turn_ended(request_id, t=t, ok=False)

    def turn_displaced(self, request_id: str, t: float) -> list[Decision]:
        """An admitted turn could not be forwarded, its node being gone: back to the pool, its wait kept."""
        found = self._find(request_id)
        if found is None:
            return []
        session, live = found
        state = self._state
        live.admitted_at = None
        live.generated = 0
        state.counters["turns_displaced"] += 1
        if session.running and session.node is not None:
            return self._after(admission.grow(state, session, t), t)
        state.release(session)
        state.opportunity = True  # its node may be gone, and its room with it, but others may have some
        state.touch(session, t)
        state.to_pool(session, t, since=live.arrived_at)
        return self._after([], t)

    # --- tools and sessions -----------------------------------------------------------------------

    def tool_changed(self, session_id: str, t: float) -> list[Decision]:
        """A tool of the session started, made progress or ended; the readiness source knows more."""
        state = self._state
        session = state.sessions.get(session_id)
        if session is None:
            return []
        session.tool_seen = True
        state.heard(session, t)
        if session.turns:
            return []
        out: list[Decision] = []
        if session.node is not None:
            session.enter(state.between_turns(session), t)
            out += boundary.weigh(state, session, t)
        state.watch_readiness(session, t)
        state.watch_long_tool(session, t)
        if state.refresh_returning(session, t) or out:
            return self._after(out, t)
        return self._wake([])

    def session_ended(self, session_id: str, t: float) -> list[Decision]:
        """The session is over. Turns of it that wait are answered at once, turns that run are served first."""
        state = self._state
        session = state.sessions.get(session_id)
        if session is None:
            return []
        out: list[Decision] = []
        for one in [session, *(state.sessions[branch] for branch in sorted(session.branches))]:
            one.final = True
            for live in one.pending:
                request_id = live.turn.request_id
                out.append(Refuse(request_id, session_id, RefuseReason.SESSION_ENDED, "the session has ended"))
                state.counters["refused.session_ended"] += 1
                del one.turns[request_id]
                state.requests.pop(request_id, None)
            out += boundary.settle_down(state, one, t)
        return self._after(out, t)

    # --- plans and time ---------------------------------------------------------------------------

    def snapshot(self, t: float) -> Snapshot | None:
        """What an asked solve works on; None if there is nothing left to decide."""
        return self._solving.snapshot(t)

    def plan_returned(self, snapshot_id: int, plan: Plan, t: float) -> list[Decision]:
        """A solve's plan: checked entry by entry against what is true now, then applied."""
        return self._wake(self._solving.returned(snapshot_id, plan, t))

    def solve_failed(self, snapshot_id: int | None, t: float) -> list[Decision]:
        """A solve gave no plan."""
        return self._wake(self._solving.failed(snapshot_id, t))

    def time_passes(self, t: float) -> list[Decision]:
        """Timers that have come due."""
        self._woken_at = None
        out: list[Decision] = []
        opportunity = False
        for due in self._state.timers.pop_due(t):
            decisions, restart = self._fire(due, t)
            out += decisions
            opportunity = opportunity or restart
        return self._after(out, t) if opportunity or out else self._wake(out)

    # --- questions --------------------------------------------------------------------------------

    def statistics(self, t: float, *, limit: int = 200) -> views.Statistics:
        """Nodes, sessions by state, the first ``limit`` of the waiting pool in its order, counters, the last plans."""
        return views.statistics(self._state, self._solving, t, limit=limit)

    @property
    def waiting(self) -> int:
        """How many sessions wait with a turn."""
        return len(self._state.waiting)

    def session_ids(self, limit: int) -> list[str]:
        """At most so many session ids: the waiting pool in its order, the paused, then the others, last heard first."""
        return views.session_ids(self._state, limit)

    def session_views(self, session_ids: Sequence[str], t: float) -> list[views.SessionView]:
        """Those of the sessions that are still known. Many at once cost less than one by one."""
        return views.session_views(self._state, session_ids, t)

    def choices(self, session_id: str, t: float) -> list[views.Choice]:
        """What each node would mean for a session."""
        session = self._state.sessions.get(session_id)
        return views.choices(self._state, session, t) if session is not None else []

    def explain(self, session_id: str, t: float) -> views.SessionView | None:
        """One session: its state, since when, its value on each node, and why it waits."""
        session = self._state.sessions.get(session_id)
        return views.session_view(self._state, session, t) if session is not None else None

    # --- inside -----------------------------------------------------------------------------------

    def _find(self, request_id: str) -> tuple[Session, LiveTurn] | None:
        session_id = self._state.requests.get(request_id)
        if session_id is None:
            return None
        session = self._state.sessions[session_id]
        return session, session.turns[request_id]

    def _fire(self, due: Due, t: float) -> tuple[list[Decision], bool]:
        """Act on a timer. Returns decisions, and whether this is a restart opportunity."""
        state = self._state
        if due.timer is Timer.SOLVE:
            since = self._solving.in_flight_since
            if since is not None and t - since >= self.policy.solve_timeout_s:
                return self._solving.failed(None, t), False
            return [], since is None
        if due.timer is Timer.SWEEP:
            self._sweeping = False
            planned = not state.opportunity and self._solving.in_flight_since is None
            out = conserving.place_passed_over(state, t) if planned else []  # what the sweep frees is for a plan
            return [*out, *housekeeping.sweep(state, t)], bool(state.sessions)
        session = state.sessions.get(due.session_id)
        if session is None:
            return [], False
        if due.timer is Timer.OVERDUE:
            pressing = overdue.look(state, session, t)
            state.opportunity = state.opportunity or pressing
            return [], pressing
        if due.timer is Timer.EARLY:
            return boundary.give_up_early(state, session, t), True
        if session.tool_epoch != due.epoch or session.turns:
            return [], False
        if due.timer is Timer.READINESS:
            state.watch_readiness(session, t)
            return [], state.refresh_returning(session, t)
        if session.node is None:
            return [], False
        return boundary.weigh(state, session, t), True

    def _after(self, out: list[Decision], t: float) -> list[Decision]:
        """Something changed: keep within bounds, and see whether the pool can be placed."""
        state = self._state
        if len(state.sessions) > self.policy.max_sessions:
            housekeeping.forget_oldest(state, t)
        if state.sessions and not self._sweeping:
            self._sweeping = True
            state.timers.set(t + SWEEP_S, Timer.SWEEP)
        return self._wake(out + self._solving.request(t))

    def _wake(self, out: list[Decision]) -> list[Decision]:
        """Tell the shell when to call :meth:`time_passes`, if that has changed."""
        at = self._state.timers.next_at
        if at is None or (self._woken_at is not None and self._woken_at <= at):
            return out
        self._woken_at = at
        return [*out, WakeAt(at)]
