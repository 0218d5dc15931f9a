# SPDX-License-Identifier: Apache-2.0
"""TAO: the live router's own core, driven by simulated events.

Rule: a session holds room on a node from its first turn on. Above a pause mark, sessions in a tool call give theirs up,
least valuable first. Room is given up to an admission mark to those of the waiting sessions, and on those nodes, that
make (KV-cache credit, readiness, footprint) lexicographically greatest; an exact solver finds them. Long waits go
first, within a share of the room. Where nothing runs, sessions in tools that outlast the recomputation of their cache
make way.
Source: ``tao_dynamo.core``, the very code of the live router; its constants are in ``tao_dynamo.core.policy``.
Parameters: admission mark 0.85 (0.95 while all contexts fit), pause mark 0.95, target 0.80, half-life of credit 10 s,
horizon 1 s, waiting bound 60 s with a share of 5 % of the room. A solve takes 5 ms of virtual time, so that a run
follows from its seed alone.
Variants: ``tao-paper`` is the paper's own policy with nothing of ours; each other ``tao-*`` changes one thing, see
``ABLATIONS``.
Good when: there are more sessions than room and a lost cache costs something. While everything fits it does what a
balanced KV router does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

from benchmarks.policies.base import Action, Demote, Plain, Refuse, Request, Send, Site, Wake
from benchmarks.policies.tao_signals import Blind, Credit, Oracle
from kv_events.types import NodeId
from solver import solve
from tao_dynamo.core import decisions
from tao_dynamo.core.policy import DEFAULT, PAPER, Policy
from tao_dynamo.core.scheduler import Scheduler
from tao_dynamo.core.turn import Turn
from tool_hooks.predictor import Predictor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.metrics import Figures
    from solver.problem import Plan, Problem
    from tao_dynamo.core.seams import ReadinessSource

SOLVE_S = 0.005
"""What a solve takes in virtual time: the median of the live planner's, its process hop included."""

HASH_BLOCK = 64
"""Tokens a block of the made-up hashes: the core samples every fourth one."""

FOR_EVER = 1e12
"""Seconds: a bound or half-life of this is none."""


@dataclass(frozen=True, slots=True)
class Variant:
    """TAO with one thing changed.

    ``oracle`` knows when every tool returns. ``demote`` tells the engine to evict paused and ended sessions first,
    for which stock engines have no call.
    """

    policy: Policy = DEFAULT
    credit: bool = True
    readiness: bool = True
    oracle: bool = False
    demote: bool = False


def _variant(**changes: object) -> Variant:
    return Variant(replace(DEFAULT, **changes))  # type: ignore[arg-type]


ABLATIONS: dict[str, Variant] = {
    "tao": Variant(),
    "tao-paper": Variant(PAPER),
    "tao-no-credit": Variant(credit=False),
    "tao-no-decay": _variant(credit_half_life_s=FOR_EVER),
    "tao-no-readiness": Variant(readiness=False),
    "tao-smallest-pause": _variant(pause_order="smallest-first"),
    "tao-oldest-first": _variant(pause_order="oldest-first"),
    "tao-bfd": _variant(solver="bfd"),
    "tao-short-first": _variant(solver="short-first"),
    "tao-no-shared": _variant(shared_prefixes=False),
    "tao-no-bound": _variant(waiting_bound_s=FOR_EVER),
    "tao-no-balance": _variant(balance=False),
    "tao-one-mark": _variant(admission_mark=DEFAULT.pause_mark),
    "tao-always-two-marks": _variant(crowded_at=0.0),
    "tao-no-conserving": _variant(work_conserving=False),
    "tao-no-long-tool": _variant(long_tool_factor=1.0),
    "tao-no-host-tier": _variant(host_tier="off"),
    "tao-oracle-tools": Variant(oracle=True),
    "tao-demote": Variant(demote=True),
}


