# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes objects: shaped as Dynamo's operator and Kubernetes want them, and saying what our commands take."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
import yaml
from kubernetes.client import models

from launch import cli
from launch.health import get_json
from launch.kubernetes.manifests import Choices, manifests
from launch.monitoring import alert_groups, board_text
from launch.processes import free_port
from launch.stack import Stack
from tao_dynamo.errors import ConfigError
from tao_dynamo.shell.config import parse
from tests.launch.conftest import WORKER_HASH, wait_until

SCHEMA = yaml.safe_load(Path(__file__).with_name("graph_deployment_schema.yaml").read_text())
OPERATOR = {
    "DYN_NAMESPACE": "prod-tao-agg",
    "DYN_NAMESPACE_WORKER_SUFFIX": WORKER_HASH,
    "DYN_DISCOVERY_BACKEND": "kubernetes",
}
"""What the operator sets in a worker's container (deploy/operator/internal/dynamo/component_worker.go)."""


def check(kind: str, value: Any, where: str) -> None:
    """Hold a value against the Kubernetes client's model of that kind: no field unknown, none required missing."""
    if listed := re.fullmatch(r"list\[(.+)\]", kind):
        assert isinstance(value, list), where
        for number, item in enumerate(value):
            check(listed[1], item, f"{where}[{number}]")
    elif mapped := re.fullmatch(r"dict\(str, (.+)\)", kind):
        assert isinstance(value, dict), where
        for key, item in value.items():
            check(mapped[1], item, f"{where}.{key}")
    elif kind in ("str", "int", "bool", "float"):
        assert type(value).__name__ == kind, f"{where}: {value!r} is no {kind}"
    elif kind != "object":
        _check_model(getattr(models, kind), value, where)


def _check_model(model: Any, value: Any, where: str) -> None:
    assert isinstance(value, dict), where
    names = {json_name: name for name, json_name in model.attribute_map.items()}
    assert set(value) <= set(names), f"{where}: unknown {set(value) - set(names)}"
    for key, item in value.items():
        check(model.openapi_types[names[key]], item, f"{where}.{key}")
    # The constructor refuses what is required and missing.
    model(**{names[key]: item for key, item in value.items()})


def graph(choices: Choices | None = None) -> dict[str, Any]:
    return manifests(choices or Choices())[0]


def containers(made: dict[str, Any]) -> dict[str, Any]:
    return {part["name"]: part["podTemplate"]["spec"]["containers"][0] for part in made["spec"]["components"]}


OTHER = Choices(
    "other", "prod", "r.example/tao:1.6.1-x", "r.example/vllm:1.6.1", "/models/q", 5, 4, 8, ("--tao-retries=1",)
)


@pytest.mark.parametrize("choices", [Choices(), OTHER], ids=["default", "other"])
def test_the_graph_is_one_that_the_operator_takes(choices: Choices) -> None:
    made = graph(choices)
    jsonschema.validate(made, SCHEMA, jsonschema.Draft202012Validator)
    names = [part["name"].lower() for part in made["spec"]["components"]]
    assert len(names) == len(set(names))
    check("list[V1EnvVar]", made["spec"]["env"], "env")
    for part in made["spec"]["components"]:
        check("V1PodTemplateSpec", part["podTemplate"], part["name"])
        main = part["podTemplate"]["spec"]["containers"][0]
        assert main["name"] == "main"
        # The operator reads Dynamo's version from the tag, and asks for another field where it cannot.
        assert re.search(r":1\.6\.1(-[\w.]+)?$", main["image"]), main["image"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "components", 0, "type"), "router"),
        (("spec", "components", 0, "serviceName"), "x"),
        (("spec", "services"), {}),
        (("apiVersion",), "nvidia.com/v1alpha1"),
    ],
)
def test_the_schema_refuses_what_the_operator_would(path: tuple[Any, ...], value: Any) -> None:
    made = graph()
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(made, SCHEMA, jsonschema.Draft202012Validator)


def test_the_models_refuse_what_kubernetes_would() -> None:
    made = containers(graph())["VllmWorker"]
    with pytest.raises(AssertionError, match="unknown"):
        check("V1Container", made | {"arguments": []}, "c")
    with pytest.raises(AssertionError, match="is no str"):
        check("V1Container", made | {"args": [2]}, "c")
    with pytest.raises(ValueError, match="name"):
        check("V1Container", {"image": "x"}, "c")


