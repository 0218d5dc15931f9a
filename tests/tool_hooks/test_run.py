# SPDX-License-Identifier: Apache-2.0
"""``tao-tool run`` as a black box: beside the bare command under pipes, and what the bus hears."""

from __future__ import annotations

import hashlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.tool_hooks.bus import Listener, Server, environment, free_port
from tool_hooks.events import ToolEvent

pytestmark = pytest.mark.nats

TAO = [sys.executable, "-m", "tool_hooks.cli", "run"]


def tao(*command: str, options: Sequence[str] = ()) -> list[str]:
    return [*TAO, *options, "--", *command]


def run(server: Server | None, command: Sequence[str], **how: object) -> subprocess.CompletedProcess[bytes]:
    env = environment(server, DYN_SESSION_ID="s1")
    return subprocess.run(command, env=env, capture_output=True, timeout=60, check=False, **how)  # type: ignore[call-overload, no-any-return]


def ended(events: list[ToolEvent]) -> bool:
    return any(event.kind in ("tool_end", "tool_error") for event in events)


@pytest.mark.parametrize(
    "command",
    [
        ["true"],
        ["false"],
        ["sh", "-c", "echo out; echo err >&2; exit 7"],
        ["sh", "-c", "cat; exit 3"],
        ["sh", "-c", "kill -TERM $$"],
        ["sh", "-c", "kill -KILL $$"],
        ["sh", "-c", "kill -INT $$; sleep 5"],
        ["sh", "-c", "exec 1>&-; echo gone >&2"],
        ["sh", "-c", "test -t 0 || test -t 1 || echo no terminal"],
        [sys.executable, "-c", "import os; os.write(1, bytes(range(256)) * 999)"],
        [sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGPIPE), signal.pthread_sigmask(0, []))"],
        [sys.executable, "-c", "import signal; print([signal.getsignal(n) == 0 for n in (1, 10, 12, 13, 14, 15, 17)])"],
    ],
    ids=lambda command: " ".join(command)[-40:],
)
def test_behaves_as_the_bare_command(server: Server, command: list[str]) -> None:
    bare = run(server, command, input=b"in\0put\xff")
    ours = run(server, tao(*command), input=b"in\0put\xff")
    assert (ours.returncode, ours.stdout, ours.stderr) == (bare.returncode, bare.stdout, bare.stderr)


def test_a_command_that_is_not_there(server: Server) -> None:
    done = run(server, tao("no-such-command"))
    assert (done.returncode, done.stdout) == (127, b"")
    assert done.stderr == b"tao-tool: no-such-command: No such file or directory\n"
    assert run(server, tao("/")).returncode == 126


