# SPDX-License-Identifier: Apache-2.0
"""How long a running call still takes: the paper's estimate, and ours.

Both take the sources of DESIGN §4.2 in the same order and learn from the calls that ended; a tenant's calls teach
that tenant only. Progress events are not their business: the predictor puts them first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

from tool_hooks.history import MIN_SAMPLES, History, Window
from tool_hooks.shell_sleep import SleepPlan

Source = Literal["progress", "declared", "timeout", "sleep", "history", "global", "default"]
"""Where a prediction comes from, best first."""

DEFAULT_S = 5.0
DELTA = 0.2


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


class Estimator(Protocol):
    """Predicts and learns; pure, no clock."""

    def remaining(self, call: CallFacts, elapsed_s: float) -> tuple[float, Source]:
        """Seconds that a call still takes having run ``elapsed_s`` >= 0; below 0: it has outlived the prediction."""
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
        self, *, window: int = 128, max_keys: int = 4096, delta: float = DELTA, default_s: float = DEFAULT_S
    ) -> None:
        self._keys = History(window=window, max_names=max_keys)
        self._all = History(window=window, max_names=max(1, max_keys // 8))
        self._delta = delta
        self._default_s = default_s

    def remaining(self, call: CallFacts, elapsed_s: float) -> tuple[float, Source]:
        total_s, source = self._total(call)
        return total_s - elapsed_s, source

    def learn(self, call: CallFacts, duration_s: float) -> None:
        self._keys.add(f"{call.tenant}\0{call.key}", duration_s)
        self._all.add(call.tenant, duration_s)

    def _total(self, call: CallFacts) -> tuple[float, Source]:
        if call.declared_s is not None:
            return call.declared_s, "declared"
        if call.timeout_s is not None:
            return call.timeout_s, "timeout"
        if call.sleep is not None:
            return call.sleep.seconds, "sleep"
        for window, source in (
            (self._keys.get(f"{call.tenant}\0{call.key}"), "history"),
            (self._all.get(call.tenant), "global"),
        ):
            if window is not None and len(window) >= MIN_SAMPLES:
                return math.fsum(window.mean_and_margin(self._delta)), source  # type: ignore[return-value]
        return self._default_s, "default"


class ConditionalEstimator:
    """Ours: the quantile of the remaining time, given how long the call has run already.

    The chance that a call lasts longer than x is learned on four levels, each shrunk to the one above: a prior, all
    tools, the tool key, the tool key in this session. With n durations on a level, k of them > x, and weight m,
    ``S(x) = (k + m S_above(x)) / (n + m)``. The prior ``S(x) = d / (d + x)`` has median d, the default, and a tail that
    expects a call of unheard-of length to last as long again as it has. The remaining time of a call that runs for
    e seconds is the smallest r with ``S(e + r) <= (1 - q) S(e)``: q = 1/2 gives the median, which has the least mean
    absolute error, and then "r <= 1 s" says exactly that a return within a second is more likely than not.

    What a call claims (declared duration, sleeps) is one more level at the end: the errors that such claims had.

    Args:
        weights: m of the levels all tools, key, session, claim.
        window: durations kept per key; all tools keep four times as many.
        max_keys: names kept per level.
        quantile: q.
        default_s: d.
    """

    def __init__(
        self,
        *,
        weights: tuple[float, float, float, float] = (1.0, 2.0, 2.0, 2.0),
        window: int = 128,
        max_keys: int = 4096,
        quantile: float = 0.5,
        default_s: float = DEFAULT_S,
    ) -> None:
        self._weights = weights
        self._all = History(window=4 * window, max_names=max(1, max_keys // 8))
        self._keys = History(window=window, max_names=max_keys)
        self._sessions = History(window=window, max_names=max_keys)
        self._claims = History(window=window, max_names=max_keys)
        self._beyond = 1.0 - quantile
        self._default_s = default_s

    def learn(self, call: CallFacts, duration_s: float) -> None:
        self._all.add(call.tenant, duration_s)
        self._keys.add(f"{call.tenant}\0{call.key}", duration_s)
        self._sessions.add(f"{call.session_id}\0{call.key}", duration_s)
        claim_s = call.claim_s
        if claim_s is not None:
            self._claims.add(_claim_name(call), duration_s - claim_s)

    def remaining(self, call: CallFacts, elapsed_s: float) -> tuple[float, Source]:
        levels = self._levels(call)
        low, target = elapsed_s, self._beyond * self._survival(levels, elapsed_s)
        step = 0.25
        while self._survival(levels, low + step) > target:
            low += step
            step *= 2.0
        high = low + step
        while high - low > 0.002 * (1.0 + low - elapsed_s):
            middle = 0.5 * (low + high)
            if self._survival(levels, middle) > target:
                low = middle
            else:
                high = middle
        return high - elapsed_s, self._source(call, elapsed_s)

    def _levels(self, call: CallFacts) -> list[tuple[Window, float, float]]:
        """Windows from general to special, each with its weight m and the seconds to take off x before looking."""
        weights = self._weights
        found: list[tuple[Window, float, float]] = []
        for window, weight in (
            (self._all.get(call.tenant), weights[0]),
            (self._keys.get(f"{call.tenant}\0{call.key}"), weights[1]),
            (self._sessions.get(f"{call.session_id}\0{call.key}"), weights[2]),
        ):
            if window is not None:
                found.append((window, weight, 0.0))
        claim_s = call.claim_s
        if claim_s is not None:
            found.append((self._claims.get(_claim_name(call)) or _TRUST, weights[3], claim_s))
        return found

    def _survival(self, levels: list[tuple[Window, float, float]], x: float) -> float:
        s = self._default_s / (self._default_s + x)
        for window, weight, shift in levels:
            s = (window.longer_than(x - shift) + weight * s) / (len(window) + weight)
        return s

    def _source(self, call: CallFacts, elapsed_s: float) -> Source:
        """The most special level that still has a say: one whose durations the call has not outlived."""
        claim_s = call.claim_s
        if claim_s is not None and (self._claims.get(_claim_name(call)) or _TRUST).longer_than(
            elapsed_s - claim_s
        ):
            return "sleep" if call.declared_s is None else "declared"
        keys = self._keys.get(f"{call.tenant}\0{call.key}")
        if keys is not None and keys.longer_than(elapsed_s):
            return "history"
        every = self._all.get(call.tenant)
        return "global" if every is not None and every.longer_than(elapsed_s) else "default"


def _claim_name(call: CallFacts) -> str:
    if call.declared_s is not None:
        return f"{call.tenant}\0declared\0{call.key}"
    sleep = call.sleep
    return f"{call.tenant}\0sleep\0{sleep is not None and sleep.upper}\0{sleep is not None and sleep.alone}"


_TRUST = Window(4)
"""What is thought of claims before any was tested: they are kept, but for starting the program."""
for _error in (0.01, 0.02, 0.05, 0.1):
    _TRUST.add(_error)
