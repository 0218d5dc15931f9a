# SPDX-License-Identifier: Apache-2.0
"""How much of what an engine has in use is our own sessions'; the rest is load that is not ours."""

from __future__ import annotations

from tao_dynamo.core.room import Room
from tao_dynamo.core.state import State


def of_ours(state: State, room: Room) -> int:
    """Tokens on a node that our running turns have in use by now.

    Their contexts, each rounded up to whole blocks and a shared prefix counted once, as the engine has it. What is only
    reserved for tokens to come is not in use yet. Of requests without a session it is what they hold.
    """
    tokens = 0
    prefixes: dict[int, int] = {}
    for holder in room.holders:
        session = state.sessions.get(holder)
        if session is None:
            tokens += room.held_by(holder)
            continue
        prefix = room.prefix_of(holder)
        for live in session.turns.values():
            if live.admitted_at is None:
                continue
            tokens += (live.context // room.block_size + 1) * room.block_size
            if prefix is not None:
                tokens -= min(prefix.tokens, live.context)
                prefixes[prefix.key] = prefix.tokens
    return tokens + sum(prefixes.values())
