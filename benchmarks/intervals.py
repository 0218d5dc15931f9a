# SPDX-License-Identifier: Apache-2.0
"""Means over seeds and how sure they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom (standard table).
_T95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and the half width of its 95 % interval (Student's t); None of a single value."""

    mean: float
    half: float | None
    count: int


def interval(values: Sequence[float]) -> Interval | None:
    """Of at least one value, else None."""
    n = len(values)
    if not n:
        return None
    mean = sum(values) / n
    if n == 1:
        return Interval(mean, None, 1)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1))
    t = _T95[n - 2] if n - 2 < len(_T95) else 1.96
    return Interval(mean, t * deviation / math.sqrt(n), n)


def relative_change(ours: Sequence[float], theirs: Sequence[float]) -> Interval | None:
    """Mean and interval of ours/theirs - 1, seed by seed (paired); None where theirs is 0."""
    if len(ours) != len(theirs) or any(v == 0 for v in theirs):
        return None
    return interval([a / b - 1.0 for a, b in zip(ours, theirs, strict=True)])
