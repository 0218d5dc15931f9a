# SPDX-License-Identifier: Apache-2.0
"""Probes: short chances for a call that has outlived its prediction.

Window k = 0, 1, ... opens ``(2^(k+1) - 1)`` horizons after the predicted return and lasts one horizon: 1-2, 3-4,
7-8, 15-16, ... horizons. So a call that is a little late is met at once, and one that hangs costs ever less.
"""

from __future__ import annotations

import math

MAX_WINDOWS = 24
"""2^24 horizons are half a year: no call is waited for longer."""


def probe_open(overdue_s: float, horizon_s: float) -> bool:
    """Whether a probe runs ``overdue_s`` seconds after the predicted return."""
    if not 0.0 <= overdue_s < math.inf:
        return False
    k = int(math.log2(overdue_s / horizon_s + 1.0)) - 1
    if not 0 <= k < MAX_WINDOWS:
        return False
    return overdue_s < 2.0 ** (k + 1) * horizon_s


def next_probe_change(overdue_s: float, horizon_s: float) -> float | None:
    """Seconds from now until a probe opens or closes next; None when there will be no more."""
    if not -math.inf < overdue_s < math.inf:
        return None
    for k in range(MAX_WINDOWS):
        opens = (2.0 ** (k + 1) - 1.0) * horizon_s
        if overdue_s < opens:
            return opens - overdue_s
        if overdue_s < opens + horizon_s:
            return opens + horizon_s - overdue_s
    return None
