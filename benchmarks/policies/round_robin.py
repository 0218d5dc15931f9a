# SPDX-License-Identifier: Apache-2.0
"""Round robin.

Rule: turn i goes to node i modulo the number of nodes, whatever is cached where.
Source: ``dynamo.frontend --router-mode round-robin``, and what plain load balancers before vLLM do.
Parameters: none.
Good when: requests have nothing in common, or there is one node.
"""

from __future__ import annotations

from benchmarks.policies.base import Plain, Request, Site


class RoundRobin(Plain):
    """See the module."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._next = -1

    def choose(self, request: Request, t: float) -> int:
        """The node after the last one."""
        self._next = (self._next + 1) % len(self.nodes)
        return self._next
