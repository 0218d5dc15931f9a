# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launch.processes import Command
from launch.supervisor import Supervisor
from tao_dynamo.errors import StackError
from tests.launch.conftest import alive, wait_until


def sleeper(name: str, tmp_path: Path) -> Command:
    """A child that is healthy once it has written a file."""
    flag = tmp_path / f"{name}.up"
    code = f"import pathlib, time; pathlib.Path({str(flag)!r}).touch(); time.sleep(600)"
    return Command(name, (sys.executable, "-c", code), ready=lambda: "" if flag.is_file() else "no file yet", shows="x")


@contextmanager
def supervised(tmp_path: Path, *commands: Command, **more: float) -> Iterator[tuple[Supervisor, list[str]]]:
    lines: list[str] = []
    supervisor = Supervisor(commands, tmp_path, tell=lines.append, **more)
    try:
        yield supervisor, lines
    finally:
        supervisor.close()


def test_all_start_and_say_so_and_all_stop(tmp_path: Path) -> None:
    with supervised(tmp_path, sleeper("a", tmp_path), sleeper("b", tmp_path)) as (supervisor, lines):
        assert supervisor.start()
        pids = [keeper.child.pid for keeper in supervisor.keepers.values() if keeper.child]
        assert len(pids) == 2
        assert all(alive(pid) for pid in pids)
        assert sorted(line.split()[0] for line in lines) == ["a", "b"]
    assert not any(alive(pid) for pid in pids)
    assert {keeper.state for keeper in supervisor.keepers.values()} == {"stopped"}


def test_a_child_that_dies_is_started_again_and_said_so(tmp_path: Path) -> None:
    with supervised(tmp_path, sleeper("a", tmp_path)) as (supervisor, lines):
        supervisor.start()
        keeper = supervisor.keepers["a"]
        assert keeper.child is not None
        first = keeper.child.pid
        supervisor.send("a")
        supervisor.wait_restarted("a", 1, timeout_s=10.0)
        assert keeper.child.pid != first
        assert not alive(first)
        assert lines[1] == "a ended (killed by SIGKILL); starting it again in 1 s, restart 1"
        assert wait_until(lambda: len(lines) == 3)
        assert lines[2].startswith("a is healthy again (pid ")


def test_the_pause_before_a_restart_doubles(tmp_path: Path) -> None:
    flag = tmp_path / "ran"
    code = (
        f"import pathlib, sys, time; p = pathlib.Path({str(flag)!r})\n"
        "sys.exit(3) if p.exists() else p.touch(); time.sleep(600)"
    )
    command = Command("a", (sys.executable, "-c", code), ready=lambda: "" if flag.is_file() else "no file yet")
    with supervised(tmp_path, command) as (supervisor, lines):
        supervisor.start()
        supervisor.send("a", signal.SIGTERM)
        assert wait_until(lambda: len(lines) >= 3 and "restart 2" in lines[-1], 8.0)
        assert "killed by SIGTERM); starting it again in 1 s, restart 1" in lines[1]
        assert [line for line in lines if "exit code 3); starting it again in 2 s, restart 2" in line]


def test_a_child_that_never_was_healthy_fails_with_its_own_words(tmp_path: Path) -> None:
    code = (
        "import sys; print('starting'); sys.stderr.write('\\x1b[31mprog: error: no flag --x\\x1b[0m\\n')\n"
        "print('ERROR tower_http::trace::on_failure: response failed'); print('bye'); sys.exit(2)"
    )
    command = Command("bad", (sys.executable, "-c", code), ready=lambda: "not yet")
    with supervised(tmp_path, sleeper("a", tmp_path), command) as (supervisor, _), pytest.raises(StackError) as caught:
        supervisor.start()
    assert str(caught.value) == f"bad: exit code 2: prog: error: no flag --x (log: {tmp_path / 'bad.log'})"


def test_a_child_that_is_never_healthy_fails_with_what_is_missing(tmp_path: Path) -> None:
    command = Command("slow", (sys.executable, "-c", "import time; time.sleep(600)"), ready=lambda: "not there yet")
    with supervised(tmp_path, command, start_timeout_s=0.3) as (supervisor, _), pytest.raises(StackError) as caught:
        supervisor.start()
    assert str(caught.value).startswith("slow: not healthy: not there yet after 0.3 s (log: ")


def test_starting_can_be_broken_off(tmp_path: Path) -> None:
    cancelled = threading.Event()
    command = Command("slow", (sys.executable, "-c", "import time; time.sleep(600)"), ready=lambda: "not there yet")
    with supervised(tmp_path, command) as (supervisor, _):
        threading.Timer(0.3, cancelled.set).start()
        assert supervisor.start(cancelled) is False
        child = supervisor.keepers["slow"].child
    assert child is not None
    assert not alive(child.pid)


def test_a_child_can_be_stopped_and_started_by_name(tmp_path: Path) -> None:
    with supervised(tmp_path, sleeper("a", tmp_path)) as (supervisor, lines):
        supervisor.start()
        keeper = supervisor.keepers["a"]
        assert keeper.child is not None
        first = keeper.child.pid
        supervisor.stop("a")
        assert keeper.state == "stopped"
        assert not alive(first)
        supervisor.start_again("a")
        assert keeper.state == "healthy"
        assert keeper.restarts == 0
        assert len(lines) == 1
        with pytest.raises(StackError, match="no child b; there are a"):
            supervisor.stop("b")


def test_everything_can_be_killed_at_once(tmp_path: Path) -> None:
    with supervised(tmp_path, sleeper("a", tmp_path)) as (supervisor, _):
        supervisor.start()
        child = supervisor.keepers["a"].child
        supervisor.kill_all()
        assert child is not None
        assert wait_until(lambda: not alive(child.pid))
