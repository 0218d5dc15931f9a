# SPDX-License-Identifier: Apache-2.0
"""What overdue sessions have had beyond their share is paid back before the next is served."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tao_dynamo.core.overdraft import Overdraft
from tests.tao_dynamo.fakes import PLAIN, A, B, Driver, admitted


def test_what_is_held_above_the_share_is_owed_and_paid_back_in_time() -> None:
    overdraft = Overdraft()
    overdraft.update(600, 0.0, share=100, limit_s=300.0)
    assert overdraft.token_s == 0.0
    overdraft.update(0, 10.0, share=100, limit_s=300.0)
    assert overdraft.token_s == pytest.approx(5000.0)
    overdraft.update(0, 49.0, share=100, limit_s=300.0)
    assert overdraft.token_s == pytest.approx(1100.0)
    overdraft.update(0, 100.0, share=100, limit_s=300.0)
    assert overdraft.token_s == 0.0, "nothing is saved up"


def test_what_is_owed_is_bounded() -> None:
    overdraft = Overdraft()
    overdraft.update(10_000, 0.0, share=100, limit_s=300.0)
    overdraft.update(0, 1e6, share=100, limit_s=300.0)
    assert overdraft.token_s == 30_000.0
    overdraft.update(0, 1e6 + 300.0, share=100, limit_s=300.0)
    assert overdraft.token_s == 0.0


def overdue_on_busy_nodes(share: float) -> Driver:
    """Two nodes full of small running turns; two big turns wait for longer than the bound."""
    d = Driver(replace(PLAIN, overdue_share=share), {A: 10_000, B: 10_000})
    for i in range(16):
        assert admitted(d.arrive(f"s{i}", 1000, output=50))
    d.arrive("big0", 4000)
    d.arrive("big1", 4000)
    return d


def served_after(d: Driver, name: str) -> float:
    """Seconds until the turn runs, while small turns end and begin anew all the time."""
    began = d.t
    for i in range(10_000):
        small = f"s{i % 16}"
        out = d.end(small) + d.arrive(small, 1000, output=50) + d.advance(1.0)
        if any(request == f"r-{name}" for request, _ in admitted(out)):
            return d.t - began
    raise AssertionError(name)


def test_the_next_overdue_session_waits_until_the_share_is_paid_back() -> None:
    d = overdue_on_busy_nodes(0.05)
    assert served_after(d, "big0") <= 80.0, "one is served however big"
    d.advance(30.0)
    d.end("big0")
    assert d.core.statistics(d.t).counters["overdue_placed"] == 1
    view = d.core.explain("big1", d.t)
    assert view is not None
    assert "; overdue, and the overdue have had more than their share: paid back in " in view.reason
    # It held 4,100 tokens for 30 s and more; a share of 1,000 pays that back in about 100 s.
    assert served_after(d, "big1") > 60.0
    d = overdue_on_busy_nodes(1.0)
    served_after(d, "big0")
    d.advance(30.0)
    d.end("big0")
    assert served_after(d, "big1") < 20.0, "a share that is never overdrawn"


def test_nothing_is_held_back_where_nothing_runs() -> None:
    d = overdue_on_busy_nodes(0.05)
    served_after(d, "big0")
    d.advance(30.0)
    d.end("big0")
    for i in range(16):
        d.end(f"s{i}")
        d.start_tool(f"s{i}", 0.5)  # about to return, for ever: none of them makes way by itself
    assert served_after_quiet(d) <= 2.0


def served_after_quiet(d: Driver) -> float:
    began = d.t
    while not any(request == "r-big1" for request, _ in admitted(d.advance(0.5))):
        assert d.t - began < 100.0
    return d.t - began


def test_what_an_overdue_session_no_longer_holds_is_owed_no_further() -> None:
    d = overdue_on_busy_nodes(0.05)
    first = served_after(d, "big0")
    names = [f"s{i}" for i in range(16)]
    for name in (*names, "big0", "big1"):
        d.end(name)
    for name in ("big0", "big1", *names):
        d.run(d.core.session_ended(name, d.t))
    d.advance(600.0)  # nobody waits
    for name in names:
        d.arrive(name, 1000, output=50)
    d.arrive("big2", 4000)
    assert served_after(d, "big2") <= first
