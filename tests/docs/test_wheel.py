# SPDX-License-Identifier: Apache-2.0
"""The wheel: it builds, holds every file that is no source, and its commands work away from the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PACKAGES = ("tao_dynamo", "kv_events", "solver", "tool_hooks", "launch", "benchmarks")
NOT_SHIPPED = (".md", ".pyc")
COMMANDS = {
    "dynamo": "launch.cli",
    "tao": "tao_dynamo.top.cli",
    "tao-router": "tao_dynamo.__main__",
    "tao-events": "kv_events.__main__",
    "tao-tool": "tool_hooks.cli",
    "tao-bench": "benchmarks.cli",
}

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of what belongs to it, so that nothing of the build stays in the repository."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", str(out), str(source)]
    subprocess.run(command, check=True, timeout=300, stdout=subprocess.DEVNULL)
    (made,) = out.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel in it, which comes before everything else on the path of Python."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), str(wheel)]
    subprocess.run(command, check=True, timeout=300, stdout=subprocess.DEVNULL)
    return folder


def test_every_data_file_is_in_the_wheel(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*"):
            name = str(path.relative_to(ROOT))
            if path.is_file() and "__pycache__" not in name and not name.endswith(NOT_SHIPPED):
                assert name in inside, name
    assert any(name.endswith("licenses/LICENSE") for name in inside)
    assert not [name for name in inside if name.startswith(("tests/", "docs/", "examples/"))]


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith("METADATA")]
        text = opened.read(name).decode()
        (entries,) = [name for name in opened.namelist() if name.endswith("entry_points.txt")]
        scripts = opened.read(entries).decode()
    assert "License-Expression: Apache-2.0" in text
    assert "Requires-Python: <3.14,>=3.10" in text
    for command, module in COMMANDS.items():
        assert f"{command} = {module}:main" in scripts


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_works_away_from_the_repository(command: str, installed: Path, tmp_path: Path) -> None:
    module = COMMANDS[command]
    code = (
        f"import sys, {module} as m; assert m.__file__.startswith({str(installed)!r}), m.__file__; sys.exit(m.main())"
    )
    env = os.environ | {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1", "DYN_DISCOVERY_BACKEND": "file"}
    done = subprocess.run(
        [sys.executable, "-c", code, "--help"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout


def test_the_shipped_objects_are_found(installed: Path, tmp_path: Path) -> None:
    env = os.environ | {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "launch.cli", "manifests"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "kind: ConfigMap" in done.stdout


BLOCKED = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("dynamo", "xxhash", "yaml", "numpy", "uvloop"):
            raise ModuleNotFoundError(name=name.partition(".")[0])
sys.meta_path.insert(0, Nothing())
"""


@pytest.mark.parametrize(
    ("command", "words", "extra"),
    [
        ("tao-router", ["--endpoint", "a.b.c"], "dynamo"),
        ("tao-events", ["tail"], "router"),
        ("dynamo", ["manifests"], "dynamo"),
    ],
)
def test_where_an_extra_is_missing_a_line_says_which(command: str, words: list[str], extra: str) -> None:
    """A tool host has the base package only."""
    code = f"{BLOCKED}\nimport {COMMANDS[command]} as m; sys.exit(m.main())"
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(command)
    assert done.stderr.endswith(f"pip install 'tao-dynamo[{extra}]'\n"), done.stderr
