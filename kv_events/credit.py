# SPDX-License-Identifier: Apache-2.0
"""How much of each session's KV cache is on each node, and how sure that still is. Pure: time is an argument.

DESIGN §4.1: credit(s, n) = resident_tokens(s, n) · 2^(-(t - t_obs) / h), halved while the node is stale.
"""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from kv_events.chain import common
from kv_events.index import BlockIndex, Node
from kv_events.types import NodeId
from kv_events.wire import DEVICE

Holdings = dict[Node, tuple[int, float]]
"""Per node the resident tokens, and when a stored event of them last came."""

Chain = Mapping[int, Sequence[int]]
"""A prompt's sequence hashes for each block size in use."""


class CreditTable:
    """Decayed credit per (session, node).

    The resident prefix is looked up in the index when it is asked for, and only for the nodes of which something has
    changed since: so it takes microseconds and is never out of date. Only pairs that are not zero are kept.

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
        self._factors = {DEVICE: 1.0}
        self._lower: tuple[str, ...] = ()
        self._stale_discount = stale_discount
        self._max_sessions = max_sessions
        self._max_runs = max_nodes_per_session
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._approximate: set[NodeId] = set()
        self.forgotten = 0
        """Sessions that had to go because there were too many."""
        self.on_forget: Callable[[str], None] = lambda _session_id: None
        """Hears of each session that :meth:`forget` is told of, so that who keeps more of it can let it go as well."""
        for tier, factor in (tier_factors or {}).items():
            self.value_tier(tier, factor)

    def __len__(self) -> int:
        """Sessions kept."""
        return len(self._sessions)

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._sessions

    def value_tier(self, tier: str, factor: float) -> None:
        """Count a token of a lower tier with ``factor`` from now on, 0 for not at all.

        A look-up takes longer where lower tiers count, so name one only where a worker has it.
        """
        if factor == self._factors.get(tier, 0.0):
            return
        self._factors[tier] = factor
        lower = [name for name, worth in self._factors.items() if worth > 0 and name != DEVICE]
        self._lower = tuple(sorted(lower, key=lambda name: -self._factors[name]))
        for session in self._sessions.values():
            session.version = -1

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
            if old is not new:
                kept = 0 if old is None else common(old, new)
                if old is None or kept < len(old):
                    session.cut_back(size, kept)
                session.chains[size] = new
        for size in [size for size in session.chains if size not in hashes]:
            del session.chains[size]
            session.version = -1

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
        if session is None:
            return {}
        found = {node.id: tokens for node, (tokens, _) in self._holdings(session).items()}
        for approximate in self._approximate:
            found.pop(approximate, None)
            if approximate in session.runs and session.runs[approximate][1] > 0:
                found[approximate] = session.runs[approximate][1]
        return found

    def credits(self, session_id: str, t: float) -> dict[NodeId, int]:
        """Return the session's credit on each node at time ``t``, in whole tokens; zeros are left out."""
        session = self._sessions.get(session_id)
        found: dict[NodeId, int] = {}
        if session is None:
            return found
        runs = session.runs
        rate, discount = -1.0 / self._half_life, self._stale_discount
        for node, (tokens, announced) in self._holdings(session).items():
            seen = max(announced, runs[node.id][0]) if node.id in runs else announced
            credit = tokens * 2.0 ** ((t - seen) * rate) if t > seen else float(tokens)
            if node.stale:
                credit *= discount
            if credit >= 1.0:
                found[node.id] = int(credit)
        for approximate in self._approximate:
            found.pop(approximate, None)
            if approximate in runs:
                seen, tokens = runs[approximate]
                credit = tokens * 2.0 ** (max(0.0, t - seen) * rate)
                if credit >= 1.0:
                    found[approximate] = int(credit)
        return found

    def forget(self, session_id: str) -> None:
        """Forget a session that has ended."""
        self._sessions.pop(session_id, None)
        self.on_forget(session_id)

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

    def _holdings(self, session: _Session) -> Holdings:
        """Return what the session has on each node. Only nodes of which something has changed are looked up."""
        index = self._index
        if session.version == index.version and not session.grown():
            return session.held
        held = session.held
        changed = None if self._lower or session.version < 0 else index.changed_since(session.version)
        among = 0
        if changed is None:
            held.clear()
            among = -1
        else:
            for node in changed:
                held.pop(node, None)
                among |= node.bit
        for size, chain in session.chains.items():
            asked = among | session.ends(size)
            for blocks, mask, run in index.cuts(chain, size, asked) if asked else ():
                tokens = blocks * size
                if run.times:
                    held.update((node, (tokens, run.seen(node.bit))) for node in index.members(mask))
                else:
                    held.update(dict.fromkeys(index.members(mask), (tokens, run.t)))
            session.lengths[size] = len(chain)
            if self._lower:
                self._look_below(held, size, chain)
        session.version = index.version
        return held

    def _look_below(self, held: Holdings, size: int, chain: Sequence[int]) -> None:
        """Add how the prefix goes on in lower tiers. Of those it is not kept when they were announced."""
        for node in self._index.members(self._index.sized(size)):
            tokens, seen = held.get(node, (0, -math.inf))
            below = self._index.beyond(node.id, chain, tokens // size, self._lower)
            more = sum(self._factors[tier] * blocks for tier, blocks in below.items())
            if more:
                held[node] = (tokens + int(size * more), seen)


class _Session:
    __slots__ = ("chains", "held", "lengths", "runs", "version")

    def __init__(self) -> None:
        self.chains: dict[int, array[int]] = {}
        self.lengths: dict[int, int] = {}
        self.runs: dict[NodeId, tuple[float, int]] = {}
        self.held: Holdings = {}
        self.version = -1
        """The index's version that ``held`` was right at; -1: start again."""

    def grown(self) -> bool:
        """Whether a chain is longer than when ``held`` was last looked up."""
        return any(len(chain) != self.lengths.get(size) for size, chain in self.chains.items())

    def ends(self, size: int) -> int:
        """Return the nodes that held the whole of a chain before it grew."""
        before = self.lengths.get(size, 0)
        nodes = 0
        if before != len(self.chains[size]):
            for node, (tokens, _) in self.held.items():
                if tokens == before * size and node.block_size == size:
                    nodes |= node.bit
        return nodes

    def cut_back(self, size: int, blocks: int) -> None:
        """The history was rewritten behind so many blocks: what ran before is worth no more than that."""
        self.version = -1
        if size in self.chains:
            for node, (t, tokens) in self.runs.items():
                self.runs[node] = (t, min(tokens, blocks * size))
