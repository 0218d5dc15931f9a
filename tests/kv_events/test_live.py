# SPDX-License-Identifier: Apache-2.0
"""The index beside a running Dynamo, through every mishap; the long run is ``tao-bench index-live``."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


@pytest.mark.dynamo
@pytest.mark.nats
@pytest.mark.timeout(180)
def test_equal_to_dynamos_own_index_through_every_mishap() -> None:
    pytest.importorskip("dynamo.llm")
    argv = [sys.executable, "-m", "benchmarks.index_live", "--comparisons", "480", "--outage", "3", "--json"]
    run = subprocess.run(
        argv, capture_output=True, text=True, timeout=170, env={**os.environ, "DYN_LOG": "error"}, check=False
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    phases = json.loads(run.stdout.splitlines()[-1])
    assert [phase["comparisons"] for phase in phases] == [120] * 4
    assert all(phase["differences"] == phase["credit_differences"] == 0 for phase in phases)
    assert all(phase["nonzero"] > 100 for phase in phases)
    assert phases[1]["resyncs"] >= 3
    assert phases[2]["resyncs"] >= 3
