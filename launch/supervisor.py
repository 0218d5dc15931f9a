# SPDX-License-Identifier: Apache-2.0
"""Keeps the processes of a graph running until they are asked to stop.

Each child has a keeper: a thread that starts it, waits until it is healthy, waits until it ends, and starts it again
after a pause that doubles from 1 s to 30 s (and begins anew once the child has been healthy for a minute). A child that
ends before it was healthy for the first time is not started again: that is a wrong option or a missing package, and
its own last words are passed on.
"""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from launch.processes import Child, Command, exit_words
from tao_dynamo.errors import StackError

Tell = Callable[[str], None]

_PROBE_EVERY_S = 0.1
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0
_CALM_S = 60.0
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Dynamo logs an error for each probe that it answers by "not ready".
_OUR_PROBES = re.compile(r"tower_http::trace::on_failure")
_BLAME = re.compile(r"error|exception|invalid|refused|no module|not found|cannot", re.IGNORECASE)


class Keeper:
    """Runs one command, and runs it again when it ends.

    ``state`` is one of: new, starting, healthy, pausing (before a restart), stopped, failed.
    """

    def __init__(self, command: Command, log_path: Path, tell: Tell, *, start_timeout_s: float, grace_s: float) -> None:
        self.command = command
        self.log_path = log_path
        self.state = "new"
        self.why = ""
        self.restarts = 0
        self.child: Child | None = None
        self.healthy_after_s = 0.0
        self._tell = tell
        self._start_timeout_s = start_timeout_s
        self._grace_s = grace_s
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the child in the background; does nothing if it is being kept already."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._stopping.clear()
        self._set("starting")
        self._thread = threading.Thread(target=self._keep, name=f"keep-{self.command.name}", daemon=True)
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Ask the child to end, and do not start it again; returns at once."""
        self._stopping.set()
        if self.child is not None:
            self.child.ask_to_stop()

    def wait_stopped(self) -> None:
        """Wait for the end that was asked for; what is still there after the grace is killed."""
        if self._thread is None:
            return
        self._thread.join(self._grace_s + 2.0)
        if self._thread.is_alive() and self.child is not None:
            self.child.kill()
            self._thread.join(5.0)

    def wait_for(self, states: Sequence[str], timeout_s: float) -> bool:
        """Wait until the state is one of these; False if it was not within ``timeout_s`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self.state in states, timeout_s)

    def last_words(self) -> str:
        """The line of the log that best says why the child ended: the last that sounds like a complaint."""
        try:
            text = self.log_path.read_bytes()[-16_384:].decode(errors="replace")
        except OSError:
            return ""
        lines = [line.strip() for line in _COLOUR.sub("", text).splitlines()]
        lines = [line for line in lines if line and not _OUR_PROBES.search(line)]
        complaints = [line for line in lines if _BLAME.search(line)]
        return (complaints or lines or [""])[-1][:400]

    def _set(self, state: str, why: str = "") -> None:
        with self._changed:
            self.state, self.why = state, why
            self._changed.notify_all()

    def _keep(self) -> None:
        name = self.command.name
        pause_s = _FIRST_PAUSE_S
        first = True
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                child = self.child = Child(self.command, self.log_path, grace_s=self._grace_s)
            except (OSError, StackError) as error:
                self._set("failed", f"{name}: {error}")
                return
            if self._stopping.is_set():  # asked between the check and the start
                child.ask_to_stop()
            missing = self._await_health(child)
            if not missing:
                self.healthy_after_s = time.monotonic() - began
                self._set("healthy")
                if not first:
                    self._tell(f"{name} is healthy again (pid {child.pid})")
            elif first and not self._stopping.is_set():
                ended = not child.alive
                child.ask_to_stop()
                code = child.wait(self._grace_s + 2.0)
                words = f"{exit_words(code)}: {self.last_words()}" if ended else f"not healthy: {missing}"
                self._set("failed", f"{name}: {words} (log: {self.log_path})")
                return
            code = child.wait()
            if self._stopping.is_set():
                break
            first = False
            if not missing and time.monotonic() - began >= _CALM_S:
                pause_s = _FIRST_PAUSE_S
            self.restarts += 1
            self._set("pausing")
            self._tell(
                f"{name} ended ({exit_words(code)}); starting it again in {pause_s:g} s, restart {self.restarts}"
            )
            if self._stopping.wait(pause_s):
                break
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            self._set("starting")
        self._set("stopped")

    def _await_health(self, child: Child) -> str:
        """Probe until the child is healthy (returns ""), or it ends, is to stop or takes too long (what is missing)."""
        probe = self.command.ready
        deadline = time.monotonic() + self._start_timeout_s
        missing = "it ended"
        while child.alive and not self._stopping.is_set():
            missing = probe() if probe is not None else ""
            if not missing:
                return ""
            if time.monotonic() > deadline:
                return f"{missing} after {self._start_timeout_s:g} s"
            child.wait(_PROBE_EVERY_S)
        return missing


class Supervisor:
    """All children of a graph.

    Args:
        commands: in the order in which to start them. The first is waited for before the others are started if it is
            NATS; the others start together.
        run_dir: where the logs go, one file per child.
        tell: called with each line for the user; from any thread.
    """

    def __init__(
        self,
        commands: Sequence[Command],
        run_dir: Path,
        *,
        tell: Tell,
        start_timeout_s: float = 120.0,
        grace_s: float = 10.0,
    ) -> None:
        self.keepers = {
            command.name: Keeper(
                command, run_dir / f"{command.name}.log", tell, start_timeout_s=start_timeout_s, grace_s=grace_s
            )
            for command in commands
        }
        self._tell = tell
        self._start_timeout_s = start_timeout_s

    def start(self, cancelled: threading.Event | None = None) -> bool:
        """Start everything and wait until all are healthy, saying so one by one.

        Returns:
            False if ``cancelled`` was set meanwhile; ``close`` is then the caller's to call, as always.

        Raises:
            StackError: a child ended, or did not become healthy in time.
        """
        cancelled = cancelled or threading.Event()
        waiting = list(self.keepers.values())
        first = [keeper for keeper in waiting if keeper.command.name == "nats"]
        for stage in (first, [keeper for keeper in waiting if keeper not in first]):
            for keeper in stage:
                keeper.start()
            if not self._await(stage, cancelled):
                return False
        return True

    def _await(self, keepers: list[Keeper], cancelled: threading.Event) -> bool:
        waiting = list(keepers)
        while waiting:
            if cancelled.is_set():
                return False
            for keeper in list(waiting):
                if keeper.state == "failed":
                    raise StackError(keeper.why)
                if keeper.state == "healthy":
                    shows = f"  {keeper.command.shows}" if keeper.command.shows else ""
                    pid = keeper.child.pid if keeper.child is not None else 0
                    self._tell(
                        f"  {keeper.command.name:<20} healthy after {keeper.healthy_after_s:4.1f} s  pid {pid}{shows}"
                    )
                    waiting.remove(keeper)
            cancelled.wait(0.05)
        return True

    def failure(self) -> str:
        """Why a child was given up for good; "" while all are being kept."""
        return next((keeper.why for keeper in self.keepers.values() if keeper.state == "failed"), "")

    def send(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to a child's own process; what ends is started again."""
        child = self._keeper(name).child
        if child is not None:
            child.send(number)

    def stop(self, name: str) -> None:
        """Stop one child and leave it stopped."""
        self._keeper(name).ask_to_stop()
        self._keeper(name).wait_stopped()

    def start_again(self, name: str) -> None:
        """Start a stopped child and wait until it is healthy."""
        keeper = self._keeper(name)
        keeper.start()
        self.wait_healthy(name)

    def wait_healthy(self, name: str, timeout_s: float | None = None) -> None:
        """Wait until a child is healthy.

        Raises:
            StackError: it is not, within the time for starting.
        """
        keeper = self._keeper(name)
        keeper.wait_for(("healthy", "failed"), self._start_timeout_s if timeout_s is None else timeout_s)
        if keeper.state != "healthy":
            raise StackError(keeper.why or f"{name}: still {keeper.state}")

    def wait_restarted(self, name: str, restarts: int, timeout_s: float = 60.0) -> None:
        """Wait until a child has been started again that many times in all, and is healthy."""
        deadline = time.monotonic() + timeout_s
        keeper = self._keeper(name)
        while keeper.restarts < restarts and time.monotonic() < deadline:
            keeper.wait_for(("pausing", "starting", "failed", "stopped"), deadline - time.monotonic())
            time.sleep(0.02)
        self.wait_healthy(name, max(0.1, deadline - time.monotonic()))

    def close(self) -> None:
        """Stop everything: NATS last, the others at once. Leaves no process behind."""
        nats = [keeper for keeper in self.keepers.values() if keeper.command.name == "nats"]
        for stage in ([keeper for keeper in self.keepers.values() if keeper not in nats], nats):
            for keeper in stage:
                keeper.ask_to_stop()
            for keeper in stage:
                keeper.wait_stopped()

    def kill_all(self) -> None:
        """Kill everything at once, for those who cannot wait; ``close`` still has to be called."""
        for keeper in self.keepers.values():
            keeper.ask_to_stop()
            if keeper.child is not None:
                keeper.child.kill()

    def _keeper(self, name: str) -> Keeper:
        if name not in self.keepers:
            raise StackError(f"no child {name}; there are {', '.join(self.keepers)}")
        return self.keepers[name]
