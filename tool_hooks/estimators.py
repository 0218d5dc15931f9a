# SPDX-License-Identifier: Apache-2.0
"""How long a running call still takes: the paper's estimate, and ours.

Both take the sources of DESIGN §4.2 in the same order and learn from the calls that ended; a tenant's calls teach
that tenant only. Progress events are not their business: the predictor puts them first.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal, Protocol

from tool_hooks.history import MIN_SAMPLES, History, Window
from tool_hooks.shell_sleep import SleepPlan

Source = Literal["progress", "declared", "timeout", "sleep", "history", "global", "default"]
"""Where a prediction comes from, best first."""

DEFAULT_S = 5.0
DELTA = 0.2
_MAX_STEPS = 64
"""Doublings, and halvings, of a search: more than any duration needs, so that no input can keep it busy."""


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What is known of a call when it starts. Times in seconds; an empty tenant or key is one of its own."""

    session_id: str
    key: str
    tenant: str
    declared_s: float | None
    timeout_s: float | None
    sleep: SleepPlan | None

    @property
    def claim_s(self) -> float | None:
        """How long the call itself says it will last: the declared duration, else its sleeps."""
        if self.declared_s is not None:
            return self.declared_s
        return self.sleep.seconds if self.sleep is not None else None


@dataclass(frozen=True, slots=True)
class Estimate:
    """What an estimator says of a running call.

    Attributes:
        remaining_s: seconds still to run; below 0: the predicted return lies so long back.
        overdue_s: seconds since the call outlived all that was known to predict it; below 0: it has not.
        source: what the prediction rests on.
    """

    remaining_s: float
    overdue_s: float
    source: Source


class Estimator(Protocol):
    """Predicts and learns; pure, no clock."""

    def estimate(self, call: CallFacts, elapsed_s: float) -> Estimate:
        """What a call that has run for ``elapsed_s`` >= 0 seconds still takes."""
        ...

    def learn(self, call: CallFacts, duration_s: float) -> None:
        """A call ended after ``duration_s`` seconds, finite and >= 0."""
        ...


class PaperEstimator:
    """The paper's: one total per call, the mean plus the Maurer-Pontil margin where history must tell.

    Args:
        window: durations kept per key, and of all tools.
        max_keys: keys kept.
        delta: one minus the confidence of the margin.
        default_s: the total where nothing is known.
    """

    def __init__(
        self, *, window: int = 256, max_keys: int = 4096, delta: float = DELTA, default_s: float = DEFAULT_S
    ) -> None:
        self._keys = History(window=window, max_names=max_keys)
        self._all = History(window=window, max_names=max_keys)
        self._delta = delta
        self._default_s = default_s

    def estimate(self, call: CallFacts, elapsed_s: float) -> Estimate:
        """The total less what has passed."""
        total_s, source = self._total(call)
        return Estimate(total_s - elapsed_s, elapsed_s - total_s, source)

    def learn(self, call: CallFacts, duration_s: float) -> None:
        """Adds to the history of the key and of all tools."""
        self._keys.add(f"{call.tenant}\0{call.key}", duration_s)
        self._all.add(call.tenant, duration_s)

    def _total(self, call: CallFacts) -> tuple[float, Source]:
        if call.declared_s is not None:
            return call.declared_s, "declared"
        if call.timeout_s is not None:
            return call.timeout_s, "timeout"
        if call.sleep is not None:
            return call.sleep.seconds, "sleep"
        known = self._keys.get(f"{call.tenant}\0{call.key}")
        if known is not None and len(known) >= MIN_SAMPLES:
            return sum(known.mean_and_margin(self._delta)), "history"
        every = self._all.get(call.tenant)
        if every is not None and len(every) >= MIN_SAMPLES:
            return sum(every.mean_and_margin(self._delta)), "global"
        return self._default_s, "default"


_Levels = list[tuple[list[float], float, float]]