class Tao(Plain):
    """See the module."""

    def __init__(self, site: Site, variant: Variant, seed: int) -> None:
        super().__init__(site)
        self.reports = True
        policy = variant.policy
        self._policy = policy
        self._ids = [NodeId(i + 1, 0) for i in self.nodes]
        self._credit = Credit(policy.credit_half_life_s, on=variant.credit, host_worth=policy.host_credit)
        self._predictor = Predictor(policy.predictor, horizon_s=policy.horizon_s, refresh_s=policy.refresh_s)
        self._demote = variant.demote
        self._homes: dict[str, int] = {}
        readiness: ReadinessSource = self._predictor if variant.readiness else Blind()
        if variant.oracle:
            readiness = Oracle(site, policy.horizon_s)
        self._core = Scheduler(policy, credit=self._credit, readiness=readiness, seed=seed)
        for node in self._ids:
            self._core.node_joined(
                node,
                capacity_tokens=site.setup.capacity_tokens,
                block_size=site.setup.block_size,
                t=0.0,
                host_tokens=site.setup.host_tokens,
            )
        self._plans: list[tuple[float, int, Plan]] = []
        self._told: dict[str, int] = {}
        self._pauses = 0
        self._paused_s: list[float] = []
        self._solve_s: list[float] = []
        self._optimal = 0

    def turn_arrived(self, request: Request, t: float) -> list[Action]:
        """Hand the turn to the core."""
        chain = request.chain
        if request.session is not None:
            self._predictor.resumed(request.session, t)
            self._credit.shared_by(request.session, chain.shared_key, chain.shared_tokens)
        self._told[request.request_id] = 0
        overlap = self.site.overlap(chain) if request.session is None else {}
        turn = Turn(
            request_id=request.request_id,
            session_id=request.session,
            prompt_tokens=request.prompt,
            hashes=_hashes(request),
            block_size=HASH_BLOCK,
            final=request.final,
            overlap={self._ids[node]: tokens for node, tokens in overlap.items()},
        )
        return self._carry_out(self._core.turn_arrived(turn, t), t)

    def first_token(self, request_id: str, t: float) -> list[Action]:
        """Tell the core."""
        return self._carry_out(self._core.first_token(request_id, t), t)

    def progress(self, request_id: str, tokens: int, t: float) -> list[Action]:
        """Tell the core how far the answer is."""
        new = tokens - self._told[request_id]
        self._told[request_id] = tokens
        return self._carry_out(self._core.tokens(request_id, new, t), t)

    def turn_ended(self, request_id: str, *, cached: int, output: int, t: float) -> list[Action]:
        """Tell the core."""
        del self._told[request_id]
        ended = self._core.turn_ended(request_id, t=t, cached_tokens=cached, output_tokens=output)
        return self._carry_out(ended, t)

    def tool_started(self, session: str, call_id: str, key: str | None, t: float) -> list[Action]:
        """Tell the predictor, then the core."""
        self._predictor.started(session, call_id, key, t)
        return self._carry_out(self._core.tool_changed(session, t), t)

    def tool_ended(self, session: str, call_id: str, duration_s: float, t: float) -> list[Action]:
        """Tell the predictor, then the core."""
        self._predictor.ended(session, call_id, t, duration_s=duration_s)
        return self._carry_out(self._core.tool_changed(session, t), t)

    def session_ended(self, session: str, t: float) -> list[Action]:
        """Tell the core, where the last turn has not done so."""
        home = self._homes.pop(session, None)
        gone: list[Action] = [Demote(session, home)] if self._demote and home is not None else []
        return gone + self._carry_out(self._core.session_ended(session, t), t)

    def host_changed(self, node: int, changes: Mapping[str, int]) -> None:
        """Keep the credit's evidence."""
        self._credit.host_changed(self._ids[node], changes)

    def cache_changed(self, node: int, changes: Mapping[str, int], t: float) -> list[Action]:
        """Keep the credit's evidence."""
        self._credit.changed(self._ids[node], changes, t)
        return []

    def time_passes(self, t: float) -> list[Action]:
        """Plans that are back, then the core's timers."""
        out: list[decisions.Decision] = []
        due = [plan for plan in self._plans if plan[0] <= t]
        self._plans = [plan for plan in self._plans if plan[0] > t]
        for _, snapshot_id, plan in due:
            out += self._core.plan_returned(snapshot_id, plan, t)
        return self._carry_out([*out, *self._core.time_passes(t)], t)

    def figures(self) -> Figures:
        """Pauses, restarts, solves and how many of them were proven optimal."""
        solves = len(self._solve_s)
        waits = self._paused_s
        return {
            "pauses": self._pauses,
            "restarts": len(waits),
            "pause_wait_mean_s": sum(waits) / len(waits) if waits else None,
            "solves": solves,
            "solve_mean_ms": 1000 * sum(self._solve_s) / solves if solves else None,
            "optimal_share": self._optimal / solves if solves else None,
        }

    def _carry_out(self, wanted: Sequence[decisions.Decision], t: float) -> list[Action]:
        out: list[Action] = []
        for decision in wanted:
            if isinstance(decision, decisions.Admit):
                node = decision.node.worker_id - 1
                out.append(Send(decision.request_id, node))
                if decision.session_id is not None:
                    self._homes[decision.session_id] = node
            elif isinstance(decision, decisions.Refuse):
                self._told.pop(decision.request_id, None)
                out.append(Refuse(decision.request_id, decision.text))
            elif isinstance(decision, decisions.WakeAt):
                out.append(Wake(decision.at))
            elif isinstance(decision, decisions.Pause):
                self._pauses += 1
                if self._demote:
                    out.append(Demote(decision.session_id, decision.node.worker_id - 1))
            elif isinstance(decision, decisions.Restart):
                self._paused_s.append(decision.paused_s)
            else:
                self._solve(t)
                if self._plans:
                    out.append(Wake(self._plans[-1][0]))
        return out

    def _solve(self, t: float) -> None:
        snapshot = self._core.snapshot(t)
        if snapshot is None:
            return
        plan = self.make_plan(snapshot.problem)
        self._solve_s.append(plan.seconds)
        self._optimal += plan.optimal
        self._plans.append((t + SOLVE_S, snapshot.id, plan))

    def make_plan(self, problem: Problem) -> Plan:
        """Solve a snapshot."""
        return solve(problem, method=self._policy.solver, budget_ms=self._policy.solve_budget_ms)


def _hashes(request: Request) -> tuple[int, ...]:
    """Made-up hashes of the prompt's first blocks: the shared prompt's, and a few of the session's own."""
    shared = request.chain.shared_tokens // HASH_BLOCK
    own = max(0, min(4, request.prompt // HASH_BLOCK - shared))
    return _blocks(request.chain.shared_key, shared) + _blocks(request.chain.session, own)


@lru_cache(maxsize=4096)
def _blocks(key: str, count: int) -> tuple[int, ...]:
    # Python's own hash of a string differs from run to run.
    return tuple(int.from_bytes(blake2b(f"{key}/{i}".encode(), digest_size=8).digest(), "little") for i in range(count))
