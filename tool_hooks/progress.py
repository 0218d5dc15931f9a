# SPDX-License-Identifier: Apache-2.0
"""Turns progress events of one call into the time of its return.

Only an advance changes the estimate: a fraction that falls back or stands still says that the tool lives, not that
it will take longer, so a call that stalls outlives its estimate instead of pushing it ahead for ever.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

MIN_FRACTION = 1e-4
"""Below this a fraction says nothing about the speed."""
ROUNDING = 1e-3
"""So much above 1 a fraction may be and still mean that all is done."""
MIN_SPAN = 0.02
"""What must have been done between two reports before their speed is believed."""
SMOOTHING = 0.5
"""Weight of the newest speed against the older ones."""


@dataclass(slots=True)
class Progress:
    """What a running call reported about itself. Times are the receiver's, in seconds.

    Attributes:
        started_at: when the call started.
        returns_at: the estimated return, None while nothing usable was reported.
        told_at: the last event of any kind, heartbeats included.
        gap_s: the longest pause between two events so far.
        fraction: the largest fraction done so far, 0 to 1.
    """

    started_at: float
    returns_at: float | None = None
    told_at: float | None = None
    gap_s: float = 0.0
    fraction: float = 0.0
    _mark: tuple[float, float] = field(init=False)
    _speed: float = 0.0

    def __post_init__(self) -> None:
        self._mark = (0.0, self.started_at)

    def report(self, t: float, fraction: float | None, remaining_s: float | None) -> None:
        """Takes one progress event at ``t``; both values None is a heartbeat.

        Args:
            fraction: the part done; a heartbeat if not above the largest so far, or if it makes no sense (40 for 40 %).
            remaining_s: seconds still to run, >= 0; the tool's own word, so it wins over the fraction.
        """
        if self.told_at is not None:
            self.gap_s = max(self.gap_s, t - self.told_at)
        self.told_at = t
        if fraction is not None and fraction <= 1.0 + ROUNDING and min(fraction, 1.0) > self.fraction:
            self._advance(t, min(fraction, 1.0))
        if remaining_s is not None:
            self.returns_at = t + remaining_s

    def _advance(self, t: float, fraction: float) -> None:
        self.fraction = fraction
        done, since = fraction - self._mark[0], t - self._mark[1]
        if since > 0.0 and (done >= MIN_SPAN or self._speed == 0.0):
            speed = done / since
            self._speed = SMOOTHING * speed + (1.0 - SMOOTHING) * self._speed if self._speed else speed
            self._mark = (fraction, t)
        if fraction >= 1.0:
            self.returns_at = t
        elif fraction >= MIN_FRACTION and self._speed > 0.0:
            self.returns_at = t + (1.0 - fraction) / self._speed

    def silent_from(self, refresh_s: float) -> float:
        """When the tool counts as silent: ``refresh_s`` after its last event, or twice its longest pause if longer."""
        return -math.inf if self.told_at is None else self.told_at + max(refresh_s, 2.0 * self.gap_s)
