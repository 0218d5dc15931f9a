# SPDX-License-Identifier: Apache-2.0
"""From a graph and its options to the commands to run. Starts nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launch import engines, nats, services
from launch.config import ServiceConfig, as_flags
from launch.graph import Graph
from launch.model import model_folder, require_model_folder
from launch.options import TWINS, Options
from launch.processes import Command, free_port, port_is_free
from launch.run_folder import new_run_folder
from tao_dynamo.errors import ConfigError

PAGE_PORT = 8260
"""Where the router's page is, if nobody says otherwise (``tao_dynamo.page.server``, which needs aiohttp)."""


@dataclass(frozen=True)
class Site:
    """One run of a graph with everything decided: what services build their commands from.

    Attributes:
        graph: the graph.
        options: as given.
        config: options of single services.
        model: the model's folder.
        model_name: the name that clients ask for.
        block_size: tokens in a KV block.
        workers: how many workers.
        http_host, http_port: where the frontend listens.
        namespace, worker_namespace: Dynamo namespaces of router and frontend, and of the workers.
        run_dir: folder for logs and discovery.
        nats_url: the NATS server.
        discovery: folder of Dynamo's file discovery; this run's own, so that nobody's old entries are found.
        system_ports: system port (health, metrics, engine routes) of each process so far.
        pages: URL of each router's page so far, by service.
    """

    graph: Graph
    options: Options
    config: ServiceConfig
    model: Path
    model_name: str
    block_size: int
    workers: int
    http_host: str
    http_port: int
    namespace: str
    worker_namespace: str
    run_dir: Path
    nats_url: str
    discovery: Path
    taken: set[int] = field(default_factory=set)
    system_ports: dict[str, int] = field(default_factory=dict)
    pages: dict[str, str] = field(default_factory=dict)

    @property
    def worker_endpoint(self) -> str:
        """The workers' endpoint, such as ``workers.backend.generate``."""
        return f"{self.worker_namespace}.backend.generate"

    @property
    def url(self) -> str:
        """Where clients reach the frontend."""
        host = "127.0.0.1" if self.http_host == "0.0.0.0" else self.http_host  # noqa: S104
        return f"http://{host}:{self.http_port}"

    def port(self) -> int:
        """A free port, given out once."""
        return free_port(self.taken)

    def system_port(self, name: str) -> int:
        """The system port of the process of that name."""
        return self.system_ports.setdefault(name, self.port())

    def shown(self, name: str, url: str = "") -> str:
        """What to say of the process of that name: its URL, if it has one, and its system port."""
        return f"{url}  system port {self.system_port(name)}".strip()

    def page_port(self, service: str) -> object:
        """A router's ``--tao-page-port``: as given, else the usual one if it is free, else a free one."""
        given = self.config.options(service)
        port = given.get("tao-page-port", os.environ.get("DYN_TAO_PAGE_PORT"))
        if port is None:
            usual = self.options.http_port != 0 and PAGE_PORT not in self.taken and port_is_free(PAGE_PORT)
            port = PAGE_PORT if usual else self.port()
        if str(port).isdecimal() and int(port):
            self.pages[service] = f"http://{given.get('tao-page-host', '127.0.0.1')}:{port}/"
        return port

    def environment(self, name: str, service: str, **more: str) -> dict[str, str | None]:
        """Variables of the process: discovery, planes and system port, then the service's own ``envs``."""
        shared: dict[str, str | None] = {
            **dict.fromkeys(TWINS.values()),  # said by flags; a child would take some of them for its own
            "DYN_DISCOVERY_BACKEND": "file",
            "DYN_FILE_KV": str(self.discovery),
            "DYN_REQUEST_PLANE": "tcp",
            "DYN_EVENT_PLANE": "nats",
            "DYN_NAMESPACE": None,
            "DYN_NAMESPACE_WORKER_SUFFIX": None,
            "NATS_SERVER": self.nats_url,
            "HF_HUB_OFFLINE": "1",
            "PYTHONUNBUFFERED": "1",
            "DYN_SYSTEM_PORT": str(self.system_port(name)),
        }
        envs = self.config.service_args(service).get("envs", {})
        return shared | more | {str(key): str(value) for key, value in envs.items()}

    def flags(self, service: str, ours: Mapping[str, Any], fixed: Mapping[str, str] | None = None) -> list[str]:
        """The words of a service's command line: our values, and over them the service's options.

        Args:
            ours: values that the user may override.
            fixed: keys that the graph itself decides, each with the flag of ``dynamo serve`` to use instead.
        """
        given = self.config.options(service)
        for key, instead in (fixed or {}).items():
            if key in given:
                raise ConfigError(f"{service}.{key}", given[key], f"the graph's own flag {instead}")
        return as_flags({**ours, **given})

    def gpus(self, service: str, index: int) -> dict[str, str]:
        """``CUDA_VISIBLE_DEVICES`` of the index-th process, if the service asks for GPUs of its own."""
        count = self.config.service_args(service).get("resources", {}).get("gpu")
        if count is None:
            return {}
        count = positive(f"{service}.ServiceArgs.resources.gpu", count)
        return {"CUDA_VISIBLE_DEVICES": ",".join(str(index * count + offset) for offset in range(count))}


