# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from solver import front
from solver import planner_wire as wire
from solver.columns import Ints, columns_of
from solver.json_io import problem_from_json
from solver.planner import SAVE_VARIABLE, Planner
from solver.problem import Candidate, Node, Plan, Problem
from tao_dynamo.errors import ProblemError, WireError

FAKE = "tests.solver.planner_engine"
NODES = (Node("a/0", 100_000), Node("b/0", 100_000))


def problem(first: str = "s0", n: int = 3) -> Problem:
    names = [first, *(f"s{i}" for i in range(1, n))]
    return Problem(NODES, tuple(Candidate(name, 20_000, True, 19_000, {"b/0": 5_000}) for name in names))


def large(seed: int = 1) -> Problem:
    rng = random.Random(seed)
    nodes = tuple(Node(f"{2**63 + i}/0", rng.randrange(200_000)) for i in range(64))
    candidates = tuple(
        Candidate(
            f"session-{i:08x}",
            rng.randrange(1, 60_000),
            rng.random() < 0.5,
            rng.randrange(60_000),
            {node.id: rng.randrange(50_000) for node in rng.sample(nodes, rng.choice([0, 1, 1, 2]))},
        )
        for i in range(1024)
    )
    return Problem(nodes, candidates)


def same_as_bfd(plan: Plan, given: Problem) -> bool:
    want = front.solve(given, method="bfd")
    return (plan.placements, plan.value, plan.bound) == (want.placements, want.value, want.bound)


def greedy(plan: Plan) -> bool:
    return "best-fit decreasing: planner" in plan.note


def wait_until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "did not come true in time"
        time.sleep(0.01)


@pytest.fixture
def planner() -> Iterator[Planner]:
    made = Planner(child=FAKE)
    made.start()
    yield made
    made.close()


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_one_snapshot_in_one_plan_out(planner: Planner) -> None:
    given = problem()
    assert planner.device == "fake device"
    assert same_as_bfd(planner.solve(given, budget_ms=30_000), given)
    counters = planner.counters
    assert (counters.solves, counters.cpu_solves, counters.gpu_solves) == (1, 1, 0)
    assert (counters.fallbacks, counters.restarts) == ({}, 0)


def test_before_it_is_warm_the_caller_gets_the_greedy_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAO_TEST_WARM", "slow")
    planner = Planner(child=FAKE)
    try:
        assert not planner.start(wait_s=0)
        assert same_as_bfd(planner.solve(problem()), problem())
        assert planner.counters.fallbacks == {"not_ready": 1}
    finally:
        planner.close()


def test_a_process_that_never_gets_warm_is_tried_again_and_stops_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TAO_TEST_WARM", "die")
    planner = Planner(child=FAKE)
    try:
        planner.start(wait_s=0)
        wait_until(lambda: planner.counters.restarts >= 2)
        assert same_as_bfd(planner.solve(problem()), problem())
    finally:
        planner.close()


@pytest.mark.parametrize(
    ("word", "reason", "overruns", "budget_ms"),
    [("hang", "overran", 1, 500), ("crash", "died", 0, 30_000), ("nonsense", "died", 0, 30_000)],
)
def test_a_process_that_fails_is_replaced_and_the_greedy_plan_returned(
    planner: Planner, word: str, reason: str, overruns: int, budget_ms: float
) -> None:
    first = planner.pid
    plan = planner.solve(problem(word), budget_ms=budget_ms)
    assert same_as_bfd(plan, problem(word))
    assert reason in plan.note
    assert planner.counters.fallbacks == {reason: 1}
    assert planner.counters.budget_overruns == overruns
    assert planner.start(wait_s=60)
    assert planner.pid != first
    assert planner.counters.restarts == 1
    planner.solve(problem(), budget_ms=30_000)
    assert planner.counters.cpu_solves == 1


def test_the_greedy_plan_comes_at_twice_the_budget(planner: Planner) -> None:
    began = time.monotonic()
    planner.solve(problem("hang"), budget_ms=200)
    assert time.monotonic() - began > 0.39
    # Past its budget but not past twice of it: late, and taken.
    planner.start(wait_s=60)
    assert not greedy(planner.solve(problem("slow:3.5"), budget_ms=3_000))


@pytest.mark.parametrize(("word", "reason"), [("raise", "failed")])
def test_a_solve_that_raises_leaves_the_process_alive(planner: Planner, word: str, reason: str) -> None:
    first = planner.pid
    assert same_as_bfd(planner.solve(problem(word), budget_ms=30_000), problem(word))
    assert planner.counters.fallbacks == {reason: 1}
    assert planner.pid == first
    assert planner.counters.restarts == 0


