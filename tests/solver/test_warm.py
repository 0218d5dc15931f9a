# SPDX-License-Identifier: Apache-2.0
"""Warm means warm: after `warm_up` nothing compiles any more; the cache works where the install is read-only."""

from __future__ import annotations

import inspect
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

from numba.core.dispatcher import Dispatcher

import solver
from solver import (
    clock,
    credit,
    credit_agree,
    credit_common,
    credit_search,
    credit_start,
    decompose,
    dp_cpu,
    exact,
    fill,
    knapsack,
    leftover,
    quick,
    settle,
    straight,
    tree,
)
from solver.jit import private_folder
from tests.solver.instances import KINDS, medium

MODULES = (
    *(clock, credit, credit_agree, credit_common, credit_search, credit_start, decompose, dp_cpu, exact),
    *(fill, knapsack, leftover, quick, settle, straight, tree),
)


def compiled_loops() -> dict[str, Dispatcher]:
    """Every compiled loop of the solver, by its own name."""
    return {
        f"{each.py_func.__module__}.{name}": each
        for module in MODULES
        for name, each in inspect.getmembers(module)
        if isinstance(each, Dispatcher)
    }


def signatures() -> dict[str, int]:
    return {name: len(each.signatures) for name, each in compiled_loops().items()}


def work_through() -> None:
    for kind in KINDS:
        for seed in range(3):
            exact.solve(medium(40, 4, kind, seed), 100.0)
        dp_cpu.solve(medium(12, 2, kind, 3))


def test_after_the_warm_up_nothing_is_compiled() -> None:
    """In a process of its own; a loop that only other loops call has no signature when they come from the cache."""
    code = (
        "from tests.solver import test_warm as t\n"
        "t.solver.warm_up()\n"
        "before = t.signatures()\n"
        "assert len(before) >= 25 and max(before.values()) == 1, before\n"
        "entries = ('straight._straight', 'settle.settle_ties', 'tree.advance', 'leftover.fill',"
        " 'fill.surrogate', 'dp_cpu._run_wide', 'credit_search.solve_credit', 'credit.by_node', 'settle.rooms_left',"
        " 'quick.arrange', 'quick.review_arrays')\n"
        "assert all(before['solver.' + entry] for entry in entries), before\n"
        "t.work_through()\n"
        "assert t.signatures() == before\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=110)


def test_a_later_process_is_warm_soon() -> None:
    """It loads what an earlier one has compiled."""
    solver.warm_up()
    code = (
        "from tests.solver import test_warm as t\n"
        "t.solver.warm_up()\n"
        "missed = [n for n, each in t.compiled_loops().items() if sum(each.stats.cache_misses.values())]\n"
        "assert not missed, missed\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=110)


def test_a_private_folder_is_ours_alone(tmp_path: Path) -> None:
    folder = private_folder(tmp_path)
    assert folder is not None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert private_folder(tmp_path) == folder
    folder.chmod(0o777)
    assert private_folder(tmp_path) is None
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    assert private_folder(tmp_path) is None
    assert private_folder(tmp_path / "not-there") is None


def test_a_read_only_install_compiles_into_the_temporary_folder(tmp_path: Path) -> None:
    """The source folder and the user's cache cannot be made: files stand where the folders would be."""
    install, home, temporary = tmp_path / "install", tmp_path / "home", tmp_path / "tmp"
    shutil.copytree(Path(solver.__file__).parent, install / "solver", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(Path(solver.__file__).parents[1] / "tao_dynamo", install / "tao_dynamo")
    (install / "solver" / "__pycache__").write_text("")
    home.mkdir()
    (home / ".cache").write_text("")
    temporary.mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    code = (
        "import solver.fill as f, numpy as n; assert f.holdable(n.array([2]), 3).tolist() == [0, 0, 2, 2];"
        "print(f.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=install,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.stdout.startswith(str(install))
    assert list(temporary.rglob("fill.holdable*.nbc"))