@dataclass(frozen=True)
class Assembly:
    """What will run: the site, and the commands in the order in which to start them."""

    site: Site
    commands: tuple[Command, ...]


def assemble(graph: Graph, options: Options, config: ServiceConfig) -> Assembly:
    """Decide ports, names and command lines.

    Raises:
        UsageError: an option is wrong or does not fit the others.
    """
    config = config.copy()
    host_given = config.take("Frontend", "http-host")
    host = options.http_host or str(host_given or "127.0.0.1")
    taken: set[int] = set()
    port = _http_port(options, config)
    if port:
        taken.add(port)
    else:
        port = free_port(taken)
    own_nats = None
    nats_url = nats.running_server()
    if nats_url is None:
        own_nats = nats.server_command(free_port(taken))
        nats_url = own_nats.shows
    model = require_model_folder("--model", options.model) if options.model else model_folder()
    if not options.model and options.engine != "mocker":
        raise ConfigError("--model", "nothing", f"a model folder for --engine {options.engine}")
    workers = options.workers or positive("Worker.ServiceArgs.workers", config.service_args("Worker").get("workers", 2))
    run_dir = _run_dir(options)
    site = Site(
        graph=graph,
        options=options,
        config=config,
        model=model,
        model_name=options.model_name or model.name,
        block_size=options.block_size or engines.default_block_size(options.engine),
        workers=workers,
        http_host=host,
        http_port=port,
        namespace=options.namespace,
        worker_namespace=_worker_namespace(graph, options),
        run_dir=run_dir,
        nats_url=nats_url,
        discovery=run_dir / f"discovery-{os.getpid()}-{os.urandom(3).hex()}",
        taken=taken,
    )
    commands = [] if own_nats is None else [own_nats]
    # What is downstream starts first: workers, router, frontend.
    for service in reversed(graph.services):
        commands += service.commands(site)
    return Assembly(site, tuple(commands))


def positive(where: str, value: object) -> int:
    """A whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(where, value, "1 or more")
    return value


def _http_port(options: Options, config: ServiceConfig) -> int:
    port = 8000
    for key in ("port", "http-port"):  # Dynamo 0.3's examples call it port
        value = config.take("Frontend", key)
        if value is not None:
            if not isinstance(value, int) or not 0 <= value < 65_536:
                raise ConfigError(f"Frontend.{key}", value, "0 to 65535")
            port = value
    return port if options.http_port is None else options.http_port


def _worker_namespace(graph: Graph, options: Options) -> str:
    """Where the workers are: out of the frontend's sight, so that requests come through the router only."""
    given = options.worker_namespace
    if not graph.has(services.ThunderAgentRouter):
        if graph.has(services.Router):
            _check_apart(options.namespace, given or "workers")
        return given or "workers"
    # That router accepts no other namespaces than NAME for itself and NAME-SUFFIX for its workers.
    if given is not None and not given.startswith(f"{options.namespace}-"):
        raise ConfigError("--worker-namespace", given, f"{options.namespace}-SUFFIX, as the ThunderAgent router asks")
    return given or f"{options.namespace}-workers"


def _check_apart(namespace: str, workers: str) -> None:
    """A frontend that sees the workers sends them a part of the requests itself, past the router."""
    if namespace == "dynamo":  # to Dynamo it is global and filters nothing
        raise ConfigError("--namespace", namespace, "another one: in this one Dynamo's frontend sees the workers too")
    if namespace == workers:
        raise ConfigError("--namespace", namespace, f"another one than that of the workers, {workers!r}")


def _run_dir(options: Options) -> Path:
    if options.run_dir is not None:
        return options.run_dir.expanduser().resolve()
    return new_run_folder()
