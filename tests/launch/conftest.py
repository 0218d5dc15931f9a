# SPDX-License-Identifier: Apache-2.0
"""What the tests of ``launch`` share."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launch.stack import Stack


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    """Wait for a condition; False if it did not come true in time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


@pytest.fixture
def reaper() -> Iterator[list[int]]:
    """A list for pids: whatever of them still runs at the end of the test is killed."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


WORKER_HASH = "abc12345"


@pytest.fixture(scope="package")
def operated() -> Iterator[Stack]:
    """A graph whose workers' namespace ends in a hash, as Dynamo's operator has it."""
    with Stack("graphs/tao_agg:Frontend", workers=1, worker_namespace=f"workers-{WORKER_HASH}") as stack:
        yield stack
