# SPDX-License-Identifier: Apache-2.0
"""Which marks are in force: by how crowded the devices are, or for a host tier that holds whoever waits (DESIGN §4.9).

While the contexts of all sessions fit the devices, new room is given up to the pause mark: what is in the way then is
how the sessions are spread, and waiting for room would cost more than the few blocks that are evicted. Beyond that the
admission mark leaves the growth of the running its room.

Where the nodes' host memory holds the KV cache of the sessions that have no room on a device, giving room away costs a
load from there and not a prompt computed anew. Then a session in a tool call weighs nothing, and admission goes up to
the whole node. It pays well before the tier holds them all (docs/scheduler.md has the figures).
"""

from __future__ import annotations

from tao_dynamo.core import pausing
from tao_dynamo.core.decisions import Decision
from tao_dynamo.core.state import State

STILL_CROWDED = 0.9
"""Of :attr:`Policy.crowded_at`: below this part of it the nodes are crowded no more."""
ENOUGH, STILL_ENOUGH = 0.5, 0.4
"""Share of what does not fit the devices that the tier must hold to be counted on, and to go on being so."""


def choose(state: State, t: float) -> list[Decision]:
    """Put in force the marks that fit what is there now; where sessions weigh more by them, some are paused."""
    wanted = state.policy.host_tier
    if wanted == "auto":
        host = sum(room.host_tokens for room in state.rooms.values())
        beyond = state.contexts - state.rooms.total
        in_force = host > 0 and host >= beyond * (STILL_ENOUGH if state.host_tier else ENOUGH)
    else:
        in_force = wanted == "on"
    mark = 1.0 if in_force else _admission_mark(state)
    state.opportunity = state.opportunity or mark > state.rooms.mark
    state.rooms.mark = mark
    if in_force == state.host_tier:
        return []
    state.host_tier = in_force
    state.opportunity = True
    state.counters["host_tier_switched"] += 1
    for session in state.sessions.values():
        if session.node is not None and not session.turns:
            state.hold(session, session.node)
    return [decision for node in list(state.rooms) for decision in pausing.relieve(state, node, t)]


def _admission_mark(state: State) -> float:
    policy = state.policy
    if policy.admission_mark >= policy.pause_mark:
        return policy.admission_mark
    crowded_at = policy.crowded_at * (STILL_CROWDED if state.rooms.mark == policy.admission_mark else 1.0)
    return policy.admission_mark if state.contexts >= crowded_at * state.rooms.total else policy.pause_mark
