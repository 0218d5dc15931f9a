# SPDX-License-Identifier: Apache-2.0
"""The services that graphs are made of."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from launch import engines
from launch.graph import Service
from launch.health import endpoint_ready, frontend_ready
from launch.processes import Command

if TYPE_CHECKING:
    from launch.assemble import Site

_MODEL = {"model-path": "--model", "model-name": "--model-name"}


class Frontend(Service):
    """Dynamo's HTTP frontend. It sees the namespace of what comes next: the router's, or the workers' own."""

    @classmethod
    def commands(cls, site: Site) -> list[Command]:
        """One ``dynamo.frontend``."""
        name = "frontend"
        through_router = site.graph.has(Router)
        namespace = site.namespace if through_router else site.worker_namespace
        ours = {
            "http-host": site.http_host,
            "http-port": site.http_port,
            "namespace": namespace,
            "router-mode": "round-robin",
        }
        if site.graph.has(KvRouter):
            ours |= {"router-mode": "kv", "kv-cache-block-size": site.block_size}
        flags = [*site.flags("KvRouter", ours), *site.flags(cls.__name__, {}, {"namespace": "--namespace"})]
        instances = 1 if through_router else site.workers
        probe_host = site.url.removeprefix("http://").rpartition(":")[0]
        return [
            Command(
                name=name,
                argv=(sys.executable, "-m", "dynamo.frontend", *flags),
                env=site.environment(name, cls.__name__),
                ready=frontend_ready(site.http_port, probe_host, site.model_name, namespace, instances),
                shows=site.shown(name, site.url),
                module="dynamo.frontend",
            )
        ]


class KvRouter(Service):
    """Dynamo's KV router inside the frontend: no process of its own; its options are the frontend's."""


class Router(Service):
    """A router with a process of its own between frontend and workers."""


class TaoRouter(Router):
    """TAO."""

    @classmethod
    def commands(cls, site: Site) -> list[Command]:
        """One ``python -m tao_dynamo``."""
        name = "tao-router"
        ours: dict[str, object] = {
            "endpoint": site.worker_endpoint,
            "namespace": site.namespace,
            "router-block-size": site.block_size,
            "model-path": str(site.model),
            "model-name": site.model_name,
        }
        fixed = {"endpoint": "--worker-namespace", "namespace": "--namespace", **_MODEL}
        port = site.system_port(name)
        ours["tao-page-port"] = site.page_port(cls.__name__)
        return [
            Command(
                name=name,
                argv=(sys.executable, "-m", "tao_dynamo", *site.flags(cls.__name__, ours, fixed)),
                env=site.environment(name, cls.__name__),
                ready=endpoint_ready(port, "generate"),
                shows=site.shown(name, site.pages.get(cls.__name__, "")),
                module="tao_dynamo.shell",
            )
        ]


class ThunderAgentRouter(Router):
    """Dynamo's ThunderAgent router."""

    @classmethod
    def commands(cls, site: Site) -> list[Command]:
        """One ``dynamo.thunderagent_router``."""
        name = "thunderagent-router"
        ours = {
            "endpoint": site.worker_endpoint,
            "router-block-size": site.block_size,
            "model-path": str(site.model),
            "model-name": site.model_name,
        }
        fixed = {"endpoint": "--worker-namespace", **_MODEL}
        suffix = site.worker_namespace.removeprefix(f"{site.namespace}-")
        return [
            Command(
                name=name,
                argv=(sys.executable, "-m", "dynamo.thunderagent_router", *site.flags(cls.__name__, ours, fixed)),
                env=site.environment(
                    name, cls.__name__, DYN_NAMESPACE=site.namespace, DYN_NAMESPACE_WORKER_SUFFIX=suffix
                ),
                ready=endpoint_ready(site.system_port(name), "generate"),
                shows=site.shown(name),
                module="dynamo.thunderagent_router",
            )
        ]


class Worker(Service):
    """The engine replicas, each a process group of its own."""

    @classmethod
    def commands(cls, site: Site) -> list[Command]:
        """As many workers as asked for, with the engine asked for."""
        service = cls.__name__
        fixed = {
            "endpoint": "--worker-namespace",
            "block-size": "--block-size",
            "model": "--model",
            "served-model-name": "--model-name",
            "num-workers": "--workers",
            **_MODEL,
        }
        commands = []
        for index in range(site.workers):
            name = f"worker-{index}"
            launch = engines.launch(site, index)
            commands.append(
                Command(
                    name=name,
                    argv=(*launch.argv, *site.flags(service, launch.flags, fixed)),
                    env=site.environment(name, service, **launch.env, **site.gpus(service, index)),
                    ready=endpoint_ready(site.system_port(name), "generate"),
                    shows=site.shown(name),
                    module=launch.module,
                )
            )
        return commands
