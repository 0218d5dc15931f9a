# SPDX-License-Identifier: Apache-2.0
"""The engines that a worker can run: Dynamo's mocker, vLLM on GPUs, vLLM on CPU cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tao_dynamo.errors import ConfigError

if TYPE_CHECKING:
    from launch.assemble import Site

VLLM_ENVIRONMENT = ".venv-vllm"
_CPU_WORKER = Path(__file__).parent / "vllm_cpu" / "worker.py"
_CPU_BLOCK = 32
_CPU_CONTEXT = 4096
_MOCK_BLOCKS = 16_384
"""The mocker's own default."""


@dataclass(frozen=True)
class Launch:
    """How to run one worker: program, the module that must be there, our flags, variables."""

    argv: list[str]
    module: str
    flags: dict[str, Any]
    env: dict[str, str]


def default_block_size(engine: str) -> int:
    """Tokens in a KV block where nobody said; vLLM on a CPU wants a multiple of 32."""
    return _CPU_BLOCK if engine == "vllm-cpu" else 16


def launch(site: Site, index: int) -> Launch:
    """How to run the worker of that index with the engine that the options name."""
    makers: dict[str, Callable[[Site, int], Launch]] = {"mocker": _mocker, "vllm": _vllm, "vllm-cpu": _vllm_cpu}
    return makers[site.options.engine](site, index)


def _mocker(site: Site, _index: int) -> Launch:
    python = site.options.engine_python or sys.executable
    blocks = site.config.options("Worker").get("num-gpu-blocks-override", _MOCK_BLOCKS)
    flags = {
        "endpoint": f"dyn://{site.worker_endpoint}",
        "model-path": str(site.model),
        "model-name": site.model_name,
        "block-size": site.block_size,
    }
    if isinstance(blocks, int):
        # A real engine ends what outgrows its memory; without a limit the mocker is stuck with it for ever.
        flags["max-model-len"] = site.block_size * blocks
    return Launch([python, "-m", "dynamo.mocker"], "dynamo.mocker", flags, {})


def _vllm(site: Site, _index: int) -> Launch:
    return Launch([_vllm_python(site), "-m", "dynamo.vllm"], "vllm", _vllm_flags(site), {})


def _vllm_cpu(site: Site, index: int) -> Launch:
    if site.block_size % _CPU_BLOCK:
        raise ConfigError("--block-size", site.block_size, f"a multiple of {_CPU_BLOCK} for --engine vllm-cpu")
    flags = _vllm_flags(site) | {
        "enforce-eager": True,
        "max-model-len": _CPU_CONTEXT,
        "num-gpu-blocks-override": 2 * _CPU_CONTEXT // site.block_size,
    }
    env = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": str(index % (os.cpu_count() or 1))}
    return Launch([_vllm_python(site), str(_CPU_WORKER)], "vllm", flags, env)


def _vllm_flags(site: Site) -> dict[str, Any]:
    events = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"tcp://*:{site.port()}",
        "topic": "kv-events",
    }
    return {
        "model": str(site.model),
        "served-model-name": site.model_name,
        "endpoint": f"dyn://{site.worker_endpoint}",
        "block-size": site.block_size,
        "enable-prefix-caching": True,
        "kv-events-config": events,
    }


def _vllm_python(site: Site) -> str:
    """The Python that has vLLM: the one named, else ``.venv-vllm`` here or beside the package, else this one."""
    if site.options.engine_python:
        return site.options.engine_python
    for place in (Path.cwd(), Path(__file__).parent.parent):
        python = place / VLLM_ENVIRONMENT / "bin" / "python"
        if python.is_file():
            return str(python)
    return sys.executable
