# SPDX-License-Identifier: Apache-2.0
"""How long a command line says it will sleep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tool_hooks.shell_words import Group, Simple, Step, parse
from tool_hooks.tool_key import MAX_NESTING, base_name, key_of_programs, parse_seconds, programs_in, script_of, unwrap


@dataclass(frozen=True, slots=True)
class SleepPlan:
    """The sleeps of a command line.

    Attributes:
        seconds: what they add up to when all of them run, > 0 and finite.
        upper: they may not run at all (``a && sleep 2``, a branch), so ``seconds`` is only an upper bound of them.
        alone: nothing else in the line takes time, so the call lasts what its sleeps last.
    """

    seconds: float
    upper: bool
    alone: bool


@dataclass(slots=True)
class _Sum:
    """What some steps sleep: in the foreground, in the background, and whether it is certain or even known."""

    seconds: float = 0.0
    background: float = 0.0
    upper: bool = False
    known: bool = True
    sleeps: int = 0

    def take(self, other: _Sum) -> None:
        self.upper |= other.upper
        self.known &= other.known
        self.sleeps += other.sleeps


def sleep_plan(command: str) -> SleepPlan | None:
    """Reads the sleeps out of a shell command line.

    Units (``1m``, ``0.5h``), several arguments, several sleeps, pipes (the longest counts), ``timeout 10 sleep 60``,
    ``bash -c``, the background and ``wait`` are understood.

    Returns:
        None when it does not sleep, sleeps in a loop, for ever, or for a time that only the shell knows (``$N``).
    """
    if "sleep" not in command:
        return None
    total = _of_steps(parse(command), 0)
    if not total.known or not total.sleeps or not 0.0 < total.seconds < math.inf:
        return None
    alone = key_of_programs(programs_in(command)) in ("sleep", "wait")
    return SleepPlan(total.seconds, total.upper, alone)


def _of_steps(steps: Sequence[Step], nesting: int) -> _Sum:
    total = _Sum()
    certain = True  # nothing that can fail ran so far, so `&&` is sure to go on
    at = 0
    while at < len(steps):
        pipeline = [steps[at]]
        at += 1
        while at < len(steps) and steps[at].joiner == "|":
            pipeline.append(steps[at])
            at += 1
        parts = [_of_step(step, nesting) for step in pipeline]
        seconds = max(part.seconds for part in parts)
        first = pipeline[0]
        for part in parts:
            total.take(part)
            total.background = max(total.background, total.seconds + part.background)
        if seconds > 0.0:
            total.upper |= first.joiner == "||" or (first.joiner == "&&" and not certain)
        if first.background:
            total.background = max(total.background, total.seconds + seconds)
        else:
            total.seconds += seconds
        if _waits(first):
            total.seconds = max(total.seconds, total.background)
        certain &= (seconds > 0.0 and not first.background) or _cannot_fail(first)
    return total


def _cannot_fail(step: Step) -> bool:
    return isinstance(step.what, Simple) and step.what.words[0] in ("echo", "printf", "true", ":")


def _waits(step: Step) -> bool:
    return isinstance(step.what, Simple) and step.what.words[0] == "wait"


def _of_step(step: Step, nesting: int) -> _Sum:
    what = step.what
    if isinstance(what, Group):
        inner = _of_steps(what.steps, nesting)
        if inner.sleeps and what.kind == "loop":
            inner.known = False
        inner.upper |= what.kind == "branch" and inner.sleeps > 0
        return inner
    words, limit = unwrap(what.words)
    script = script_of(words)
    if script is not None:
        total = _of_steps(parse(script), nesting + 1) if nesting < MAX_NESTING else _Sum()
    elif words and base_name(words[0]) == "sleep":
        total = _of_sleep(words[1:])
    else:
        return _Sum()
    if limit is not None:
        total.seconds = min(total.seconds, limit)
        total.background = min(total.background, limit)
    return total


def _of_sleep(arguments: Sequence[str]) -> _Sum:
    given = [parse_seconds(word) for word in arguments]
    if not given or None in given:
        return _Sum(known=False, sleeps=1)
    return _Sum(seconds=sum(s for s in given if s is not None), sleeps=1)
