# SPDX-License-Identifier: Apache-2.0
"""Logs of runs that have ended do not pile up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launch import run_folder

GONE = 2**22 + 7
"""No pid on Linux is as high."""


def test_the_latest_runs_and_whatever_is_not_ours_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder, "KEPT", 2)
    old = [tmp_path / f"tao-dynamo-{GONE}-00000{number}" for number in range(4)]
    running = tmp_path / f"tao-dynamo-{os.getpid()}-abcdef"
    others = [tmp_path / "tao-dynamo-notes", tmp_path / f"tao-dynamo-{GONE}-notours", tmp_path / "else"]
    for at, folder in enumerate([running, *others, *old]):
        folder.mkdir()
        (folder / "worker-0.log").write_text("x")
        os.utime(folder, (at, at))
    run_folder.sweep(tmp_path / f"tao-dynamo-{os.getpid()}-123456")
    assert sorted(tmp_path.iterdir()) == sorted([running, *others, *old[2:]])


def test_beside_a_folder_that_the_user_named_nothing_is_touched(tmp_path: Path) -> None:
    folders = [tmp_path / f"tao-dynamo-{GONE}-00000{number}" for number in range(9)]
    for folder in folders:
        folder.mkdir()
    run_folder.sweep(tmp_path / "mine")
    assert sorted(tmp_path.iterdir()) == folders


def test_a_new_folder_is_one_that_is_swept_later() -> None:
    assert run_folder._NAME.fullmatch(run_folder.new_run_folder().name)
