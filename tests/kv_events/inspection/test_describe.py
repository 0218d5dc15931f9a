# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from kv_events.inspection.describe import Filter, describe, text
from kv_events.recording import Message
from tests.kv_events.events import C, cleared, removed, stored
from tests.kv_events.inspection.bus import TOOLS, WORKERS, forward, kv, load, tool

BIG = stored([1, 2], node=C._replace(worker_id=2**63 + 9))
BUS = [
    kv([stored(range(500)), removed([1], at=2), cleared(at=3)], 0),
    kv([BIG], 0, publisher=2),
    load(7, 3, 0),
    forward(2**63 + 9, 10, 0),
    tool("tool_start", 0, t=0.0, session="one"),
    tool("tool_end", 1, t=1.0, session="two"),
    Message(0.0, WORKERS + "kv-events", b"\xc1"),
    Message(0.0, TOOLS, b"\x93\x01\x02\x03"),
]


def test_one_record_per_event() -> None:
    records = [record for message in BUS for record in describe(message)]
    assert [record.get("kind") for record in records[:4]] == ["stored", "removed", "cleared", "stored"]
    assert (records[0]["count"], len(records[0]["blocks"])) == (500, 200)
    assert [record.get("kind") for record in records[-2:]] == ["unreadable"] * 2
    assert records[6]["session"] == "one"


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (Filter(), 10),
        (Filter(topic="kv-events"), 5),
        (Filter(worker=str(2**63 + 9)), 2),
        (Filter(worker="7"), 4),
        (Filter(worker="no number"), 0),
        (Filter(session="two"), 1),
        (Filter(kind="removed"), 1),
        (Filter(kind="unreadable"), 2),
        (Filter(kind="tool_start", session="two"), 0),
    ],
)
def test_what_the_bytes_rule_out_is_not_wanted_and_what_is_wanted_they_never_rule_out(
    wanted: Filter, count: int
) -> None:
    plain = [record for message in BUS for record in describe(message) if wanted.matches(record)]
    quick = [
        record for message in BUS if wanted.may_match(message) for record in describe(message) if wanted.matches(record)
    ]
    assert quick == plain
    assert len(quick) == count


def test_a_line_stays_a_line() -> None:
    lines = [text(record) for message in BUS for record in describe(message)]
    assert "7/0" in lines[0]
    assert "count=500" in lines[0]
    assert "sum_prefill_tokens:10" in lines[5]
    assert all("\n" not in line and len(line) < 300 for line in lines)