def test_the_order_of_the_two_streams_on_one_pipe_stays(server: Server) -> None:
    script = "for i in $(seq 300); do echo o$i; echo e$i >&2; done"
    merged = subprocess.run(
        tao("sh", "-c", script),
        env=environment(server, DYN_SESSION_ID="s"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=True,
        timeout=60,
    )
    assert merged.stdout.decode().split() == [f"{which}{i}" for i in range(1, 301) for which in "oe"]


def test_files_and_sockets_as_output(server: Server, tmp_path: Path) -> None:
    env = environment(server, DYN_SESSION_ID="s")
    with (tmp_path / "out").open("ab") as out:
        out.write(b"before\n")
        out.flush()
        subprocess.run(tao("sh", "-c", "echo 1; echo 2 >&2"), env=env, stdout=out, stderr=out, check=True, timeout=60)
    assert (tmp_path / "out").read_bytes() == b"before\n1\n2\n"
    here, there = socket.socketpair()
    with here, there:
        subprocess.run(tao("echo", "hi"), env=env, stdout=there, check=True, timeout=60)
        assert here.recv(100) == b"hi\n"


def test_the_bus_hears_start_and_end(server: Server, listener: Listener) -> None:
    options = [
        "--eta",
        "250ms",
        "--timeout",
        "2m",
        "--class",
        "shell",
        "--key",
        "k",
        "--call-id",
        "c1",
        "--tenant",
        "t",
    ]
    run(server, tao("bash", "-c", "sleep 0.2 && exit 4", options=options))
    start, end = listener.wait_for(ended)
    assert (start.kind, start.session_id, start.tool_call_id, start.tool_class) == ("tool_start", "s1", "c1", "shell")
    assert (start.command, start.declared_s, start.timeout_s) == ("sleep 0.2 && exit 4", 0.25, 120.0)
    assert (start.tool_key, start.tenant) == ("k", "t")
    assert (end.kind, end.status, end.error_type) == ("tool_error", "error", "exit 4")
    assert end.duration_s is not None
    assert 0.2 <= end.duration_s < 5.0


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_progress_is_heard_and_the_output_is_not_touched(server: Server, listener: Listener, stream: str) -> None:
    show = f"print(f'tests.py .. [ {{20 * n}}%]', file=sys.{stream}, flush=True)"
    script = f"import sys, time\nfor n in range(1, 5):\n {show}\n time.sleep(0.15)\ntime.sleep(0.5)"
    bare = run(server, [sys.executable, "-c", script])
    ours = run(server, tao(sys.executable, "-c", script))
    assert (ours.stdout, ours.stderr) == (bare.stdout, bare.stderr)
    events = listener.wait_for(ended)
    said = [e.fraction for e in events if e.kind == "tool_progress"]
    # On a busy machine two lines may come at once; then the newer counts.
    assert said == [fraction for fraction in (0.2, 0.4, 0.6, 0.8) if fraction in said]
    assert said[-1] == 0.8


def test_without_a_session_the_command_replaces_the_shim(server: Server, listener: Listener) -> None:
    env = environment(server)
    child = subprocess.Popen(tao("sh", "-c", "echo $$"), env=env, stdout=subprocess.PIPE)
    out, _ = child.communicate(timeout=60)
    assert int(out) == child.pid
    assert listener.events == []


@pytest.fixture
def hang_up_is_heard() -> Iterator[None]:
    """Undo ``nohup`` for what is started, under which a run of these tests may be."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hang_up_is_heard")
def test_signals_reach_the_command_once(server: Server, listener: Listener) -> None:
    script = (
        "import signal, sys, time\n"
        "for n in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):\n"
        "    signal.signal(n, lambda n, f: print(signal.Signals(n).name, flush=True))\n"
        "print('up', flush=True)\n"
        "sys.stdin.read()\n"
    )
    child = subprocess.Popen(
        tao(sys.executable, "-c", script),
        env=environment(server, DYN_SESSION_ID="s"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == b"up\n"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        os.kill(child.pid, number)
        assert child.stdout.readline().decode().strip() == number.name
        os.killpg(child.pid, number)
        assert child.stdout.readline().decode().strip() == number.name
        time.sleep(0.1)
    child.stdin.close()
    assert child.stdout.read() == b""
    assert child.wait(60) == 0
    child.stdout.close()


def test_what_was_ignored_from_the_start_stays_ignored(server: Server) -> None:
    command = shlex.join(tao("sh", "-c", "kill -INT $$; kill -HUP $$; echo alive"))
    script = f"trap '' INT HUP; exec {command}"
    assert run(server, ["sh", "-c", script]).stdout == b"alive\n"


def test_when_the_shim_is_killed_the_command_goes_too_and_the_bus_hears_it(server: Server, listener: Listener) -> None:
    child = subprocess.Popen(
        tao("sh", "-c", "echo $$; exec sleep 60"),
        env=environment(server, DYN_SESSION_ID="s"),
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    command_pid = int(child.stdout.readline())
    child.kill()
    child.wait(60)
    end = listener.wait_for(ended)[-1]
    assert (end.kind, end.status, end.error_type) == ("tool_error", "cancelled", "Killed")
    child.stdout.close()
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline and _is_alive(command_pid):
        time.sleep(0.02)
    assert not _is_alive(command_pid)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_background_job_keeps_writing_after_the_command_has_left(server: Server, tmp_path: Path) -> None:
    go = tmp_path / "go"
    child = subprocess.Popen(
        # The job waits for a file that is made only after the command has been seen to leave.
        tao("sh", "-c", 'echo now; (until [ -e "$0" ]; do sleep 0.02; done; echo late) &', str(go)),
        env=environment(server, DYN_SESSION_ID="s"),
        stdout=subprocess.PIPE,
    )
    try:
        assert child.wait(60) == 0
    finally:
        go.touch()
    assert child.stdout is not None
    assert child.stdout.read() == b"now\nlate\n"
    child.stdout.close()


def test_a_reader_that_leaves_stops_the_command(server: Server) -> None:
    child = subprocess.Popen(tao("yes"), env=environment(server, DYN_SESSION_ID="s"), stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.read(2) == b"y\n"
    child.stdout.close()
    assert child.wait(60) == -signal.SIGPIPE


@pytest.mark.parametrize("address", ["nobody", "silent"])
def test_a_bus_that_is_away_changes_nothing(address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1] if address == "silent" else free_port()
        env = environment(None, DYN_SESSION_ID="s", NATS_SERVER=f"nats://127.0.0.1:{port}")
        done = subprocess.run(tao("echo", "hi"), env=env, capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"hi\n", b"")


@pytest.mark.parametrize(
    ("options", "what"),
    [(["--eta", "soon"], "--eta: got 'soon'"), (["--watch", "maybe"], "got 'maybe', want auto or off")],
)
def test_wrong_options_are_named(options: list[str], what: str) -> None:
    done = run(None, tao("true", options=options))
    assert done.returncode == 2
    assert what in done.stderr.decode()
    assert len(done.stderr.splitlines()) == 1


def test_no_command_is_an_error() -> None:
    done = run(None, TAO)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"want a command after --" in done.stderr


def test_a_thick_flow_arrives_byte_for_byte(server: Server) -> None:
    script = "import os\nfor n in range(400): os.write(1, bytes([n % 256]) * 70001); os.write(2, b'e' * 333)"
    done = run(server, tao(sys.executable, "-c", script))
    wanted = hashlib.sha256(b"".join(bytes([n % 256]) * 70001 for n in range(400))).hexdigest()
    assert hashlib.sha256(done.stdout).hexdigest() == wanted
    assert done.stderr == b"e" * 333 * 400
