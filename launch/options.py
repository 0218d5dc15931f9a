# SPDX-License-Identifier: Apache-2.0
"""What can be said about a whole graph, each with its flag, its environment twin and its default."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from tao_dynamo.errors import ConfigError

ENGINES = ("mocker", "vllm", "vllm-cpu")


@dataclass(frozen=True)
class Options:
    """Options of a graph. None means: what the service's own options say, else the default.

    Attributes:
        engine: what the workers run.
        workers: how many worker processes (default 2).
        model: the model's folder (default: a tiny one without weights, made for the mocker).
        model_name: the name clients ask for (default: the folder's name).
        block_size: tokens in a KV block (default 16; 32 for vllm-cpu).
        http_host: address that the frontend binds.
        http_port: port of the frontend; 0 takes a free one.
        namespace: Dynamo namespace of the router and the frontend.
        worker_namespace: Dynamo namespace of the workers (default ``workers``).
        engine_python: the Python that has the engine (default: this one; for vLLM ``.venv-vllm``, if it is there).
        run_dir: folder for logs and discovery (default: a new temporary one).
        start_timeout_s: seconds that a child may take to become healthy.
        grace_s: seconds between asking a child to stop and killing it.
    """

    engine: str = "mocker"
    workers: int | None = None
    model: str | None = None
    model_name: str | None = None
    block_size: int | None = None
    http_host: str | None = None
    http_port: int | None = None
    namespace: str = "tao"
    worker_namespace: str | None = None
    engine_python: str | None = None
    run_dir: Path | None = None
    start_timeout_s: float = 120.0
    grace_s: float = 10.0

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ConfigError("--engine", self.engine, f"one of {', '.join(ENGINES)}")
        for name in ("workers", "block_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(flag(name), value, "1 or more")
        if self.http_port is not None and not 0 <= self.http_port < 65_536:
            raise ConfigError("--http-port", self.http_port, "0 to 65535")
        for name in ("start_timeout_s", "grace_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(flag(name), getattr(self, name), "more than 0 seconds")
        for name in ("namespace", "worker_namespace"):
            value = getattr(self, name)
            if value is not None and not value.replace("-", "").replace("_", "").isalnum():
                raise ConfigError(flag(name), value, "letters, digits, - and _")


TWINS = {
    "engine": "DYN_TAO_ENGINE",
    "workers": "DYN_TAO_WORKERS",
    "model": "DYN_TAO_MODEL",
    "model_name": "DYN_TAO_MODEL_NAME",
    "block_size": "DYN_TAO_BLOCK_SIZE",
    "http_host": "DYN_HTTP_HOST",
    "http_port": "DYN_HTTP_PORT",
    "namespace": "DYN_TAO_NAMESPACE",
    "worker_namespace": "DYN_TAO_WORKER_NAMESPACE",
    "engine_python": "DYN_TAO_ENGINE_PYTHON",
    "run_dir": "DYN_TAO_RUN_DIR",
    "start_timeout_s": "DYN_TAO_START_TIMEOUT",
    "grace_s": "DYN_TAO_GRACE",
}
"""The environment variable of each option."""


def flag(name: str) -> str:
    """The flag of an option: ``start_timeout_s`` gives ``--start-timeout``."""
    return "--" + name.removesuffix("_s").replace("_", "-")


def convert(name: str, text: str, where: str) -> object:
    """An option's value out of text, as a flag or an environment variable gives it."""
    kind = str(next(field.type for field in fields(Options) if field.name == name))
    try:
        if kind.startswith("int"):
            return int(text)
        if kind.startswith("float"):
            return float(text)
    except ValueError:
        raise ConfigError(where, text, "a number") from None
    return Path(text) if kind.startswith("Path") else text


def from_environment(environment: Mapping[str, str] | None = None) -> Options:
    """The defaults, and on top of them what the environment says."""
    environment = os.environ if environment is None else environment
    given = {name: convert(name, environment[twin], twin) for name, twin in TWINS.items() if environment.get(twin)}
    return replace(Options(), **given)  # type: ignore[arg-type]
