# SPDX-License-Identifier: Apache-2.0
"""Which marks are in force: the device's alone, or those for a host tier that holds whoever waits (DESIGN §4.9).

Where the nodes' host memory holds the KV cache of every session that has no room on a device, giving room away costs a
load from there and not a prompt computed anew. Then a session in a tool call weighs nothing, and admission goes up to
the whole node.
"""

from __future__ import annotations

from tao_dynamo.core.state import State

SLACK = 1.1
"""Once in force, the tier may be overfull by this factor before it no longer is, so that the marks do not flap."""


def choose(state: State) -> None:
    """Put in force the marks that fit what is there now."""
    wanted = state.policy.host_tier
    if wanted == "auto":
        host = sum(room.host_tokens for room in state.rooms.values())
        room = (state.rooms.total + host) * (SLACK if state.host_tier else 1.0)
        in_force = bool(host) and state.contexts <= room
    else:
        in_force = wanted == "on"
    if in_force == state.host_tier:
        return
    state.host_tier = in_force
    state.rooms.mark = 1.0 if in_force else state.policy.admission_mark
    state.opportunity = True
    state.counters["host_tier_switched"] += 1
    for session in state.sessions.values():
        if session.node is not None and not session.turns:
            state.hold(session, session.node)
