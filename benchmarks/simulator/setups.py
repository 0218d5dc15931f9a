# SPDX-License-Identifier: Apache-2.0
"""The clusters that are simulated. Each number has its source, or is marked as an assumption (A).

H100 SXM: 80 GB, 3.35 TB/s, 989 TFLOP/s dense bf16 (NVIDIA's data sheet). Reached shares (A): 0.40 of the arithmetic
for dense models, 0.25 for mixtures of experts, 0.70 of the bandwidth; the first puts a dense 32B on two H100s at
some 10,000 prompt tokens/s, as DESIGN §4.5 has it. Engine limits are vLLM's defaults for serving on H100: 8,192
tokens a step, 1,024 sequences.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.simulator.timing import Mocker, ProfiledMocker, Roofline, Timing
from tao_dynamo.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Setup:
    """Equal nodes. ``capacity_tokens`` and ``host_tokens`` are per node; ``host_tokens_per_s`` loads back.

    ``kv_lag_s``: from a change in a node's cache to the router's knowing.
    """

    name: str
    nodes: int
    capacity_tokens: int
    timing: Timing
    block_size: int = 16
    max_batched_tokens: int = 8192
    max_sequences: int = 1024
    host_tokens: int = 0
    host_tokens_per_s: float = 200_000.0
    kv_lag_s: float = 0.005


_TFLOPS, _TBS, _GB = 1e12, 1e12, 1e9

QWEN3_32B = Setup(
    name="qwen3-32b",
    nodes=4,
    # 2 x 80 GB x 0.9 - 65.5 GB weights - 10 GB activations (A) = 68.5 GB; a token takes 64 layers x 8 KV heads
    # x 128 x 2 x 2 bytes = 262,144 bytes (the model's config.json).
    capacity_tokens=256 * 1024,
    timing=Roofline(
        flops_per_token=2 * 32.8e9,
        attention_flops=4 * 64 * 64 * 128,
        flops=2 * 989 * _TFLOPS * 0.40,
        dense_bytes=65.5 * _GB,
        kv_bytes=262_144,
        bandwidth=2 * 3.35 * _TBS * 0.70,
        overhead_s=0.004,
    ),
)
"""4 nodes of 2 x H100, Qwen3-32B in bf16."""

DEEPSEEK_V4_FLASH = Setup(
    name="deepseek-v4-flash",
    nodes=2,
    # 284B parameters, 13B active (published model card), 167 GB of weights (0731 checkpoint). With tensor
    # parallelism the one KV head lies on every GPU: (80 x 0.9 - 167/4 - 6 (A)) GB / 56 KiB a token, the latter as
    # reported in vllm-project/vllm issue 51041.
    capacity_tokens=420_000,
    timing=Roofline(
        flops_per_token=2 * 13e9,
        attention_flops=4 * 43 * 64 * 128 * 0.1,  # (A): compressed attention, a tenth of the full one
        flops=4 * 989 * _TFLOPS * 0.25,
        dense_bytes=12 * _GB,
        expert_bytes=155 * _GB,
        expert_share=6 / 256,
        kv_bytes=8_000,  # (A): sparse attention reads a part of what is stored
        bandwidth=4 * 3.35 * _TBS * 0.70,
        overhead_s=0.006,
    ),
)
"""2 nodes of 4 x H100, DeepSeek-V4 Flash."""

GLM_4_7 = Setup(
    name="glm-4.7",
    nodes=1,
    # 355B parameters, 32B active, 92 layers x 8 KV heads x 128 x 2 x 2 bytes = 376,832 bytes a token (the model's
    # config.json); fp8 weights 358 GB: (8 x 80 x 0.9 - 358 - 20 (A)) GB / 376,832.
    capacity_tokens=525_000,
    timing=Roofline(
        flops_per_token=2 * 32e9,
        attention_flops=4 * 92 * 96 * 128,
        flops=8 * 989 * _TFLOPS * 0.25,
        dense_bytes=20 * _GB,
        expert_bytes=338 * _GB,
        expert_share=8 / 160,
        kv_bytes=376_832,
        bandwidth=8 * 3.35 * _TBS * 0.70,
        overhead_s=0.008,
    ),
)
"""1 node of 8 x H100, GLM-4.7 in fp8."""

SETUPS = {setup.name: setup for setup in (DEEPSEEK_V4_FLASH, QWEN3_32B, GLM_4_7)}


def mocker(nodes: int, blocks: int, *, block_size: int = 16, speedup: float = 1.0, like: str | None = None) -> Setup:
    """Dynamo's mock workers with their default limits, and their default timing or that of a set-up (``like``).

    Raises:
        ConfigError: ``like`` names none whose timing is a roofline.
    """
    tokens = blocks * block_size
    timing: Timing = Mocker(tokens, speedup) if like is None else ProfiledMocker(roofline(like), speedup)
    return Setup(
        name=f"mocker-{nodes}x{blocks}",
        nodes=nodes,
        capacity_tokens=tokens,
        timing=timing,
        block_size=block_size,
        max_sequences=256,
    )


def roofline(name: str) -> Roofline:
    """The step times of a set-up.

    Raises:
        ConfigError: there is none of that name.
    """
    timing = SETUPS[name].timing if name in SETUPS else None
    if not isinstance(timing, Roofline):
        raise ConfigError("--timing", name, f"one of {', '.join(SETUPS)}")
    return timing


def named(name: str) -> Setup:
    """A set-up by name: one of :data:`SETUPS`, or ``mocker:NODES:BLOCKS[:SPEEDUP]``.

    Raises:
        ConfigError: there is none.
    """
    if name in SETUPS:
        return SETUPS[name]
    kind, *numbers = name.split(":")
    if kind == "mocker" and len(numbers) in (2, 3) and all(n.isdigit() and int(n) for n in numbers):
        return mocker(int(numbers[0]), int(numbers[1]), speedup=int(numbers[2]) if len(numbers) == 3 else 1)
    raise ConfigError("--setup", name, f"one of {', '.join(SETUPS)}, or mocker:NODES:BLOCKS[:SPEEDUP]")


def sized(setup: Setup, *, nodes: int | None, capacity: int | None, host_tokens: int | None) -> Setup:
    """A set-up with another number of nodes, other room, or a host tier."""
    out = replace(setup, nodes=nodes or setup.nodes, host_tokens=host_tokens or setup.host_tokens)
    return replace(out, capacity_tokens=capacity) if capacity else out
