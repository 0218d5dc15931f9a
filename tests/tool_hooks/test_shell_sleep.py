# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tool_hooks.shell_sleep import SleepPlan, sleep_plan


@pytest.mark.parametrize(
    ("command", "seconds", "upper", "alone"),
    [
        ("sleep 5", 5.0, False, True),
        ("sleep .5", 0.5, False, True),
        ("sleep 1m", 60.0, False, True),
        ("sleep 0.5h", 1800.0, False, True),
        ("sleep 1d", 86400.0, False, True),
        ("sleep 1m 5s", 65.0, False, True),
        ("/bin/sleep 3", 3.0, False, True),
        ("sudo -u app sleep 2", 2.0, False, True),
        ("X=1 sleep '2'", 2.0, False, True),
        ("sleep 1; sleep 2\nsleep 3", 6.0, False, True),
        ("sleep 1 && sleep 2", 3.0, False, True),
        ("(sleep 2; sleep 3) > log 2>&1", 5.0, False, True),
        ("sleep 2 | sleep 3", 3.0, False, True),
        ("sleep 5 # sleep 60", 5.0, False, True),
        ("echo 'sleep 60'; sleep 2", 2.0, False, True),
        ("sleep 3 && curl localhost", 3.0, False, False),
        # a limit around it
        ("timeout 10 sleep 60", 10.0, False, True),
        ("timeout -k 5 10s sleep infinity", 10.0, False, True),
        ("timeout 0 sleep 6", 6.0, False, True),
        ("timeout 5 bash -c 'sleep 3; sleep 4'", 5.0, False, True),
        ("bash -lc 'sleep 3'", 3.0, False, True),
        ("echo waiting && sleep 2", 2.0, False, True),
        # only perhaps
        ("cd /app && sleep 2", 2.0, True, True),
        ("make && sleep 2", 2.0, True, False),
        ("sleep 1; make && sleep 2", 3.0, True, False),
        ("curl x || sleep 3", 3.0, True, False),
        ("if test -e x; then sleep 4; fi", 4.0, True, True),
        ("case $1 in a) sleep 1;; b) ls;; esac", 1.0, True, False),
        # the background
        ("sleep 60 & sleep 1", 1.0, False, True),
        ("sleep 5 & sleep 2; wait", 5.0, False, True),
        ("./server & sleep 3", 3.0, False, False),
    ],
)
def test_sleeps_are_read(command: str, seconds: float, upper: bool, alone: bool) -> None:
    assert sleep_plan(command) == SleepPlan(seconds, upper, alone)


@pytest.mark.parametrize(
    "command",
    [
        "",
        "ls",
        "echo sleep 5",
        "echo 'sleep 5'",
        "sleep",
        "sleep -1",
        "sleep five",
        "sleep $N",
        "sleep $(cat n)",
        "sleep infinity",
        "sleep 0",
        "sleep 5 &",
        "# sleep 5",
        "f() { sleep 5; }",
        "cat <<EOF > a.sh\nsleep 5\nEOF",
        "for i in 1 2 3; do sleep 1; done",
        "sleep 5; while ! curl x; do sleep 1; done",
        "until curl x; do sleep 1; done",
        "python sleep.py 5",
    ],
)
def test_what_is_no_known_sleep_claims_nothing(command: str) -> None:
    assert sleep_plan(command) is None


def test_deep_nesting_and_long_lines_end() -> None:
    assert sleep_plan("(" * 5000 + "sleep 1" + ")" * 5000) is None
    assert sleep_plan("bash -c " * 50 + "'sleep 1'") is None
    long = sleep_plan("sleep 1; " * 20_000)
    assert long is not None
    assert long.seconds < 2_000


@given(st.text(alphabet="sleep 15m&|;()'\"\\\n$`<>{}#dofi ", max_size=200))
def test_any_text_is_survived(text: str) -> None:
    plan = sleep_plan(text + " sleep 1")
    assert plan is None or 0.0 < plan.seconds < float("inf")
