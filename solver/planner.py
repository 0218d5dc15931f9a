# SPDX-License-Identifier: Apache-2.0
"""The planner: solves in a process of its own, so that no solve can stop the router.

One snapshot in, one plan out. The budget is enforced from outside: past twice its budget the process is
killed and replaced, and the caller gets best-fit decreasing's plan meanwhile (DESIGN §4.3, §4.4). A solve
returns a plan whatever happens to the process; only a snapshot that breaks a rule raises.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from solver import planner_wire as wire
from solver.columns import Columns, columns_of
from solver.front import solve as solve_here
from solver.json_io import problem_to_json
from solver.planner_link import PlannerLink
from tao_dynamo.errors import (
    BudgetExceededError,
    PlannerDiedError,
    ProblemError,
    SolverError,
    WireError,
)

if TYPE_CHECKING:
    from solver.problem import Plan, Problem

_log = logging.getLogger(__name__)

KILL_FACTOR = 2.0
FIRST_BACKOFF_S = 0.5
LAST_BACKOFF_S = 30.0
SAVE_VARIABLE = "DYN_TAO_SAVE_SNAPSHOTS"
"""Names a folder in which the latest snapshots are kept as JSON, for `python -m solver`; unset: none are."""
SAVED = 100
"""How many of them."""


@dataclass(frozen=True, slots=True)
class PlannerCounters:
    """What the planner has done since it was made.

    ``fallbacks`` counts the plans that best-fit decreasing made, by reason: ``not_ready`` (the process
    starts or is being replaced), ``busy`` (another caller's solve took the whole time), ``overran``,
    ``died`` (ended or spoke nonsense in mid-solve), ``failed`` (the solve raised) and ``unpackable``.
    ``transfer_s`` is what the last solve spent outside the process's own work: reading and checking the
    snapshot, packing, pipes, unpacking.
    """

    solves: int = 0
    cpu_solves: int = 0
    gpu_solves: int = 0
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    refused: int = 0
    budget_overruns: int = 0
    device_faults: int = 0
    restarts: int = 0
    transfer_s: float = 0.0


class Planner:
    """A warm solver in its own process, replaced whenever it dies or hangs.

    Args:
        method: handed to ``solver.solve``.
        child: the module whose ``main`` the process runs.
        warm_limit_s: how long a start may take before the process is replaced.
        save: folder for the latest snapshots, None for none; default: what ``DYN_TAO_SAVE_SNAPSHOTS`` names.
    """

    def __init__(
        self,
        *,
        method: str = "auto",
        child: str = "solver.planner_child",
        warm_limit_s: float = 300.0,
        save: Path | None = None,
    ) -> None:
        named = os.environ.get(SAVE_VARIABLE)
        self._save = save or (Path(named) if named else None)
        self._method = method
        self._child = child
        self._warm_limit_s = warm_limit_s
        self._turn = threading.Lock()
        self._state = threading.Lock()
        self._ready = threading.Event()
        self._closing = threading.Event()
        self._process: PlannerLink | None = None  # the latest, warm or not
        self._link: PlannerLink | None = None  # the same once it is warm and until it fails
        self._supervisor: threading.Thread | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._device = ""
        self._counters = PlannerCounters()
        self._fallbacks: Counter[str] = Counter()

    def start(self, *, wait_s: float = 60.0) -> bool:
        """Start the process; wait up to ``wait_s`` seconds for it to be warm, 0 to go on at once.

        Returns whether it is warm. Until it is, solves return best-fit decreasing's plan.
        """
        if self._supervisor is None:
            self._supervisor = threading.Thread(target=self._supervise, name="tao-planner", daemon=True)
            self._supervisor.start()
        return self._ready.wait(wait_s)

    @property
    def counters(self) -> PlannerCounters:
        """What has been counted so far."""
        with self._state:
            return replace(self._counters, fallbacks=dict(self._fallbacks))

    @property
    def device(self) -> str:
        """The GPU that the process uses, empty without one."""
        return self._device

    @property
    def pid(self) -> int | None:
        """The warm process's id, None while there is none."""
        link = self._link
        return link.pid if link else None

    def solve(self, problem: Problem, budget_ms: float = 50.0) -> Plan:
        """Return a plan for one snapshot, by twice ``budget_ms`` milliseconds at the latest.

        Blocks; safe from any thread, one solve at a time.

        Raises:
            ProblemError: the snapshot breaks a rule.
        """
        began = time.monotonic()
        deadline = began + KILL_FACTOR * budget_ms / 1e3
        with self._state:
            self._counters = replace(self._counters, solves=self._counters.solves + 1)
            number = self._counters.solves
        if self._save is not None:
            self._keep(self._save / f"snapshot-{number % SAVED:02d}.json", problem)
        try:
            columns = columns_of(problem)
        except ProblemError:
            with self._state:
                self._counters = replace(self._counters, refused=self._counters.refused + 1)
            raise
        try:
            request = wire.frame(wire.request(columns, budget_ms, self._method))
        except WireError:
            return self._fall_back(columns, "unpackable")
        if not self._turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return self._fall_back(columns, "busy")
        try:
            link = self._link
            if link is None:
                return self._fall_back(columns, "not_ready")
            return self._ask(link, columns, request, began, deadline)
        finally:
            self._turn.release()

    async def solve_async(self, problem: Problem, budget_ms: float = 50.0) -> Plan:
        """Solve as ``solve`` does, without holding up the event loop."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="tao-planner-solve")
        return await asyncio.get_running_loop().run_in_executor(self._executor, self.solve, problem, budget_ms)

    def close(self) -> None:
        """End the process and the threads; a solve under way returns best-fit decreasing's plan."""
        with self._state:
            self._closing.set()
            if self._process is not None:
                self._process.kill()
        if self._supervisor is not None:
            self._supervisor.join(timeout=10.0)
            self._supervisor = None
        if self._executor is not None:
            self._executor.shutdown(wait=True)
            self._executor = None

    def _ask(self, link: PlannerLink, columns: Columns, request: bytes, began: float, deadline: float) -> Plan:
        try:
            reply = link.ask(request, deadline)
        except BudgetExceededError:
            self._drop(link)
            with self._state:
                self._counters = replace(self._counters, budget_overruns=self._counters.budget_overruns + 1)
            return self._fall_back(columns, "overran")
        except PlannerDiedError as error:
            self._drop(link)
            _log.warning("planner process lost in mid-solve: %s", error)
            return self._fall_back(columns, "died")
        if isinstance(reply, wire.Solved):
            self._count(reply, time.monotonic() - began)
            return reply.plan
        if isinstance(reply, wire.Failed):
            _log.warning("solve failed: %s", reply.error)
            return self._fall_back(columns, "failed")
        self._drop(link)
        return self._fall_back(columns, "died")

    def _count(self, reply: wire.Solved, elapsed_s: float) -> None:
        gpu = "gpu" in reply.plan.method
        with self._state:
            old = self._counters
            self._counters = replace(
                old,
                gpu_solves=old.gpu_solves + gpu,
                cpu_solves=old.cpu_solves + (not gpu),
                device_faults=old.device_faults + reply.device_faults,
                transfer_s=max(0.0, elapsed_s - reply.busy_s),
            )

    def _fall_back(self, columns: Columns, reason: str) -> Plan:
        with self._state:
            self._fallbacks[reason] += 1
        plan = solve_here(columns, method="bfd")
        why = f"best-fit decreasing: planner {reason.replace('_', ' ')}"
        return replace(plan, note=f"{why}; {plan.note}" if plan.note else why)

    def _keep(self, file: Path, problem: Problem) -> None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(problem_to_json(problem) + "\n", encoding="utf-8")
        except (OSError, TypeError, ValueError) as error:
            _log.warning("snapshots are no longer saved: %s", error)
            self._save = None

    def _drop(self, link: PlannerLink) -> None:
        """Take a broken process out of use; the supervisor replaces it."""
        with self._state:
            if self._link is link:
                self._link = None
                self._ready.clear()
        link.kill()

    def _supervise(self) -> None:
        """Keep one warm process: start it, wait for its end, start the next."""
        backoff = FIRST_BACKOFF_S
        while not self._closing.is_set():
            warm = False
            try:
                link = PlannerLink(self._child)
            except OSError as error:
                _log.warning("planner process cannot be started: %s", error)
            else:
                with self._state:
                    self._process = link
                    if self._closing.is_set():
                        link.kill()
                warm = self._warm(link)
                if warm:
                    link.gone.wait()
                self._drop(link)
                link.close()
            if self._closing.is_set():
                return
            with self._state:
                self._counters = replace(self._counters, restarts=self._counters.restarts + 1)
            # One that had been warm is replaced at once; one that never was may never be.
            if warm:
                backoff = FIRST_BACKOFF_S
            else:
                self._closing.wait(backoff)
                backoff = min(2 * backoff, LAST_BACKOFF_S)

    def _warm(self, link: PlannerLink) -> bool:
        try:
            reply = link.receive(time.monotonic() + self._warm_limit_s)
        except SolverError as error:
            if not self._closing.is_set():
                _log.warning("planner process did not get warm: %s", error)
            return False
        if not isinstance(reply, wire.Ready):
            return False
        with self._state:
            self._device = reply.device
            self._link = link
            self._ready.set()
        return True
