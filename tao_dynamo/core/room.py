# SPDX-License-Identifier: Apache-2.0
"""The room of one node: who holds how much of it, each shared prefix counted once."""

from __future__ import annotations

from collections import Counter
from collections.abc import KeysView, Sequence
from dataclasses import dataclass

from kv_events.types import NodeId
from tao_dynamo.core.prefill import PrefillRate
from tao_dynamo.core.prefixes import SharedPrefix


@dataclass(frozen=True, slots=True)
class Holding:
    """What one session holds on a node: tokens of its own, and the prefix it shares."""

    own: int
    prefix: SharedPrefix | None


class Room:
    """Reserved tokens of one node. Never negative: a holding is released exactly once.

    Args:
        node: whose room this is; ``name`` is its text, which the solver knows it by.
        capacity: KV-cache capacity in tokens; what is not a whole block of it is of no use.
        block_size: tokens per block (page) of the engine; every holding takes whole ones.
        host_tokens: capacity of the host tier in tokens, 0 without one.
        touched: gets this node's name with every change of what it may still give.
    """

    def __init__(
        self, node: NodeId, capacity: int, block_size: int, host_tokens: int = 0, touched: set[NodeId] | None = None
    ) -> None:
        self.node = node
        self.name = str(node)
        self.capacity = capacity // block_size * block_size
        self.block_size = block_size
        self.host_tokens = host_tokens
        self.stale = False
        self.generation = 0
        self.foreign = 0
        self.prefill = PrefillRate()
        self.claims: dict[str, int] = {}
        self._holdings: dict[str, Holding] = {}
        self._prefixes: dict[int, tuple[int, int]] = {}
        self._live: set[str] = set()
        self._own = 0
        self._shared = 0
        self._touched = touched if touched is not None else set()

    @property
    def reserved(self) -> int:
        """Tokens held by sessions and guests of this router."""
        return self._own + self._shared

    @property
    def used(self) -> int:
        """Tokens held, load that is not ours included."""
        return self._own + self._shared + self.foreign

    @property
    def idle(self) -> bool:
        """Whether nothing is held here and nothing kept free."""
        return not (self.claims or self._own or self._shared or self.foreign)

    @property
    def runs(self) -> bool:
        """Whether a turn runs here, or load that is not ours."""
        return bool(self._live or self.foreign)

    @property
    def at_rest(self) -> bool:
        """Whether room is held here and nothing runs, nor is kept free for what will."""
        return bool(self._holdings) and not (self.runs or self.claims)

    @property
    def claimed(self) -> int:
        """Tokens kept free for overdue sessions."""
        return sum(self.claims.values())

    @property
    def holders(self) -> tuple[str, ...]:
        """Ids of the sessions that hold room here."""
        return tuple(self._holdings)

    def resize(self, capacity: int, block_size: int, host_tokens: int) -> None:
        """The node tells other sizes than before."""
        self.capacity = capacity // block_size * block_size
        self.block_size, self.host_tokens = block_size, host_tokens
        self._touched.add(self.node)

    def load(self, foreign: int) -> None:
        """So many tokens on the node are not ours."""
        self.foreign = foreign
        self._touched.add(self.node)

    def claim(self, session_id: str, tokens: int) -> None:
        """Keep so many tokens free for an overdue session."""
        self.claims[session_id] = tokens
        self._touched.add(self.node)

    def unclaim(self, session_id: str) -> None:
        """Keep nothing free for this session any more."""
        self.claims.pop(session_id, None)
        self._touched.add(self.node)

    def residual(self, mark: float) -> int:
        """Tokens that may still be given up to ``mark`` (a share of the capacity)."""
        claimed = self.claimed if self.claims else 0
        return max(0, int(self.capacity * mark) - self._own - self._shared - self.foreign - claimed)

    def whole(self, tokens: int) -> int:
        """Tokens of the whole blocks that hold so many."""
        return -(-tokens // self.block_size) * self.block_size

    @property
    def prefixes(self) -> KeysView[int]:
        """Keys of the prefixes that holders pay for."""
        return self._prefixes.keys()

    def has_prefix(self, key: int) -> bool:
        """Whether a holder already pays for this prefix."""
        return key in self._prefixes

    def sharers(self, key: int) -> int:
        """How many holders share this prefix."""
        return self._prefixes[key][0] if key in self._prefixes else 0

    def added(self, tokens: int, prefix: SharedPrefix | None) -> int:
        """What a session of ``tokens`` would add here."""
        if prefix is None:
            return self.whole(tokens)
        own = self.whole(max(0, tokens - prefix.tokens))
        return own if prefix.key in self._prefixes else own + self.whole(prefix.tokens)

    def held_by(self, session_id: str) -> int:
        """Tokens of its own that a session holds here; 0 if it holds none."""
        holding = self._holdings.get(session_id)
        return holding.own if holding else 0

    def raised_by(self, session_id: str, own: int, prefix: SharedPrefix | None) -> int:
        """Tokens by which :meth:`hold` would raise what is used; below 0 where it would free some."""
        before = self._holdings.get(session_id)
        held, old = (before.own, before.prefix) if before is not None else (0, None)
        raised = self.whole(own) - held
        if old is not None and (prefix is None or prefix.key != old.key) and self._prefixes[old.key][0] == 1:
            raised -= self._prefixes[old.key][1]
        if prefix is not None and prefix.key not in self._prefixes:
            raised += self.whole(prefix.tokens)
        return raised

    def hold(self, session_id: str, own: int, prefix: SharedPrefix | None, *, live: bool) -> None:
        """Reserve, or change what is reserved: the blocks of ``own`` tokens beside the shared prefix.

        ``live``: whether a turn of the session runs.
        """
        own = self.whole(own)
        self._set_live(session_id, live)
        before = self._holdings.get(session_id)
        if before is not None:
            if before.own == own and before.prefix == prefix:
                return
            self._drop(before)
        self._holdings[session_id] = Holding(own, prefix)
        self._own += own
        self._touched.add(self.node)
        if prefix is not None:
            count, tokens = self._prefixes.get(prefix.key, (0, self.whole(prefix.tokens)))
            self._prefixes[prefix.key] = (count + 1, tokens)
            if count == 0:
                self._shared += tokens

    def release(self, session_id: str) -> int:
        """Give a session's room back. Returns the tokens freed; 0 if it held none."""
        holding = self._holdings.pop(session_id, None)
        if holding is None:
            return 0
        before = self.reserved
        self._set_live(session_id, False)
        self._drop(holding)
        return before - self.reserved

    def prefix_of(self, session_id: str) -> SharedPrefix | None:
        """The shared prefix that a session pays a part of here."""
        holding = self._holdings.get(session_id)
        return holding.prefix if holding else None

    def freed_by(self, session_id: str) -> int:
        """Tokens that releasing this session would free."""
        holding = self._holdings.get(session_id)
        if holding is None:
            return 0
        alone = holding.prefix is not None and self._prefixes[holding.prefix.key][0] == 1
        return holding.own + (self._prefixes[holding.prefix.key][1] if alone and holding.prefix else 0)

    def freed_by_all(self, session_ids: Sequence[str]) -> tuple[int, dict[int, int]]:
        """Tokens of their own that releasing these sessions would free, and the prefixes with theirs."""
        held = [self._holdings[session_id] for session_id in session_ids]
        sharers = Counter(holding.prefix.key for holding in held if holding.prefix is not None)
        prefixes = {key: self._prefixes[key][1] for key, n in sharers.items() if n == self._prefixes[key][0]}
        return sum(holding.own for holding in held), prefixes

    def _set_live(self, session_id: str, live: bool) -> None:
        if live != (session_id in self._live):
            (self._live.add if live else self._live.discard)(session_id)
            self._touched.add(self.node)

    def _drop(self, holding: Holding) -> None:
        self._touched.add(self.node)
        self._own -= holding.own
        if holding.prefix is None:
            return
        count, tokens = self._prefixes[holding.prefix.key]
        if count == 1:
            del self._prefixes[holding.prefix.key]
            self._shared -= tokens
        else:
            self._prefixes[holding.prefix.key] = (count - 1, tokens)
