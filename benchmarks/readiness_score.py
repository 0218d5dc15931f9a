# SPDX-License-Identifier: Apache-2.0
"""Replays recorded calls through a predictor and scores what it said, by one protocol for every predictor.

Calls run one after another in file order on a virtual clock; a predictor learns a call's duration when the call has
returned, so only the past is known. **Moments** are when the core looks: at the start of a call and at every tick after
it (1 s, the horizon) while it runs. At each moment the predictor gives its remaining time and whether the session is
ready. So every call has exactly one last moment, less than a tick before its return, at which the right answer is
"returns within the horizon"; at all its earlier moments the right answer is "not yet".

* **final prediction**: the remaining time said at the last moment; its error is against the true remaining time.
* **first prediction**: the one at the start, its error likewise.
* **every prediction**: the mean error over all moments of all calls.
* **announcement**: a moment at which the session was said to be ready. *precision* = announcements after which the call
  did return within the horizon / announcements. *recall* = calls announced at their last moment / calls.

Mind that the final error alone can be had for nothing: who always says "half a second left" is never wrong by more than
half a second at the last moment, and is useless. That is the reference ``always`` of the report.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.recorded_calls import RecordedCall
from tool_hooks.estimators import DEFAULT_S, CallFacts, Estimate
from tool_hooks.history import History, Window
from tool_hooks.predictor import HORIZON_S, Predictor

CLOSE_S = 0.5
PAUSE_S = 3.0
"""Between two calls: a model turn."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a predictor said of one call. Errors are absolute, in seconds."""

    call: RecordedCall
    first_error_s: float
    final_error_s: float
    errors_sum_s: float
    moments: int
    early: int
    announced: bool


def replay(
    calls: Sequence[RecordedCall], predictor: Predictor, *, tick_s: float = HORIZON_S, max_s: float = 30.0
) -> list[Outcome]:
    """Runs the calls through a predictor; scores those up to ``max_s`` seconds, learns from all."""
    outcomes: list[Outcome] = []
    t = 0.0
    for n, call in enumerate(calls):
        session, call_id, duration = call.session_id, str(n), call.duration_s
        predictor.started(session, call_id, call.key, t, command=call.command)
        if duration <= max_s:
            outcomes.append(_watch(call, predictor, t, tick_s))
        predictor.ended(session, call_id, t + duration, duration_s=duration)
        t += duration + PAUSE_S
    return outcomes


def _watch(call: RecordedCall, predictor: Predictor, t: float, tick_s: float) -> Outcome:
    moments = max(1, math.ceil(call.duration_s / tick_s))
    errors: list[float] = []
    early, ready = 0, False
    for k in range(moments):
        early += ready and call.duration_s - (k - 1) * tick_s > HORIZON_S
        now = t + k * tick_s
        remaining = predictor.remaining(call.session_id, now)
        said = remaining.seconds if remaining is not None else 0.0
        errors.append(abs(said - (call.duration_s - k * tick_s)))
        ready = predictor.ready(call.session_id, now)
    return Outcome(call, errors[0], errors[-1], math.fsum(errors), moments, early, ready)


def score(outcomes: Sequence[Outcome]) -> dict[str, float | int | None]:
    """The figures of some calls; None where there is nothing to divide by."""
    n = len(outcomes)
    right = sum(o.announced for o in outcomes)
    announced = right + sum(o.early for o in outcomes)
    longer = [o for o in outcomes if o.call.duration_s > HORIZON_S]
    return {
        "calls": n,
        "mae_s": _ratio(math.fsum(o.final_error_s for o in outcomes), n),
        "within_0.5s": _ratio(sum(o.final_error_s <= CLOSE_S for o in outcomes), n),
        "precision": _ratio(right, announced),
        "recall": _ratio(right, n),
        "f1": _ratio(2.0 * right, announced + n),
        "recall_longer_than_1s": _ratio(sum(o.announced for o in longer), len(longer)),
        "first_mae_s": _ratio(math.fsum(o.first_error_s for o in outcomes), n),
        "first_within_0.5s": _ratio(sum(o.first_error_s <= CLOSE_S for o in outcomes), n),
        "every_mae_s": _ratio(math.fsum(o.errors_sum_s for o in outcomes), sum(o.moments for o in outcomes)),
        "announcements": announced,
    }


