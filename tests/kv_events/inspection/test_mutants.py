# SPDX-License-Identifier: Apache-2.0
"""Whatever is on the bus, nobody who only looks falls over it; ``TAO_FUZZ`` makes the run as long as one likes."""

from __future__ import annotations

import random

from kv_events.inspection.check import Heard, exit_code, judge
from kv_events.inspection.describe import describe, text
from kv_events.inspection.live import Picture
from kv_events.inspection.tap import Sampler
from kv_events.inspection.top import Bus, snapshot
from kv_events.recording import Message
from tests.kv_events.inspection.bus import WORKERS, forward, load, tool
from tests.kv_events.test_fuzz import ROUNDS, mutated, seeds


def test_mutants_are_counted_and_shown() -> None:
    rng = random.Random(11)
    good = [Message(0.0, WORKERS + "kv-events", data) for data in seeds()]
    good += [load(7, 3, 0), forward(7, 10, 0)]
    good += [tool(kind, at, t=1.0) for at, kind in enumerate(("tool_start", "tool_progress", "tool_end"))]
    picture = Picture(Sampler(0))
    for at in range(ROUNDS // 5):
        message = rng.choice(good)
        others = [other.data for other in good if other.subject == message.subject]
        mutant = Message(at / 1000, message.subject, mutated(rng, message.data, others))
        picture.take(mutant)
        for record in describe(mutant):
            assert "\n" not in text(record)
    picture.mark(ROUNDS / 1000)
    assert picture.board.unreadable > 100
    assert picture.meters.unreadable > 100
    assert len(picture.meters.nodes) <= 4096
    shown = snapshot(ROUNDS / 1000, Bus(), picture.meters, picture.board, {}, None, {})
    assert shown["unreadable"] == picture.board.unreadable + picture.meters.unreadable
    assert exit_code(judge(Heard(1.0, picture.meters, picture.board))) > 0
