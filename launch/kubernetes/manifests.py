# SPDX-License-Identifier: Apache-2.0
"""``dynamo manifests``: what to give to ``kubectl apply -f -``."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.monitoring import BOARD, alert_groups, board_text
from tao_dynamo.errors import ConfigError, UsageError

FOLDER = Path(__file__).parent
MONITORING = ("pod-monitor", "board", "alerts")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,43}[a-z0-9])?")

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Choices:
    """What may differ from ``graph.yaml``; None leaves what stands there.

    Attributes:
        name: of the graph, at most 45 characters.
        namespace: Kubernetes namespace of all objects.
        image: of the router (see Containerfile).
        runtime_image: Dynamo's, of frontend and workers.
        model: Hugging Face id or a path inside the workers' image.
        workers: how many.
        ranks: data-parallel ranks of each worker.
        gpus: GPUs of each worker.
        router_args: further words of the router's command line.
        without: objects of ``MONITORING`` to leave out.
    """

    name: str = "tao-agg"
    namespace: str | None = None
    image: str | None = None
    runtime_image: str | None = None
    model: str | None = None
    workers: int | None = None
    ranks: int | None = None
    gpus: int | None = None
    router_args: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for where, value in (("--name", self.name), ("--namespace", self.namespace)):
            if value is not None and not _NAME.fullmatch(value):
                raise ConfigError(where, value, "at most 45 small letters, digits and -, with no - at the ends")
        for where, number in (("--workers", self.workers), ("--ranks", self.ranks), ("--gpus", self.gpus)):
            if number is not None and number < 1:
                raise ConfigError(where, number, "1 or more")


def manifests(choices: Choices) -> list[Manifest]:
    """The objects, in the order in which to apply them."""
    made = [_graph(choices)]
    if "pod-monitor" not in choices.without:
        made.append(_pod_monitor(choices))
    if "board" not in choices.without:
        made.append(_board())
    if "alerts" not in choices.without:
        made.append(_alerts())
    if choices.namespace is not None:
        for item in made:
            item["metadata"]["namespace"] = choices.namespace
    return made


def _load(name: str) -> Manifest:
    import yaml

    loaded: Manifest = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return loaded


def _graph(choices: Choices) -> Manifest:
    graph = _load("graph.yaml")
    graph["metadata"]["name"] = choices.name
    parts = {part["name"]: part for part in graph["spec"]["components"]}
    main = {name: part["podTemplate"]["spec"]["containers"][0] for name, part in parts.items()}
    if choices.image is not None:
        main["TaoRouter"]["image"] = choices.image
    if choices.runtime_image is not None:
        main["Frontend"]["image"] = main["VllmWorker"]["image"] = choices.runtime_image
    if choices.workers is not None:
        parts["VllmWorker"]["replicas"] = choices.workers
    for flag, value in (("--model", choices.model), ("--data-parallel-size", choices.ranks)):
        if value is not None:
            words = main["VllmWorker"]["args"]
            words[words.index(flag) + 1] = str(value)
    gpus = choices.gpus or choices.ranks
    if gpus is not None:
        main["VllmWorker"]["resources"]["limits"]["nvidia.com/gpu"] = str(gpus)
    main["TaoRouter"]["args"] += choices.router_args
    return graph


def _pod_monitor(choices: Choices) -> Manifest:
    monitor = _load("pod-monitor.yaml")
    monitor["spec"]["selector"]["matchLabels"]["nvidia.com/dynamo-graph-deployment-name"] = choices.name
    return monitor


def _board() -> Manifest:
    """Grafana's sidecar takes every ConfigMap with this label for a board."""
    metadata = {"name": "tao-board", "labels": {"grafana_dashboard": "1"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {BOARD.name: board_text()}}


def _alerts() -> Manifest:
    metadata = {"name": "tao-alerts"}
    spec = {"groups": alert_groups()}
    return {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": metadata, "spec": spec}


def parser() -> argparse.ArgumentParser:
    """The command line's parser."""
    made = argparse.ArgumentParser(
        prog="dynamo manifests",
        allow_abbrev=False,
        description="Print Kubernetes objects for a vLLM graph with TAO in it: dynamo manifests | kubectl apply -f -",
    )
    add = made.add_argument
    graph = _graph(Choices())
    router, worker = graph["spec"]["components"][1:]
    image = {part["name"]: part["podTemplate"]["spec"]["containers"][0]["image"] for part in (router, worker)}
    add("--name", default=Choices.name, help="name of the graph [default: %(default)s]")
    add("--namespace", metavar="NAME", help="Kubernetes namespace of all objects [default: kubectl's]")
    add("--image", help=f"image of the router, see Containerfile [default: {image['TaoRouter']}]")
    add("--runtime-image", metavar="IMAGE", help=f"image of frontend, workers [default: {image['VllmWorker']}]")
    add("--model", help="Hugging Face id, or a path in the workers' image [default: Qwen/Qwen3-0.6B]")
    add("--workers", type=int, metavar="N", help=f"how many workers [default: {worker['replicas']}]")
    add("--ranks", type=int, metavar="N", help="data-parallel ranks of each worker [default: 2]")
    add("--gpus", type=int, metavar="N", help="GPUs of each worker [default: one per rank]")
    add("--router-arg", action="append", default=[], metavar="WORD", help="further word for the router [default: none]")
    add("--without", action="append", default=[], choices=MONITORING, help="leave an object out [default: none]")
    return made


def main(argv: Sequence[str]) -> int:
    """Print the objects as YAML; returns the exit code."""
    import yaml

    given = parser().parse_args(argv)
    try:
        choices = Choices(
            name=given.name,
            namespace=given.namespace,
            image=given.image,
            runtime_image=given.runtime_image,
            model=given.model,
            workers=given.workers,
            ranks=given.ranks,
            gpus=given.gpus,
            router_args=tuple(given.router_arg),
            without=tuple(given.without),
        )
    except UsageError as error:
        sys.stderr.write(f"dynamo manifests: error: {error}\n")
        return 2
    try:
        sys.stdout.write(yaml.safe_dump_all(manifests(choices), sort_keys=False, width=120))
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads has seen enough; nothing is to be flushed to him at the end of the program.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
