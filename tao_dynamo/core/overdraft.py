# SPDX-License-Identifier: Apache-2.0
"""What overdue sessions have had beyond their share of the room, over time."""

from __future__ import annotations


class Overdraft:
    """Token-seconds of room that overdue sessions held above their share, paid back while they hold less.

    The share alone bounds little where sessions are big: one may always be served, however big, and served one after
    the other they would hold several times their share for as long as anybody is overdue. On one node with sessions of
    a quarter of it that took a third of the throughput (docs/results/losses.md).
    """

    def __init__(self) -> None:
        self.token_s = 0.0
        self.held = 0
        """Tokens that they hold, as far as the account is kept."""
        self._since: float | None = None

    def update(self, held: int, t: float, *, share: float, limit_s: float) -> None:
        """Overdue sessions hold so much from now on.

        Args:
            held: tokens.
            t: now.
            share: tokens that they may hold for ever.
            limit_s: seconds in which a share pays the most that can be owed, so that nobody waits for ever.
        """
        if self._since is not None:
            owed = self.token_s + (self.held - share) * (t - self._since)
            self.token_s = min(max(0.0, owed), share * limit_s)
        self.held, self._since = held, t
