# SPDX-License-Identifier: Apache-2.0
"""Workers that do not play along: silent ones, and ones whose blocks never have the names that we expect. Pure.

After a turn has run on a node, the blocks of its prompt should be announced from there. A node that announces
nothing at all is *silent* (its KV events are switched off, or go over another event plane). A node that announces
blocks but never one that we expected *mismatches*: another block size, another hash seed, a model of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from kv_events.types import NodeId

Verdict = Literal["silent", "mismatch", "confirmed"]


@dataclass(frozen=True)
class Finding:
    """A node's verdict has changed; ``confirmed`` takes the others back."""

    node: NodeId
    verdict: Verdict
    text: str


@dataclass
class _Watched:
    expected: deque[tuple[float, int]] = field(default_factory=deque)
    missed: int = 0
    verdict: Verdict | None = None


class Watch:
    """Compares what should be announced with what is.

    Args:
        stored: whether a node holds a block, the first of a prompt.
        heard: whether a node has published any event at all.
        grace_s: how long an expected block may take to be announced.
        min_turns: turns in a row of which not one block was confirmed before a node is named.
    """

    def __init__(
        self,
        stored: Callable[[NodeId, int], bool],
        heard: Callable[[NodeId], bool],
        *,
        grace_s: float = 30.0,
        min_turns: int = 20,
    ) -> None:
        self._stored = stored
        self._heard = heard
        self._grace = grace_s
        self._min_turns = min_turns
        self._nodes: dict[NodeId, _Watched] = {}

    def ran(self, node: NodeId, block: int, t: float) -> None:
        """Note that a turn whose prompt begins with this block (its hash) ran on the node."""
        watched = self._nodes.setdefault(node, _Watched())
        if len(watched.expected) < 4 * self._min_turns:
            watched.expected.append((t, block))

    def check(self, t: float) -> list[Finding]:
        """Return the verdicts that are new at time ``t``; to be called about once a second."""
        found = []
        for node, watched in self._nodes.items():
            finding = self._judge(node, watched, t)
            if finding is not None and finding.verdict != watched.verdict:
                if finding.verdict != "confirmed" or watched.verdict is not None:
                    found.append(finding)
                watched.verdict = finding.verdict
        return found

    def verdict(self, node: NodeId) -> Verdict | None:
        """Return what is known of the node, None before anything is."""
        watched = self._nodes.get(node)
        return watched.verdict if watched else None

    def forget(self, node: NodeId) -> None:
        """Forget a node that has left."""
        self._nodes.pop(node, None)

    def _judge(self, node: NodeId, watched: _Watched, t: float) -> Finding | None:
        expected = watched.expected
        if any(self._stored(node, block) for _, block in expected):
            expected.clear()
            watched.missed = 0
            return Finding(node, "confirmed", f"node {node}: its blocks are announced as expected")
        while expected and t - expected[0][0] > self._grace:
            expected.popleft()
            watched.missed += 1
        if watched.missed < self._min_turns:
            return None
        if not self._heard(node):
            return Finding(
                node,
                "silent",
                f"node {node}: {watched.missed} turns and not one KV event; it is served in approximate mode. Are "
                "its KV events on, and is DYN_EVENT_PLANE=nats set for it?",
            )
        return Finding(
            node,
            "mismatch",
            f"node {node}: {watched.missed} turns and not one expected block was announced: hash mismatch suspected. "
            "Compare block size, hash seed and model of router and worker",
        )
