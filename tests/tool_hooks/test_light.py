# SPDX-License-Identifier: Apache-2.0
"""The shim is light: what it imports. How long it takes to start is measured by `benchmarks/hook_overhead.py`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.tool_hooks.bus import environment

HEAVY = {"numpy", "numba", "dynamo", "torch", "nats", "asyncio", "xxhash", "transformers", "pydantic"}
SHOW = "import sys; sys.stderr.write(' '.join(sorted({m.partition('.')[0] for m in sys.modules})))"


@pytest.mark.parametrize(
    "module", ["tool_hooks", "tool_hooks.cli", "tool_hooks.call", "tool_hooks.publisher", "tool_hooks.run_command"]
)
def test_nothing_heavy_is_imported(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import {module}; {SHOW}"], env=environment(None), capture_output=True, check=True
    )
    assert not HEAVY & set(done.stderr.decode().split())


def test_every_public_name_is_there() -> None:
    import tool_hooks

    for name in tool_hooks.__all__:
        assert getattr(tool_hooks, name).__module__.startswith("tool_hooks.")
    with pytest.raises(AttributeError, match="nothing_such"):
        tool_hooks.nothing_such  # noqa: B018
