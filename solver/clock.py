# SPDX-License-Identifier: Apache-2.0
"""The monotonic clock, readable from compiled loops, so that one call may keep its own deadline."""

from __future__ import annotations

import time

import numpy as np
from numba import types

from solver.jit import compiled

MONOTONIC = time.CLOCK_MONOTONIC
# By name, not by address: a loop that calls an address could not be kept in numba's cache.
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.voidptr))


@compiled
def now() -> float:
    """Seconds on the clock that ``time.monotonic`` reads too (on Linux)."""
    # struct timespec of every 64-bit Unix: seconds, nanoseconds.
    pair = np.empty(2, np.int64)
    _clock_gettime(MONOTONIC, pair.ctypes)
    return float(pair[0] + pair[1] * 1e-9)
