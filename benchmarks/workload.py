# SPDX-License-Identifier: Apache-2.0
"""Which recorded sessions a run uses, and how they are made smaller where asked.

Everything follows from the seed, so two arms of a comparison get the same sessions in the same order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tao_dynamo.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.traces import RecordedTurn, Session


@dataclass(frozen=True, slots=True)
class Workload:
    """The sessions of a run, in the order in which they start.

    ``context_scale``: what every recorded prompt and answer was multiplied by (1 = as recorded).
    """

    sessions: tuple[Session, ...]
    context_scale: float = 1.0

    @property
    def turns(self) -> int:
        """Turns of all sessions."""
        return sum(len(session.turns) for session in self.sessions)


def choose(
    recorded: Sequence[Session],
    *,
    count: int,
    seed: int,
    max_turns: int | None = None,
    max_prompt_tokens: int | None = None,
    max_pause_s: float | None = None,
) -> Workload:
    """Draw ``count`` sessions and cut them to size.

    Sessions are drawn without replacement; where more are asked for than were recorded, further rounds
    follow, whose sessions get a suffix to their id (and so other text). A session is cut after ``max_turns``
    turns. With ``max_prompt_tokens`` all prompts and answers shrink by one common factor, such that the
    longest prompt has that many tokens. Tool and think times above ``max_pause_s`` seconds are cut to it.
    """
    if count < 1:
        raise TraceError("--sessions", count, "at least 1")
    if not recorded:
        raise TraceError("sessions", 0, "at least one recorded session")
    dice = random.Random(seed)
    drawn: list[Session] = []
    for lap in range(-(-count // len(recorded))):
        deck = list(recorded)
        dice.shuffle(deck)
        if lap:
            deck = [replace(s, session_id=f"{s.session_id}-{lap + 1}") for s in deck]
        drawn.extend(deck)
    drawn = drawn[:count]
    if max_turns is not None:
        drawn = [replace(s, turns=s.turns[:max_turns]) for s in drawn]
    if max_pause_s is not None:
        drawn = [replace(s, turns=tuple(_hurry(t, max_pause_s) for t in s.turns)) for s in drawn]
    scale = 1.0
    if max_prompt_tokens is not None:
        scale = min(1.0, max_prompt_tokens / max(s.longest_prompt for s in drawn))
        drawn = [_shrink(s, scale) for s in drawn]
    return Workload(tuple(drawn), scale)


def room_blocks(load: Workload, at_once: int, workers: int, block_size: int) -> int:
    """KV blocks of each worker such that all workers together hold half of the sessions at once at their longest.

    At least a quarter more than the longest session, which else could never run.
    """
    longest = [session.longest_prompt for session in load.sessions]
    tokens = sum(longest) * min(at_once, len(longest)) // len(longest) // 2
    return max(tokens // workers, max(longest) * 5 // 4) // block_size


def _hurry(turn: RecordedTurn, most: float) -> RecordedTurn:
    tool = turn.tool
    if tool is not None:
        tool = replace(tool, duration_s=min(tool.duration_s, most))
    return replace(turn, think_s=min(turn.think_s, most), tool=tool)


def _shrink(session: Session, scale: float) -> Session:
    """Sizes times ``scale``; what a prompt keeps never exceeds what there was before it."""
    turns: list[RecordedTurn] = []
    shared = min(int(session.shared_tokens * scale), *(_size(t.prompt_tokens, scale) - 1 for t in session.turns))
    for turn in session.turns:
        prompt = _size(turn.prompt_tokens, scale)
        kept = 0
        if turns:
            before = turns[-1].prompt_tokens + turns[-1].output_tokens
            kept = min(round(turn.kept_tokens * scale), before, prompt)
            if turn.kept_tokens and abs(kept - before) <= 1:
                # Rounding must not cut the last token of a history that was kept whole.
                kept, prompt = before, max(prompt, before)
        output = _size(turn.output_tokens, scale)
        turns.append(replace(turn, prompt_tokens=prompt, output_tokens=output, kept_tokens=kept))
    return replace(session, turns=tuple(turns), shared_tokens=max(0, shared))


def _size(tokens: int, scale: float) -> int:
    return max(2, round(tokens * scale))
