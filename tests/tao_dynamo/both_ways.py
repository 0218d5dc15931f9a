# SPDX-License-Identifier: Apache-2.0
"""Runs a script that asks Dynamo's way and ours, in a process of its own, since a runtime of Dynamo's is for ever."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def both_ways(script: str) -> dict[str, list[Any]]:
    """What came of each case, [Dynamo's way, ours]; the script's last line is that as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.tao_dynamo.{script}"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    seen: dict[str, list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return seen
