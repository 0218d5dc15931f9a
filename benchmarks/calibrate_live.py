# SPDX-License-Identifier: Apache-2.0
"""Live runs on mock workers, each beside a simulation of the same sessions on the same cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmarks.metrics import Figures
from benchmarks.policies import named as policy_named
from benchmarks.policies import names
from benchmarks.simulator.setups import mocker
from benchmarks.simulator.world import World
from benchmarks.traces import load
from benchmarks.workload import choose
from tao_dynamo.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarks.traces import Session

Pairs: TypeAlias = dict[str, list[tuple[dict[str, Any], Figures]]]
"""Policy: for each seed or repetition the reference's figures and the simulator's."""

TIMES = ("latency_mean_s", "latency_p95_s", "ttft_mean_s", "ttft_p95_s", "turn_mean_s", "turn_p95_s", "makespan_s")
RATES = ("decode_tokens_per_s",)
SHARES = ("cache_hit_share",)


def pairs(runs: Path, source: Path) -> Pairs:
    """Every run of the file that the simulator can repeat; sessions are looked for in ``source``.

    Raises:
        TraceError: there is none, or a line is no run.
    """
    found: Pairs = {}
    simulated: dict[str, Figures] = {}
    for run in _runs(runs):
        policy = str(run["policy"])
        if run["engine"] != "mocker" or policy not in names():
            continue
        if policy not in simulated:
            simulated[policy] = simulate(run, _sessions(run, source))
        found.setdefault(policy, []).append((at_recorded_speed(run), simulated[policy]))
    if not found:
        raise TraceError(str(runs), "no run of the mock engine", "at least one")
    return found


def at_recorded_speed(run: Mapping[str, Any]) -> dict[str, Any]:
    """A live run's figures as they would be at the recorded speed of tools and engine."""
    speed = run["speed"]
    times = {key: run[key] * speed for key in TIMES}
    return times | {key: run[key] / speed for key in RATES} | {key: run[key] for key in SHARES}


def simulate(run: Mapping[str, Any], sessions: Sequence[Session]) -> Figures:
    """The simulator's figures for a live run's settings."""
    setup = mocker(run["workers"], run["blocks"], block_size=run["block_size"], like=run["timing"])
    world = World(setup, policy_named(run["policy"]), sessions, concurrency=run["concurrency"], seed=run["seed"])
    return world.run()


def _sessions(run: Mapping[str, Any], source: Path) -> Sequence[Session]:
    file = source / f"{run['source']}.jsonl" if source.is_dir() else source
    if file.stem != run["source"]:
        raise TraceError("--traces", str(source), f"the file {run['source']}.jsonl of the live run, or its folder")
    chosen = choose(
        load(file),
        count=run["sessions"],
        seed=run["seed"],
        max_turns=run["max_turns"],
        max_prompt_tokens=run["max_prompt_tokens"],
        max_pause_s=run["max_pause"],
    )
    return chosen.sessions


def _runs(file: Path) -> Iterable[dict[str, Any]]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise TraceError("--live", str(file), f"a file of live runs ({error.strerror})") from error
    for number, text in enumerate(lines, 1):
        try:
            run = json.loads(text)
            run["policy"], run["engine"], run["speed"]
        except (ValueError, KeyError, TypeError) as error:
            raise TraceError(f"{file.name}:{number}", text[:60], "a line of tao-bench live") from error
        yield run
