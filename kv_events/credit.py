# SPDX-License-Identifier: Apache-2.0
"""How much of each session's KV cache is on each node, and how sure that still is. Pure: time is an argument.

DESIGN §4.1: credit(s, n) = resident_tokens(s, n) · 2^(-(t - t_obs) / h), halved while the node is stale.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from kv_events.chain import common
from kv_events.forest import Cuts
from kv_events.index import BlockIndex
from kv_events.types import NodeId
from kv_events.wire import DEVICE

Chain = Mapping[int, Sequence[int]]
"""A prompt's sequence hashes for each block size in use."""

_GONE: Final = 2.0**-40


class CreditTable:
    """Decayed credit per (session, node).

    Nothing is kept per pair but the time a session last ran on a node: the resident prefix is looked up in the
    index when it is asked for, which takes microseconds and is never out of date.

    Args:
        index: where the blocks are.
        half_life_s: h, in seconds.
        tier_factors: what a token of a lower tier is worth, e.g. ``{"host_pinned": 0.5}``; tiers not named: 0.
        stale_discount: what the credits of a stale node are multiplied with.
        max_sessions: sessions kept; beyond it the one not heard of for longest is forgotten.
        max_nodes_per_session: nodes per session whose last run is remembered.
    """

    def __init__(
        self,
        index: BlockIndex,
        *,
        half_life_s: float = 10.0,
        tier_factors: Mapping[str, float] | None = None,
        stale_discount: float = 0.5,
        max_sessions: int = 100_000,
        max_nodes_per_session: int = 8,
    ) -> None:
        self._index = index
        self._half_life = half_life_s
        factors = {tier: factor for tier, factor in (tier_factors or {}).items() if factor > 0}
        self._factors = {DEVICE: 1.0, **factors}
        self._lower = tuple(sorted(factors, key=lambda tier: -factors[tier]))
        self._stale_discount = stale_discount
        self._max_sessions = max_sessions
        self._max_runs = max_nodes_per_session
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._approximate: set[NodeId] = set()
        self.forgotten = 0
        """Sessions that had to go because there were too many."""

    def __len__(self) -> int:
        """Sessions kept."""
        return len(self._sessions)

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._sessions

    def turn(self, session_id: str, hashes: Chain, t: float) -> None:  # noqa: ARG002 - a turn is no evidence
        """Take in the prompt of a session's new turn.

        Args:
            session_id: the session.
            hashes: for each block size in use the sequence hashes of the whole prompt. An ``array("Q")``, as
                ``TokenChain.hashes`` is one, is kept as it is and may grow; anything else is copied.
            t: seconds.
        """
        session = self._session(session_id)
        for size, chain in hashes.items():
            old = session.chains.get(size)
            new = chain if isinstance(chain, array) else array("Q", chain)
            if old is not None and old is not new:
                kept = common(old, new)
                if kept < len(old):
                    session.cut_back(size, kept)
            session.chains[size] = new
        for size in [size for size in session.chains if size not in hashes]:
            del session.chains[size]
            session.cuts.pop(size, None)

    def ran_on(self, session_id: str, node: NodeId, tokens: int, t: float) -> None:
        """Note that a turn of the session ran on a node and left ``tokens`` of context there."""
        runs = self._session(session_id).runs
        runs.pop(node, None)
        runs[node] = (t, tokens)
        if len(runs) > self._max_runs:
            del runs[next(iter(runs))]

    def resident(self, session_id: str) -> dict[NodeId, int]:
        """Return the tokens of the session on each node, undecayed; nodes with none are left out."""
        session = self._sessions.get(session_id)
        return {} if session is None else {node: tokens for node, tokens, _ in self._holdings(session)}

    def credits(self, session_id: str, t: float) -> dict[NodeId, int]:
        """Return the session's credit on each node at time ``t``, in whole tokens; zeros are left out."""
        session = self._sessions.get(session_id)
        found: dict[NodeId, int] = {}
        if session is None:
            return found
        for node, tokens, seen in self._holdings(session):
            credit = tokens * max(2.0 ** (-max(0.0, t - seen) / self._half_life), _GONE)
            if self._index.is_stale(node):
                credit *= self._stale_discount
            if credit >= 1.0:
                found[node] = int(credit)
        return found

    def forget(self, session_id: str) -> None:
        """Forget a session that has ended."""
        self._sessions.pop(session_id, None)

    def forget_node(self, node: NodeId) -> None:
        """Forget who ran on a node that has left."""
        self._approximate.discard(node)
        for session in self._sessions.values():
            session.runs.pop(node, None)

    def approximate(self, node: NodeId, on: bool = True) -> None:
        """Serve a node that publishes no events by what was last run on it."""
        (self._approximate.add if on else self._approximate.discard)(node)

    def _session(self, session_id: str) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = _Session()
            if len(self._sessions) > self._max_sessions:
                self._sessions.popitem(last=False)
                self.forgotten += 1
        else:
            self._sessions.move_to_end(session_id)
        return session

    def _holdings(self, session: _Session) -> list[tuple[NodeId, int, float]]:
        """Return (node, resident tokens, when last confirmed)."""
        index = self._index
        found: list[tuple[NodeId, int, float]] = []
        for size, chain in session.chains.items():
            cuts = index.cuts(chain, size, session.cuts.get(size, ()))
            session.cuts[size] = cuts
            prefixes = {node: blocks for blocks, node in index.expand(cuts)}
            if self._lower:
                prefixes = self._with_lower(size, prefixes)
            for node, blocks in prefixes.items():
                if node in self._approximate:
                    continue
                tokens = float(blocks * size)
                seen = index.stored_at(node, chain[blocks - 1]) if blocks else None
                if self._lower:
                    below = index.beyond(node, chain, blocks, self._lower)
                    tokens += size * sum(self._factors[tier] * count for tier, count in below.items())
                run = session.runs.get(node)
                if run is not None and (seen is None or run[0] > seen):
                    seen = run[0]
                if tokens >= 1 and seen is not None:
                    found.append((node, int(tokens), seen))
        for node in self._approximate & session.runs.keys():
            t, tokens_then = session.runs[node]
            found.append((node, tokens_then, t))
        return found

    def _with_lower(self, size: int, prefixes: dict[NodeId, int]) -> dict[NodeId, int]:
        """Add the nodes that may hold the chain in a lower tier only."""
        index = self._index
        for node in index.nodes:
            if node not in prefixes and index.block_size(node) == size and index.holds_any(node):
                prefixes[node] = 0
        return prefixes


class _Session:
    __slots__ = ("chains", "cuts", "runs")

    def __init__(self) -> None:
        self.chains: dict[int, array[int]] = {}
        self.cuts: dict[int, Cuts] = {}
        self.runs: dict[NodeId, tuple[float, int]] = {}

    def cut_back(self, size: int, blocks: int) -> None:
        """The history was rewritten behind so many blocks: what ran before is worth no more than that."""
        for node, (t, tokens) in self.runs.items():
            self.runs[node] = (t, min(tokens, blocks * size))
