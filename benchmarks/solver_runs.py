# SPDX-License-Identifier: Apache-2.0
"""One method on a list of snapshots, in a process of its own: what it crashes or hangs on is lost alone,
and its peak memory is its own.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import solver
from benchmarks import solver_rivals
from benchmarks.solver_instances import Size, snapshot
from benchmarks.solver_rivals import Answer
from solver.problem import Value
from tao_dynamo.errors import StackError, TaoError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection

    from solver.problem import Plan, Problem

OURS = {"exact": "exact", "dense-dp": "dp-cpu", "dense-dp-gpu": "dp-gpu", "bfd": "bfd", "short-first": "short-first"}
RIVALS = {"cp-sat": solver_rivals.cp_sat, "highs": solver_rivals.highs}
METHODS = (*OURS, *RIVALS)
START_LIMIT_S = 120.0
GRACE_S = 20.0
AWAKE_S, COLD_S = 0.005, 0.05
"""How long a process is at work, or asleep, before a solve that is timed."""
SMALL = Size(12, 3)
FIRST_SMALL_SEED = 1_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What each method may take: ``budget_ms`` ours, ``limit_s`` and ``threads`` the general solvers.

    ``cold``: the process has slept before each solve that is timed; else it has been at work.
    """

    budget_ms: float
    limit_s: float
    threads: int
    cold: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """One method on one snapshot. ``peak_mb`` is the process's, ``above_mb`` of it since it was warm."""

    size: Size
    kind: str
    seed: int
    method: str
    answer: Answer
    peak_mb: float
    above_mb: float


def read_runs(file: Path) -> list[Run]:
    """The runs that ``tao-bench solver --json`` has kept in a file.

    Raises:
        UsageError: it holds none.
    """
    try:
        return [_run_of(each) for each in json.loads(file.read_text(encoding="utf-8"))["runs"]]
    except (OSError, ValueError, LookupError, TypeError, UsageError) as error:
        raise UsageError("--add", str(file), f"a file that --json has written ({error})") from error


def _run_of(plain: dict[str, Any]) -> Run:
    answer = plain["answer"]
    value = Value(**answer["value"]) if answer["value"] else None
    return Run(**plain | {"size": Size.parse(plain["size"]), "answer": Answer(**answer | {"value": value})})


def make_solver(method: str, limits: Limits) -> Callable[[Problem], Answer]:
    """The function that answers one snapshot by ``method``; runs in the benchmark process."""
    if method in RIVALS:
        rival = RIVALS[method]
        return lambda problem: rival(problem, limits.limit_s, limits.threads)
    if method in ("exact", "dense-dp", "dense-dp-gpu"):
        solver.warm_up()

    def ours(problem: Problem) -> Answer:
        began = time.perf_counter()
        try:
            plan = solver.solve(problem, method=OURS[method], budget_ms=limits.budget_ms)
        except TaoError as error:
            return Answer(None, 0, time.perf_counter() - began, str(error))
        return Answer(plan.value, proven(plan), time.perf_counter() - began, plan.note)

    return ours


def proven(plan: Plan) -> int:
    """How many leading components of a plan meet its bound."""
    value, bound = plan.value, plan.bound
    met = (value.credit == bound.credit, value.ready == bound.ready, value.footprint == bound.footprint)
    return met.index(False) if False in met else len(met)


def run_method(
    method: str,
    size: Size,
    cases: Sequence[tuple[str, int]],
    limits: Limits,
    make: Callable[[str, Limits], Callable[[Problem], Answer]] = make_solver,
) -> Iterator[Run]:
    """Run ``method``, as ``make`` makes it, on every (kind, seed) of a size, in a fresh process.

    Raises:
        StackError: the process did not start.
    """
    left = list(cases)
    while left:
        context = multiprocessing.get_context("spawn")
        near, far = context.Pipe()
        process = context.Process(target=_work, args=(far, make, method, limits), daemon=True)
        process.start()
        far.close()
        try:
            if not near.poll(START_LIMIT_S):
                raise StackError(f"the process for {method} did not get ready within {START_LIMIT_S:g} s")
            warm_mb = _receive(near)
            while left:
                kind, seed = left.pop(0)
                near.send((size, kind, seed))
                if not near.poll(limits.limit_s + GRACE_S):
                    yield Run(size, kind, seed, method, Answer(None, 0, limits.limit_s + GRACE_S, "killed"), 0, 0)
                    break
                try:
                    answer, peak_mb = near.recv()
                except EOFError:
                    yield Run(size, kind, seed, method, Answer(None, 0, 0.0, "its process died"), 0, 0)
                    break
                yield Run(size, kind, seed, method, answer, peak_mb, peak_mb - warm_mb)
        finally:
            near.close()
            process.kill()
            process.join()


def _receive(connection: Connection) -> float:
    try:
        return float(connection.recv())
    except EOFError:
        raise StackError("a benchmark process died while it started; its output tells why") from None


def _work(
    connection: Connection,
    make: Callable[[str, Limits], Callable[[Problem], Answer]],
    method: str,
    limits: Limits,
) -> None:
    # Some solvers print a banner; standard output belongs to the table.
    os.dup2(2, 1)
    solve = make(method, limits)
    solve(snapshot(Size(6, 2), "tight-few", 0))
    # As the planner's process does: a full collection in the middle of a solve takes 60 ms once numba is loaded.
    gc.freeze()
    gc.disable()
    _reset_peak()
    connection.send(_peak_mb())
    while True:
        try:
            size, kind, seed = connection.recv()
        except EOFError:
            return
        given = snapshot(size, kind, seed)
        gc.collect()
        if limits.cold:
            time.sleep(COLD_S)
        else:
            _stay_awake(solve, kind)
        connection.send((solve(given), _peak_mb()))


def _stay_awake(solve: Callable[[Problem], Answer], kind: str) -> None:
    """Solve small snapshots, none that is ever timed.

    A process that a message has just woken finds the core's clock and caches cold, which costs some tenths of a
    millisecond: as much as the whole of a small solve.
    """
    end = time.perf_counter() + AWAKE_S
    seed = FIRST_SMALL_SEED
    while time.perf_counter() < end:
        solve(snapshot(SMALL, kind, seed))
        seed += 1


def _reset_peak() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        # Not Linux, or not allowed: the peak then counts the start as well.
        return


def _peak_mb() -> float:
    """Most memory this process has held. (``ru_maxrss`` would count what the parent held when it forked.)"""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(match[1]) / 1024 if match else 0.0