def test_everything_else_is_shaped_right() -> None:
    _, monitor, board, alerts = manifests(OTHER)
    assert all(item["metadata"]["namespace"] == "prod" for item in manifests(OTHER))
    assert monitor["spec"]["selector"]["matchLabels"]["nvidia.com/dynamo-graph-deployment-name"] == "other"
    check("V1LabelSelector", monitor["spec"]["selector"], "selector")
    # PodMonitor and PrometheusRule: the fields of monitoring.coreos.com/v1 that are used.
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert set(endpoint) <= {"port", "path", "interval", "honorLabels"}
    assert (monitor["kind"], monitor["apiVersion"]) == ("PodMonitor", "monitoring.coreos.com/v1")
    check("V1ConfigMap", board, "board")
    assert json.loads(board["data"]["tao-board.json"]) == json.loads(board_text())
    assert len(json.dumps(board)) < 256 * 1024, "kubectl apply keeps a copy in an annotation of at most 256 KiB"
    assert (alerts["kind"], alerts["spec"]) == ("PrometheusRule", {"groups": alert_groups()})


def test_the_choices_arrive() -> None:
    made = graph(OTHER)
    by_name = containers(made)
    assert made["metadata"] == {"name": "other", "namespace": "prod"}
    assert by_name["TaoRouter"]["image"] == OTHER.image
    assert by_name["Frontend"]["image"] == by_name["VllmWorker"]["image"] == OTHER.runtime_image
    words = by_name["VllmWorker"]["args"]
    assert words[words.index("--model") + 1] == "/models/q"
    assert words[words.index("--data-parallel-size") + 1] == "4"
    assert by_name["VllmWorker"]["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert made["spec"]["components"][2]["replicas"] == 5
    assert by_name["TaoRouter"]["args"][-1] == "--tao-retries=1"
    assert [m["kind"] for m in manifests(Choices(without=("board", "alerts")))] == [
        "DynamoGraphDeployment",
        "PodMonitor",
    ]


def expand(words: list[str], env: dict[str, str]) -> list[str]:
    """``$(NAME)`` as the kubelet fills it in."""
    return [re.sub(r"\$\((\w+)\)", lambda found: env.get(found[1], found[0]), word) for word in words]


def test_the_router_takes_its_words_and_follows_the_workers_of_its_own_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    env = OPERATOR | {item["name"]: item["value"] for item in graph()["spec"]["env"] if "value" in item}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    config = parse(expand(containers(graph())["TaoRouter"]["args"], env), env)
    assert config.endpoint == f"prod-tao-agg-{WORKER_HASH}.backend.generate"
    assert config.namespace == "prod-tao-agg"
    assert config.event_plane == "nats"
    # Before the operator adds a hash, and with a worker that is told its whole namespace.
    assert parse(["--endpoint", "w.backend.generate"], {}).endpoint == "w.backend.generate"


NEXT_HASH = "def67890"


class Pods:
    """Processes started as the operator starts containers, beside a graph whose discovery they share."""

    def __init__(self, stack: Stack, logs: Path) -> None:
        self.stack = stack
        self._logs = logs
        self._all: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, module: str, words: list[str], **env: str) -> None:
        with (self._logs / name).open("wb") as log:
            self._all[name] = subprocess.Popen(
                [sys.executable, "-m", module, *words],
                env=os.environ | self.stack.env | env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start_router(self, suffix: str) -> int:
        """Start a router of this hash; return its system port."""
        port = free_port()
        env = OPERATOR | {
            "DYN_NAMESPACE": "workers",
            "DYN_NAMESPACE_WORKER_SUFFIX": suffix,
            "DYN_DISCOVERY_BACKEND": "file",
            "DYN_SYSTEM_PORT": str(port),
            "DYN_SYSTEM_ENABLED": "true",
            "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS": '["generate"]',
        }
        words = expand(containers(graph())["TaoRouter"]["args"], env)
        self.start(suffix, "tao_dynamo", [*words, "--tao-page-port", "none"], **env)
        return port

    def stop(self, name: str) -> None:
        process = self._all.pop(name)
        process.terminate()
        process.wait(30)

    def close(self) -> None:
        for process in self._all.values():
            process.kill()
            process.wait(30)


@pytest.fixture
def pods(operated: Stack, tmp_path: Path) -> Iterator[Pods]:
    made = Pods(operated, tmp_path)
    yield made
    made.close()


@pytest.mark.dynamo
@pytest.mark.timeout(240)
def test_a_rolling_update_fails_no_turn_and_keeps_sessions_with_their_router(pods: Pods) -> None:
    stack = pods.stack
    new_worker = ["--endpoint", f"dyn://workers-{NEXT_HASH}.backend.generate", "--model-path", str(stack.model_path)]
    new_worker += ["--model-name", stack.model_name, "--block-size", "16", "--num-gpu-blocks-override", "2048"]
    pods.start("worker", "dynamo.mocker", new_worker, DYN_SYSTEM_PORT="0")
    ports = [pods.start_router(suffix) for suffix in (WORKER_HASH, NEXT_HASH)]
    # The mocker cannot hide its models, so the frontend looks at the routers' namespace alone.
    http = free_port()
    words = [*containers(graph())["Frontend"]["args"], "--namespace", "workers", "--http-port", str(http)]
    pods.start("frontend", "dynamo.frontend", words)
    for port in ports:
        # What the operator's probes ask.
        assert wait_until(lambda port=port: probe(port, "/health").get("status") == "ready", 90)  # type: ignore[misc]
        assert probe(port, "/live")
    nodes = [[node["node"] for node in get_json(port, "/engine/tao/status")["nodes"]] for port in ports]
    assert [len(seen) for seen in nodes] == [1, 1]
    assert nodes[0] != nodes[1], "each router follows the workers of its own hash"

    def turn(session: str) -> int:
        ask = {"model": stack.model_name, "prompt": "Hello", "max_tokens": 1}
        headers = {"x-dynamo-session-id": session}
        try:
            return httpx.post(
                f"http://127.0.0.1:{http}/v1/completions", json=ask, headers=headers, timeout=30
            ).status_code
        except httpx.TransportError:
            return 0

    def turns(port: int) -> int:
        return int(get_json(port, "/engine/tao/status")["turns"].get("session_turns", 0))

    assert wait_until(lambda: turn("first") == 200, 60)
    assert wait_until(lambda: all(turn(f"probe-{n}") == 200 for n in range(4)) and all(map(turns, ports)), 60)
    for session in ("a", "b"):
        before = [turns(port) for port in ports]
        assert [turn(session) for _ in range(4)] == [200] * 4
        assert sorted(after - was for after, was in zip([turns(p) for p in ports], before, strict=True)) == [0, 4]
    # The old generation goes; its sessions go on with the new one.
    pods.stop(WORKER_HASH)
    assert [turn(session) for session in ("a", "b", "a", "b")] == [200] * 4


def probe(port: int, path: str) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = get_json(port, path)
    except (OSError, ValueError):
        return {}
    return answer


def test_the_frontend_takes_its_words() -> None:
    from dynamo.frontend.frontend_args import FrontendArgGroup

    made = argparse.ArgumentParser(exit_on_error=False)
    FrontendArgGroup().add_arguments(made)
    given = made.parse_args(containers(graph())["Frontend"]["args"])
    assert given.router_mode == "round-robin"
    assert given.session_affinity_ttl_secs == 1800


def test_the_workers_kv_events_are_what_vllm_reads() -> None:
    words = containers(graph())["VllmWorker"]["args"]
    events = json.loads(words[words.index("--kv-events-config") + 1])
    assert events == {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": "tcp://*:20080",
        "topic": "kv-events",
    }
    assert words[words.index("--endpoint-types") + 1] == "none"


def test_the_command_prints_what_can_be_applied(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["manifests", "--workers", "3"]) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    assert printed == manifests(Choices(workers=3))


@pytest.mark.parametrize(
    ("flag", "value"), [("--name", "Not_A_Name"), ("--namespace", "-x"), ("--workers", "0"), ("--gpus", "-1")]
)
def test_wrong_choices_are_named(flag: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["manifests", f"{flag}={value}"]) == 2
    assert f"dynamo manifests: error: {flag}: got " in capsys.readouterr().err


def test_names_leave_room_for_what_the_operator_adds() -> None:
    with pytest.raises(ConfigError, match="--name"):
        Choices(name="x" * 46)
