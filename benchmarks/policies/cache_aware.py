# SPDX-License-Identifier: Apache-2.0
"""The cache-aware balancer of vLLM's and SGLang's routers.

Rule: while loads are even, the node with the longest matching prefix if it matches more than a threshold of the
prompt, else the node with the smallest tree (the fewest tokens ever sent and kept); while they are not, the node
with the fewest requests. The tree is the router's own guess: it learns from what it sent, not from KV events.
Source: vllm-project/router and sgl-router, policy ``cache_aware`` and its defaults.
Parameters: cache threshold 0.3, uneven when max - min > 64 and max > 1.5 x min requests; trees bounded at 2**26
characters a node (A: 4 characters a token, so 16 M tokens).
Good when: there are no KV events to go by, and caches seldom evict: it goes on believing in what it once sent.
"""

from __future__ import annotations

from collections import OrderedDict

from benchmarks.policies.base import Plain, Request, Site

CACHE_THRESHOLD = 0.3
BALANCE_ABS = 64
BALANCE_REL = 1.5
MOST_TOKENS = 2**24


class CacheAware(Plain):
    """See the module."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._trees: list[OrderedDict[str, int]] = [OrderedDict() for _ in self.nodes]
        self._sizes = [0] * site.setup.nodes

    def choose(self, request: Request, t: float) -> int:
        """See the module."""
        loads = [self.site.load(node) for node in self.nodes]
        if max(loads) - min(loads) > BALANCE_ABS and max(loads) > BALANCE_REL * min(loads):
            node = min(self.nodes, key=lambda n: loads[n])
        else:
            matches = [self._match(request, node) for node in self.nodes]
            node = max(self.nodes, key=lambda n: (matches[n], -n))
            if matches[node] <= CACHE_THRESHOLD * request.prompt:
                node = min(self.nodes, key=lambda n: self._sizes[n])
        self._remember(request, node)
        return node

    def _match(self, request: Request, node: int) -> int:
        tree = self._trees[node]
        own = tree.get(request.chain.session, 0)
        return own or tree.get(request.chain.shared_key, 0)

    def _remember(self, request: Request, node: int) -> None:
        tree = self._trees[node]
        for key, tokens in (
            (request.chain.session, request.prompt),
            (request.chain.shared_key, request.chain.shared_tokens),
        ):
            self._sizes[node] += tokens - tree.pop(key, 0)
            tree[key] = tokens
        while self._sizes[node] > MOST_TOKENS:
            self._sizes[node] -= tree.popitem(last=False)[1]
