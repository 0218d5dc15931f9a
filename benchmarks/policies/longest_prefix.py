# SPDX-License-Identifier: Apache-2.0
"""SGLang-style longest prefix.

Rule: the node with the longest cached prefix of the prompt gets the turn (between equals the one with the fewest
requests), and the engine admits the waiting request with the longest cached prefix first.
Source: SGLang's schedule policy ``lpm`` and prefix-affinity routing.
Parameters: none.
Good when: caches decide and nobody minds who waits: among those that wait, what is cached goes first however long the
others have waited. Needs an engine that orders its queue so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.policies.base import Plain, Request

if TYPE_CHECKING:
    from benchmarks.simulator.node import QueueOrder


class LongestPrefix(Plain):
    """See the module."""

    queue_order: QueueOrder = "longest-prefix"

    def choose(self, request: Request, t: float) -> int:
        """See the module."""
        overlap = self.site.overlap(request.chain)
        return max(self.nodes, key=lambda n: (overlap.get(n, 0), -self.site.load(n), -n))