def test_a_bad_snapshot_is_refused_by_field_and_the_process_lives_on(planner: Planner) -> None:
    first = planner.pid
    with pytest.raises(ProblemError, match=r"candidates\[0\].cost: got 1.5"):
        planner.solve(Problem(NODES, (Candidate("s", 1.5, True, 1),)), budget_ms=30_000)  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="cost"):
        planner.solve(Problem(NODES, (Candidate("s", 2**70, True, 1),)), budget_ms=30_000)
    with pytest.raises(ProblemError, match="cost"):
        planner.solve(Problem(NODES, (Candidate("s", -1, True, 1),)), budget_ms=30_000)
    assert planner.pid == first
    assert same_as_bfd(planner.solve(problem(), budget_ms=30_000), problem())
    assert planner.counters.refused == 3
    assert planner.counters.restarts == 0


def test_where_memory_runs_out_it_goes_before_the_router(planner: Planner) -> None:
    assert int(Path(f"/proc/{planner.pid}/oom_score_adj").read_text(encoding="ascii")) >= 500


def test_the_latest_snapshots_are_saved_where_a_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kept"
    monkeypatch.setenv(SAVE_VARIABLE, str(folder))
    monkeypatch.setattr("solver.planner.SAVED", 3)
    planner = Planner(child=FAKE)
    for n in range(1, 6):
        planner.solve(problem(n=n))
    kept = [problem_from_json(file.read_text(encoding="utf-8")) for file in sorted(folder.iterdir())]
    assert kept == [problem(n=3), problem(n=4), problem(n=5)]
    blocked = tmp_path / "file"
    blocked.write_text("")
    planner = Planner(child=FAKE, save=blocked / "below")
    assert same_as_bfd(planner.solve(problem()), problem())


def test_device_faults_are_added_up(planner: Planner) -> None:
    for word in ("fault", "s0", "fault"):
        planner.solve(problem(word), budget_ms=30_000)
    assert planner.counters.device_faults == 2


def test_garbage_is_collected_between_snapshots(planner: Planner) -> None:
    for _ in range(4):
        assert not greedy(planner.solve(problem("cycle"), 5000))


def test_the_process_ignores_ctrl_c_and_loads_no_dynamo(planner: Planner) -> None:
    first = planner.pid
    planner.solve(problem("interrupt"), budget_ms=30_000)
    assert first is not None
    os.kill(first, signal.SIGINT)
    assert not greedy(planner.solve(problem("dynamo"), budget_ms=30_000))
    assert planner.pid == first


def test_killed_while_idle_it_is_replaced_without_being_asked(planner: Planner) -> None:
    first = planner.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: planner.pid not in (None, first))
    assert planner.counters.restarts == 1


def test_stopped_in_mid_transfer_it_is_killed(planner: Planner) -> None:
    first = planner.pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    given = large()
    assert same_as_bfd(planner.solve(given, budget_ms=150), given)
    assert planner.counters.fallbacks == {"overran": 1}
    wait_until(lambda: not alive(first))


def test_callers_take_turns(planner: Planner) -> None:
    slow = threading.Thread(target=planner.solve, args=(problem("slow:2"), 20_000))
    slow.start()
    wait_until(planner._turn.locked)
    assert "planner busy" in planner.solve(problem(), budget_ms=50).note
    assert not greedy(planner.solve(problem(), budget_ms=30_000))
    slow.join()


async def test_an_async_solve_does_not_hold_up_the_loop(planner: Planner) -> None:
    solve = asyncio.ensure_future(planner.solve_async(problem("slow:0.5"), budget_ms=30_000))
    turns = 0
    while not solve.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert not greedy(await solve)
    assert turns > 3, "the loop ran on"


async def test_a_cancelled_async_solve_does_not_spoil_the_next(planner: Planner) -> None:
    solve = asyncio.ensure_future(planner.solve_async(problem("slow:0.3"), budget_ms=30_000))
    await asyncio.sleep(0.05)
    solve.cancel()
    with pytest.raises(asyncio.CancelledError):
        await solve
    given = problem("another", 2)
    assert same_as_bfd(await planner.solve_async(given, budget_ms=30_000), given)


def test_the_real_solver_behind_it_proves_its_plan_and_survives_a_kill() -> None:
    planner = Planner()
    try:
        assert planner.start(wait_s=100)
        given = problem(n=30)
        best = front.solve(given, method="exact", budget_ms=30_000)
        assert best.optimal
        for _ in range(2):
            plan = planner.solve(given, budget_ms=30_000)
            assert not greedy(plan)
            assert (plan.value, plan.optimal) == (best.value, True)
            pid = planner.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda before=pid: planner.pid not in (None, before), 100)  # type: ignore[misc]
        with pytest.raises(ProblemError, match="of its own"):
            planner.solve(Problem(NODES, given.candidates[:1] * 2), budget_ms=30_000)
    finally:
        planner.close()


