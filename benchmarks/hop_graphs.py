# SPDX-License-Identifier: Apache-2.0
"""Graphs with the bare Python hop in the router's place, for ``tao-bench hop``."""

from __future__ import annotations

import sys

from launch.assemble import Site
from launch.health import endpoint_ready
from launch.processes import Command
from launch.services import Frontend, Router, Worker


class BareHop(Router):
    """``benchmarks.hop_bare``; its option ``push`` chooses how chunks are handed on."""

    @classmethod
    def commands(cls, site: Site) -> list[Command]:
        """One process."""
        name = "bare-hop"
        ours = {
            "endpoint": site.worker_endpoint,
            "namespace": site.namespace,
            "block-size": site.block_size,
            "model-path": str(site.model),
            "model-name": site.model_name,
        }
        return [
            Command(
                name=name,
                argv=(sys.executable, "-m", "benchmarks.hop_bare", *site.flags(cls.__name__, ours)),
                env=site.environment(name, cls.__name__),
                ready=endpoint_ready(site.system_port(name), "generate"),
                module="dynamo.runtime",
            )
        ]


Frontend.link(BareHop).link(Worker)
