# SPDX-License-Identifier: Apache-2.0
"""TAO over workers with a scripted model; the frontend speaks OpenAI's and Anthropic's API.

dynamo serve examples/scripted/graph.py:Frontend
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from launch import services
from launch.graph import Service
from launch.health import endpoint_ready
from launch.processes import Command

if TYPE_CHECKING:
    from launch.assemble import Site


class Frontend(services.Frontend):
    """Dynamo's frontend, Anthropic's API included."""

    @classmethod
    def commands(cls, site: Site) -> list[Command]:
        """One ``dynamo.frontend``."""
        site.config.set(["Frontend", "enable-anthropic-api"], True)
        return super().commands(site)


class ScriptedWorker(Service):
    """Workers that take their answers from the task."""

    @classmethod
    def commands(cls, site: Site) -> list[Command]:
        """As many as asked for."""
        words = [sys.executable, str(Path(__file__).with_name("worker.py")), "--endpoint", site.worker_endpoint]
        words += ["--model-path", str(site.model), "--model-name", site.model_name]
        words += ["--block-size", str(site.block_size)]
        return [
            Command(
                name=name,
                argv=tuple(words),
                env=site.environment(name, cls.__name__),
                ready=endpoint_ready(site.system_port(name), "generate"),
            )
            for name in (f"worker-{index}" for index in range(site.workers))
        ]


Frontend.link(services.TaoRouter).link(ScriptedWorker)