def test_closing_ends_the_process() -> None:
    planner = Planner(child=FAKE)
    planner.start()
    pid = planner.pid
    assert pid is not None
    planner.close()
    assert not alive(pid)
    planner.close()


_PARENT = """
import sys, threading
from solver.planner import Planner
from tests.solver.test_planner import FAKE, problem
planner = Planner(child=FAKE)
planner.start()
if sys.argv[1] == "busy":
    threading.Thread(target=planner.solve, args=(problem("pid:" + sys.argv[2]), 300), daemon=True).start()
else:
    open(sys.argv[2], "w").write(str(planner.pid))
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["idle", "busy"])
def test_it_dies_with_a_parent_that_is_killed(tmp_path: Path, kind: str) -> None:
    note = tmp_path / "pid"
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, kind, str(note)],
        stdin=subprocess.PIPE,
        cwd=Path(__file__).parent.parent.parent,
    )
    try:
        wait_until(lambda: note.exists() and note.read_text(encoding="ascii") != "")
        child = int(note.read_text(encoding="ascii"))
        assert alive(child)
    finally:
        parent.kill()
        parent.communicate()
    # A busy child that hangs is ended by its own timer: four budgets and two seconds.
    wait_until(lambda: not alive(child))


def test_a_thousand_solves_with_kills_in_between_lose_none(planner: Planner) -> None:
    rng = random.Random(3)
    stop = threading.Event()
    kills = 0

    def murder() -> None:
        nonlocal kills
        while not stop.wait(rng.uniform(0.02, 0.3)):
            pid = planner.pid
            if pid is not None:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                kills += 1

    killer = threading.Thread(target=murder)
    killer.start()
    try:
        for i in range(1000):
            given = problem(f"slow:{rng.choice([0, 0.002])}", 1 + i % 7)
            assert same_as_bfd(planner.solve(given, budget_ms=30_000), given)
    finally:
        stop.set()
        killer.join()
    counters = planner.counters
    assert kills > 0
    assert counters.solves == 1000
    assert counters.cpu_solves + sum(counters.fallbacks.values()) == 1000


def test_a_large_snapshot_crosses_whole() -> None:
    given = large()
    columns = columns_of(given)
    request = wire.read_request(wire.frame(wire.request(columns, 50.0, "auto"))[wire.LENGTH.size :])
    assert (request.budget_ms, request.method) == (50.0, "auto")
    got = request.columns()
    assert got.numbers.tolist() == columns.numbers.tolist()
    assert got.numbers.flags.writeable, "else every compiled loop would be compiled for it anew"
    assert (got.node_ids, got.candidate_ids) == (columns.node_ids, columns.candidate_ids)
    assert (got.quantum, got.seed, got.balance, got.tiered) == (1024, 0, True, False)


def test_what_a_crossing_takes_is_counted(planner: Planner) -> None:
    """How long that is, `tao-bench solver` says."""
    given = large()
    began = time.monotonic()
    assert same_as_bfd(planner.solve(given, budget_ms=30_000), given)
    assert 0 < planner.counters.transfer_s < time.monotonic() - began


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(WireError):
        wire.read_request(b"\x93\x01\x02\x03")
    with pytest.raises(WireError):
        wire.read_reply(b"\xc1")
    with pytest.raises(WireError):
        wire.length_of(b"\xff\xff\xff\xff")
    with pytest.raises(WireError):
        wire.frame(wire.request(columns_of(Problem(NODES, (), seed=2**80)), 1.0, "auto"))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda numbers: numbers[:-1],
        lambda numbers: numbers[:-2],
        lambda numbers: numbers[:0],
        lambda numbers: np.where(numbers == 20_000, -1, numbers),
        lambda numbers: np.where(numbers == 5_000, 1 << 41, numbers),
        # Node 1 of the credit of the last candidate, then the number of its credits.
        lambda numbers: np.concatenate((numbers[:8], [2], numbers[9:])),
        lambda numbers: np.concatenate((numbers[:2], [9], numbers[3:])),
    ],
)
def test_numbers_that_are_no_columns_are_refused(spoil: Callable[[Ints], Ints]) -> None:
    columns = columns_of(problem())
    assert wire.request(columns, 1.0, "auto").columns().coherent()
    with pytest.raises(WireError):
        wire.request(replace(columns, numbers=spoil(columns.numbers)), 1.0, "auto").columns()
    cut = wire.Request([], ["s"], bytearray(b"abc"), 1, 0, True, False, 1.0, "auto")
    with pytest.raises(WireError):
        cut.columns()


def test_a_snapshot_that_no_frame_can_hold_gets_the_greedy_plan(planner: Planner) -> None:
    given = Problem(NODES, problem().candidates, seed=2**80)
    assert "planner unpackable" in planner.solve(given).note
