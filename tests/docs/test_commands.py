# SPDX-License-Identifier: Apache-2.0
"""What the pages tell the reader to type exists, and what is marked as runnable runs."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.stack import Stack
from tests.docs.pages import ROOT, Block, blocks, commands

BIN = Path(sys.executable).parent
OURS = ("dynamo", "tao", "tao-bench", "tao-events", "tao-router", "tao-tool")
SUBCOMMANDS = {"dynamo", "tao", "tao-bench", "tao-events", "tao-tool"}
MODULES = {
    "tao_dynamo": ["tao-router"],
    "benchmarks.cli": ["tao-bench"],
    "benchmarks.demo": ["python", "-m", "benchmarks.demo"],
    "benchmarks.hook_overhead": ["python", "-m", "benchmarks.hook_overhead"],
    "dynamo.frontend": ["python", "-m", "dynamo.frontend"],
    "dynamo.mocker": ["python", "-m", "dynamo.mocker"],
    "solver": ["python", "-m", "solver"],
}
NOT_OURS = {"--TaoRouter", "--Worker", "--Frontend", "--KvRouter"}
"""Options of services, which ``dynamo serve`` hands on."""

pytestmark = pytest.mark.timeout(400)

SHELL = [block for block in blocks() if block.language in ("sh", "bash", "console")]
RUNNABLE = [block for block in SHELL if block.run]


@functools.cache
def help_of(*words: str) -> str:
    """What ``words --help`` says."""
    env = {**os.environ, "DYN_DISCOVERY_BACKEND": "file", "COLUMNS": "200"}
    done = subprocess.run(
        [str(BIN / words[0]), *words[1:], "--help"], capture_output=True, text=True, timeout=200, check=False, env=env
    )
    assert done.returncode == 0, f"{words} --help: {done.stderr}"
    return done.stdout


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def known(words: list[str]) -> str | None:
    """The help to hold the words' flags against; None for commands of other people."""
    if words[0].startswith(".venv/bin/"):
        words = [words[0].removeprefix(".venv/bin/"), *words[1:]]
    if words[:2] in (["python", "-m"], ["python3", "-m"]):
        return help_of(*MODULES[words[2]]) if words[2] in MODULES else None
    if words[0] not in OURS:
        return None
    if words[0] in SUBCOMMANDS and len(words) > 1 and not words[1].startswith("-"):
        top, sub = help_of(words[0]), words[1]
        assert re.search(rf"\b{re.escape(sub)}\b", top), f"{words[0]} has no {sub}"
        return help_of(words[0], sub)
    return help_of(words[0])


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.where)
def test_commands_and_flags_exist(block: Block) -> None:
    for words in commands(block.text):
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= targets(), words
            continue
        shown = known(words)
        if shown is None:
            continue
        stop = words.index("--") if "--" in words else len(words)
        for word in words[1:stop]:
            flag = word.partition("=")[0]
            if flag.startswith("--") and flag.partition(".")[0] not in NOT_OURS:
                assert re.search(rf"{re.escape(flag)}\b", shown), f"{block.where}: {' '.join(words)}: no {flag}"


def test_the_convention_is_used() -> None:
    assert len(SHELL) > 15
    assert {block.run for block in RUNNABLE} == {"run", "run: graph"}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    config = {"Worker": {"num-gpu-blocks-override": 1024, "speedup-ratio": 8}}
    with Stack("graphs/tao_agg:Frontend", workers=2, config=config) as running:
        yield running


def run(block: Block, **more: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("NATS_", "DYN_"))}
    env |= {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **more}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=env,
        cwd=ROOT,
    )
    assert done.returncode == 0, f"{block.where}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("block", [b for b in RUNNABLE if b.run == "run"], ids=lambda block: block.where)
def test_runnable_blocks_run(block: Block) -> None:
    run(block)


@pytest.mark.dynamo
@pytest.mark.parametrize("block", [b for b in RUNNABLE if b.run != "run"], ids=lambda block: block.where)
def test_blocks_run_beside_a_graph(block: Block, stack: Stack) -> None:
    page = f"http://127.0.0.1:{stack.system_port('tao-router')}/"
    run(block, NATS_SERVER=stack.nats_url, DYN_NAMESPACE="tao", DYN_TAO_PAGE_URL=page, FRONTEND=stack.url)
