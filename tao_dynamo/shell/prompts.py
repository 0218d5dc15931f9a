# SPDX-License-Identifier: Apache-2.0
"""What a request says of itself: its session, its hints, and the names of its prompt's blocks."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kv_events.chain import TokenChain


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, as far as TAO reads it. ``blocks_known`` is False where media make block hashes unknowable.

    ``least_output``: tokens that it will produce whatever the model says.
    """

    session_id: str | None
    parent_session_id: str | None
    final: bool
    tokens: list[int]
    max_tokens: int | None
    expected_output: int | None
    least_output: int
    priority: int
    strict_priority: int
    lora: str | None
    salt: str | None
    blocks_known: bool


def read_request(request: Mapping[str, Any]) -> Ask:
    """Read Dynamo's preprocessed request; what is missing or of a wrong type counts as not given."""
    agent = _mapping(request.get("agent_context"))
    routing = _mapping(request.get("routing"))
    session = agent.get("session_id")
    parent = agent.get("parent_session_id")
    stop = _mapping(request.get("stop_conditions"))
    max_tokens = _whole(stop.get("max_tokens"))
    least = max_tokens if stop.get("ignore_eos") is True and not stop.get("stop") else _whole(stop.get("min_tokens"))
    expected = _whole(routing.get("expected_output_tokens"))
    if expected is not None and max_tokens is not None:
        expected = min(expected, max_tokens)
    tokens = request.get("token_ids")
    return Ask(
        session_id=session if isinstance(session, str) and session else None,
        parent_session_id=parent if isinstance(parent, str) and parent else None,
        final=agent.get("session_final") is True,
        tokens=tokens if isinstance(tokens, list) else list(tokens or ()),
        max_tokens=max_tokens,
        expected_output=expected,
        least_output=least or 0,
        priority=_whole(routing.get("priority")) or 0,
        strict_priority=_whole(routing.get("strict_priority")) or 0,
        lora=_text(routing.get("lora_name")),
        salt=_text(routing.get("cache_salt")),
        blocks_known=not (request.get("multi_modal_data") or request.get("mm_routing_info")),
    )


class Prompts:
    """The block chains of the sessions' prompts, one per block size in use; only what is new is hashed.

    Args:
        max_sessions: beyond it the session not heard of for longest is forgotten.
    """

    def __init__(self, max_sessions: int = 100_000) -> None:
        self._max = max_sessions
        self._chains: OrderedDict[tuple[str, str | None, str | None], dict[int, TokenChain]] = OrderedDict()
        self._named: dict[str, set[tuple[str, str | None, str | None]]] = {}

    def __len__(self) -> int:
        return len(self._chains)

    def take(self, session_id: str, ask: Ask, sizes: Collection[int]) -> dict[int, array[int]]:
        """Return the sequence hashes of the session's new prompt for each block size."""
        key = (session_id, ask.lora, ask.salt)
        chains = self._chains.get(key)
        if chains is None:
            chains = self._chains[key] = {}
            self._named.setdefault(session_id, set()).add(key)
            if len(self._chains) > self._max:
                self._drop(next(iter(self._chains)))
        else:
            self._chains.move_to_end(key)
        for size in [size for size in chains if size not in sizes]:
            del chains[size]
        for size in sizes:
            if size not in chains:
                chains[size] = TokenChain(size, salt=ask.salt, lora=ask.lora)
            chains[size].update(ask.tokens)
        return {size: chain.hashes for size, chain in chains.items()}

    def forget(self, session_id: str) -> None:
        """Forget a session that has ended."""
        for key in self._named.pop(session_id, ()):
            self._chains.pop(key, None)

    def _drop(self, key: tuple[str, str | None, str | None]) -> None:
        del self._chains[key]
        named = self._named[key[0]]
        named.discard(key)
        if not named:
            del self._named[key[0]]


def guest_hashes(ask: Ask, sizes: Collection[int]) -> dict[int, array[int]]:
    """Return the sequence hashes of a prompt that belongs to no session, for each block size."""
    found: dict[int, array[int]] = {}
    for size in sizes:
        chain = TokenChain(size, salt=ask.salt, lora=ask.lora)
        chain.update(ask.tokens)
        found[size] = chain.hashes
    return found


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
