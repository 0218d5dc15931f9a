# SPDX-License-Identifier: Apache-2.0
"""A timing table for Dynamo's mock engine (``--planner-profile-data``) out of a set-up's roofline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.simulator.timing import Roofline

_PROMPTS = (1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072)
_CONTEXTS = (1, 1024, 4096, 16_384, 65_536, 131_072)
_MOST_TOKENS = 1_000_000
_STEPS = 201


def write(path: Path, timing: Roofline) -> None:
    """Write the table: prefill times by prompt length, decode step times by tokens in use and mean context, in ms."""
    prefill = [1000 * timing.mixed_s(tokens, tokens // 2, 0, 0) for tokens in _PROMPTS]
    used = np.linspace(0, _MOST_TOKENS, _STEPS)
    decode = [[1000 * timing.decode_s(max(1, round(u / c)), round(u), 1) for c in _CONTEXTS] for u in used]
    np.savez(
        path,
        prefill_isl=np.array(_PROMPTS, float),
        prefill_ttft_ms=np.array(prefill),
        decode_active_kv_tokens=used,
        decode_context_length=np.array(_CONTEXTS, float),
        decode_itl=np.array(decode),
    )