def _ratio(a: float, b: float) -> float | None:
    return round(a / b, 4) if b else None


class Baseline:
    """One total per tool key, from its history by a simple rule; all tools, then 5 s, where the key is new."""

    def __init__(self, rule: Callable[[Window], float], *, mix_claims: bool = False) -> None:
        self._rule = rule
        self._mix_claims = mix_claims
        self._keys = History(window=256, max_names=4096)

    def estimate(self, call: CallFacts, elapsed_s: float) -> Estimate:
        """The rule's total less what has passed."""
        window = self._keys.get("k" + call.key) or self._keys.get("")
        total_s = self._rule(window) if window is not None else DEFAULT_S
        claim_s = call.claim_s
        if self._mix_claims and claim_s is not None:
            total_s = 0.5 * (total_s + claim_s)
        return Estimate(total_s - elapsed_s, elapsed_s - total_s, "history")

    def learn(self, call: CallFacts, duration_s: float) -> None:
        """Adds to the key's history."""
        self._keys.add("k" + call.key, duration_s)
        self._keys.add("", duration_s)


class Always:
    """Says "half a second left" whatever happens: what the final error is worth."""

    def estimate(self, call: CallFacts, elapsed_s: float) -> Estimate:  # noqa: ARG002
        """Half a second."""
        return Estimate(CLOSE_S, -math.inf, "default")

    def learn(self, call: CallFacts, duration_s: float) -> None:
        """Learns nothing."""


def _mean(window: Window) -> float:
    return window.mean_and_margin(0.2)[0]


def _median(window: Window) -> float:
    return statistics.median(window.ordered)


def predictors() -> dict[str, Callable[[], Predictor]]:
    """How to make each predictor, by name; ``default`` is ours, ``paper`` the paper's."""
    return {
        "default": Predictor,
        "paper": lambda: Predictor("paper"),
        "last_value": lambda: Predictor(estimator=Baseline(lambda w: w.last)),
        "mean": lambda: Predictor(estimator=Baseline(_mean)),
        "median": lambda: Predictor(estimator=Baseline(_median)),
        "tokencake": lambda: Predictor(estimator=Baseline(_mean, mix_claims=True)),
        "always": lambda: Predictor(estimator=Always()),
    }


def taught_before(calls: Sequence[RecordedCall], *, tick_s: float = HORIZON_S, max_s: float = 30.0) -> list[Outcome]:
    """What ours would say had it been taught every one of these calls before, the one it is asked about included.

    This peeks, on purpose: it is a bound on what keys and sessions can tell, not a predictor.
    """
    predictor = Predictor()
    replay(calls, predictor, tick_s=tick_s, max_s=0.0)
    for call in calls:
        predictor.forget(call.session_id)
    return replay(calls, predictor, tick_s=tick_s, max_s=max_s)


def floors(calls: Sequence[RecordedCall], *, max_s: float = 30.0) -> dict[str, float | int | None]:
    """How well one total per call could do at all, chosen with hindsight: the median of each key's own durations.

    No predictor that says one total when the call starts, and knows a call by its key, has a smaller mean error on
    these calls. ``_in_session`` chooses one per key and session, many of them from a single call.
    """
    kept = [c for c in calls if c.duration_s <= max_s]
    found: dict[str, float | int | None] = {"calls": len(kept)}
    for name, of in (
        ("per_key", lambda c: c.key),
        ("per_key_in_session", lambda c: (c.session_id, c.key)),
    ):
        groups: dict[object, list[float]] = {}
        for call in kept:
            groups.setdefault(of(call), []).append(call.duration_s)
        errors = [abs(x - statistics.median(g)) for g in groups.values() for x in g]
        found[f"{name}_groups"] = len(groups)
        found[f"{name}_mae_s"] = _ratio(math.fsum(errors), len(errors))
        found[f"{name}_within_0.5s"] = _ratio(sum(e <= CLOSE_S for e in errors), len(errors))
    return found
