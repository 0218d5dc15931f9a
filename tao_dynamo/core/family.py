# SPDX-License-Identifier: Apache-2.0
"""Sub-agents: a session that starts others, and waits for them as it would for a tool.

A child begins with its parent's prompt, so before its own first turn has run it prefers the nodes where that is. A
burst of siblings would all want the parent's node; each node draws its even share of them, and two at least.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kv_events.types import NodeId
from tao_dynamo.core.session import Session

if TYPE_CHECKING:
    from tao_dynamo.core.state import State

LEAST_DRAWN = 2

Promised = Mapping[tuple[str, NodeId], int]
"""How many children of a parent a snapshot has already drawn to a node."""


def waits_for_children(session: Session) -> bool:
    """Whether a session between turns waits for sub-agents: one of them has been heard of since its last turn."""
    return bool(session.children) and session.child_heard_at >= session.turn_ended_at


def inherited(state: State, session: Session, t: float, promised: Promised | None = None) -> dict[NodeId, int]:
    """Credit of a child whose first turn has not run yet: what of its parent's prompt is on each node, in tokens.

    Nothing on a node that has its share of the siblings already.
    """
    if session.parent is None or session.footprint:
        return {}
    parent = state.sessions.get(session.parent)
    if parent is None:
        return {}
    common = state.prefixes.common(parent.index, session.index)
    if not common:
        return {}
    drawn = max(LEAST_DRAWN, -(-len(parent.children) // max(1, len(state.rooms))))
    taken = promised or Counter()
    return {
        node: min(tokens, common)
        for node, tokens in state.credit.credits(parent.id, t).items()
        if node in state.rooms and parent.children_on.get(node, 0) + taken.get((parent.id, node), 0) < drawn
    }
