# SPDX-License-Identifier: Apache-2.0
"""How fast a node computes prompts, learnt from the turns that ran on it.

What a turn shows is a lower bound: its time to the first token holds the engine's queue and the step shared with
others as well. So the rate is an upper quantile of the last turns, taken over long computations only, where the fixed
cost of a step weighs little. One odd turn, such as one whose cached tokens were told wrong, does not move it.
"""

from __future__ import annotations

from collections import deque

LEAST_TOKENS = 512
"""Computed tokens below which a turn tells more about the step's fixed cost than about the rate."""
KEPT = 64
KNOWN_FROM = 8
QUANTILE = 0.8


class PrefillRate:
    """The prefill rate of one node, in tokens per second; unknown until :data:`KNOWN_FROM` turns have shown it."""

    def __init__(self) -> None:
        self.tokens_per_s: float | None = None
        self._seen: deque[float] = deque(maxlen=KEPT)

    def observe(self, computed_tokens: int, seconds: float) -> None:
        """A turn computed so many tokens of its prompt between its admission and its first token."""
        if computed_tokens < LEAST_TOKENS or seconds <= 0.0:
            return
        self._seen.append(computed_tokens / seconds)
        if len(self._seen) >= KNOWN_FROM:
            self.tokens_per_s = sorted(self._seen)[int(QUANTILE * (len(self._seen) - 1))]