class ConditionalEstimator:
    """Ours: the quantile of the remaining time, given how long the call has run already.

    The chance S(x) that a call lasts longer than x is learned level by level, each shrunk to the one above: a prior,
    all tools, the first program of the key, the key, the key in this session. With n durations on a level, k of them
    longer than x, and weight m, ``S(x) = (k + m S_above(x)) / (n + m)``. The prior ``S(x) = d / (d + x)`` has median d,
    the default, and expects a call of unheard-of length to last as long again as it has.

    The remaining time of a call that runs for e seconds is the smallest r with ``S(e + r) <= (1 - q) S(e)``. With
    q = 1/2 that is the median, which has the least mean absolute error, and "r <= 1 s" says exactly that a return
    within a second is more likely than not. As S only falls, "r <= 1 s" cannot turn true before r - 1 s from now.

    What a call claims of itself (declared duration, sleeps) is one more level, the last: the errors that such claims
    had.

    Args:
        weights: m of the levels all tools, first program, key, key in this session, claim.
        window: durations kept per name and level.
        max_keys: names kept per level (four times as many for keys in sessions).
        quantile: q.
        default_s: d.
    """

    def __init__(
        self,
        *,
        weights: tuple[float, float, float, float, float] = (1.0, 2.0, 2.0, 2.0, 1.0),
        window: int = 256,
        max_keys: int = 4096,
        quantile: float = 0.5,
        default_s: float = DEFAULT_S,
    ) -> None:
        self._weights = weights
        self._all = History(window=window, max_names=max_keys)
        self._programs = History(window=window, max_names=max_keys)
        self._keys = History(window=window, max_names=max_keys)
        self._sessions = History(window=window // 8, max_names=4 * max_keys)
        self._claims = History(window=window, max_names=max_keys, seeds=_TRUST)
        self._unknown_claims = Window(len(_TRUST))
        for error in _TRUST:
            self._unknown_claims.add(error)
        self._beyond = 1.0 - quantile
        self._default_s = default_s

    def learn(self, call: CallFacts, duration_s: float) -> None:
        """Adds to every level that the call belongs to."""
        every, program, key, session = _names(call)
        self._all.add(every, duration_s)
        self._programs.add(program, duration_s)
        self._keys.add(key, duration_s)
        self._sessions.add(session, duration_s)
        claim_s = call.claim_s
        if claim_s is not None:
            self._claims.add(_claim_name(call), duration_s - claim_s)

    def estimate(self, call: CallFacts, elapsed_s: float) -> Estimate:
        """The quantile, found by bisection to 0.2 % or 2 ms."""
        levels, source, longest_s = self._levels(call, elapsed_s)
        low, target = elapsed_s, self._beyond * self._survival(levels, elapsed_s)
        step = 0.25
        for _ in range(_MAX_STEPS):
            if self._survival(levels, low + step) <= target:
                break
            low += step
            step *= 2.0
        high = low + step
        for _ in range(_MAX_STEPS):
            if high - low <= 0.002 * max(1.0, low - elapsed_s):
                break
            middle = 0.5 * (low + high)
            if self._survival(levels, middle) > target:
                low = middle
            else:
                high = middle
        return Estimate(high - elapsed_s, elapsed_s - longest_s, source)

    def _levels(self, call: CallFacts, elapsed_s: float) -> tuple[_Levels, Source, float]:
        """What is known of a call.

        Returns:
            From general to special the durations, shortest first, with m and the seconds to take off x before looking;
            the most special source that the call has not outlived; the longest duration known of its own kind.
        """
        weights = self._weights
        every, program, key, session = _names(call)
        levels: _Levels = []
        source: Source = "default"
        longest_s = -1.0
        window = self._all.get(every)
        if window is not None:
            levels.append((window.ordered, weights[0], 0.0))
            if window.ordered[-1] > elapsed_s:
                source = "global"
        for window, weight in (
            (self._programs.get(program), weights[1]),
            (self._keys.get(key), weights[2]),
            (self._sessions.get(session), weights[3]),
        ):
            if window is not None:
                levels.append((window.ordered, weight, 0.0))
                longest_s = max(longest_s, window.ordered[-1])
        if longest_s > elapsed_s:
            source = "history"
        claim_s = call.claim_s
        if claim_s is not None:
            window = self._claims.get(_claim_name(call)) or self._unknown_claims
            only_upper = call.declared_s is None and call.sleep is not None and call.sleep.upper
            levels.append((window.ordered, weights[4] * (_UPPER_FACTOR if only_upper else 1.0), claim_s))
            last_s = claim_s + window.ordered[-1]
            longest_s = max(longest_s, last_s)
            if last_s > elapsed_s:
                source = "sleep" if call.declared_s is None else "declared"
        if longest_s < 0.0:
            longest_s = levels[0][0][-1] if levels else self._default_s
        return levels, source, longest_s

    def _survival(self, levels: _Levels, x: float) -> float:
        s = self._default_s / (self._default_s + x)
        for ordered, weight, shift in levels:
            known = len(ordered)
            s = (known - bisect_right(ordered, x - shift) + weight * s) / (known + weight)
        return s


def _names(call: CallFacts) -> tuple[str, str, str, str]:
    """What the call is called on the levels all tools, first program, key, key in this session."""
    tenant, key = call.tenant, call.key
    return tenant, f"{tenant}\0{key.partition('+')[0]}", f"{tenant}\0{key}", f"{tenant}\0{call.session_id}\0{key}"


def _claim_name(call: CallFacts) -> str:
    if call.declared_s is not None or call.sleep is None:
        return f"{call.tenant}\0declared\0{call.key}"
    return f"{call.tenant}\0sleep\0{call.sleep.upper}\0{call.sleep.alone}"


_TRUST = (0.01, 0.02, 0.05, 0.1)
"""Errors of claims, in seconds, that are assumed before any was seen: claims are kept, but for starting the program."""
_UPPER_FACTOR = 3.0
"""How much sooner sleeps that may not run at all are doubted: two that did not run are enough, instead of four."""
