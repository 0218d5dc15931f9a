# SPDX-License-Identifier: Apache-2.0
"""Nothing is left running, whatever dies first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launch.processes import Child, Command
from tests.launch.conftest import alive, wait_until

# Starts a child of its own that ignores SIGTERM, in a session of its own, and says both pids.
FAMILY = """
import os, signal, subprocess, sys, time
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
child.stdout.readline()
print(os.getpid(), child.pid, flush=True)
time.sleep(600)
"""


def family(tmp_path: Path, reaper: list[int], **more: float) -> tuple[Child, int, int]:
    """A guarded process with a stubborn child; (the guarded child, its pid, the pid of what it started)."""
    log = tmp_path / "family.log"
    child = Child(Command("family", (sys.executable, "-c", FAMILY)), log, **more)
    assert wait_until(lambda: len(log.read_text().split()) == 2)
    parent, grandchild = map(int, log.read_text().split())
    reaper += [parent, grandchild, child.guard_pid]
    assert parent == child.pid
    return child, parent, grandchild


def test_a_stop_ends_the_process_and_all_it_started(tmp_path: Path, reaper: list[int]) -> None:
    child, parent, grandchild = family(tmp_path, reaper)
    child.ask_to_stop()
    assert child.wait(10.0) == 128 + signal.SIGTERM
    assert not alive(parent)
    assert not alive(grandchild)


def test_what_a_killed_process_leaves_behind_is_ended(tmp_path: Path, reaper: list[int]) -> None:
    child, _parent, grandchild = family(tmp_path, reaper)
    child.send(signal.SIGKILL)
    assert child.wait(10.0) == 128 + signal.SIGKILL
    assert not alive(grandchild)


def test_a_process_that_ignores_the_request_is_killed_after_the_grace(tmp_path: Path, reaper: list[int]) -> None:
    log = tmp_path / "stubborn.log"
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    child = Child(Command("stubborn", (sys.executable, "-c", code)), log, grace_s=0.3)
    reaper.append(child.pid)
    assert wait_until(lambda: log.read_text() == "up\n")
    child.ask_to_stop()
    assert child.wait(10.0) == 128 + signal.SIGKILL


def test_a_killed_guard_takes_its_process_along(tmp_path: Path, reaper: list[int]) -> None:
    child, parent, _grandchild = family(tmp_path, reaper)
    os.kill(child.guard_pid, signal.SIGKILL)
    assert child.wait(10.0) == -signal.SIGKILL
    assert wait_until(lambda: not alive(parent))


def test_a_supervisor_that_is_killed_leaves_nothing(tmp_path: Path, reaper: list[int]) -> None:
    code = (
        "import sys, time; from pathlib import Path; from launch.processes import Child, Command\n"
        f"child = Child(Command('family', (sys.executable, '-c', {FAMILY!r})), Path(sys.argv[1]), grace_s=0.5)\n"
        "print(child.guard_pid, flush=True); time.sleep(600)"
    )
    log = tmp_path / "family.log"
    with subprocess.Popen([sys.executable, "-c", code, str(log)], stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        guard_pid = int(supervisor.stdout.readline())
        assert wait_until(lambda: log.is_file() and len(log.read_text().split()) == 2)
        pids = [guard_pid, *map(int, log.read_text().split())]
        reaper += pids
        supervisor.kill()
    assert wait_until(lambda: not any(alive(pid) for pid in pids))


def test_the_exit_code_and_the_output_come_through(tmp_path: Path) -> None:
    log = tmp_path / "short.log"
    child = Child(Command("short", (sys.executable, "-c", "import sys; print('hello'); sys.exit(7)")), log)
    assert child.wait(10.0) == 7
    assert log.read_text() == "hello\n"


def test_a_program_that_is_not_there_says_so(tmp_path: Path) -> None:
    log = tmp_path / "none.log"
    child = Child(Command("none", ("no-such-program-here",)), log)
    assert child.wait(10.0) == 127
    assert log.read_text() == "no-such-program-here: No such file or directory\n"


def test_variables_are_set_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAO_TEST_GONE", "x")
    code = "import os; print(os.environ.get('TAO_TEST_SET'), os.environ.get('TAO_TEST_GONE'))"
    command = Command("env", (sys.executable, "-c", code), env={"TAO_TEST_SET": "1", "TAO_TEST_GONE": None})
    log = tmp_path / "env.log"
    assert Child(command, log).wait(10.0) == 0
    assert log.read_text() == "1 None\n"
