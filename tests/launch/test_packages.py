# SPDX-License-Identifier: Apache-2.0
"""Our top-level names are generic: nothing else in the environment may bring the same ones."""

from __future__ import annotations

import importlib.util
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = ["tao_dynamo", "kv_events", "solver", "tool_hooks", "launch", "benchmarks"]


@pytest.mark.parametrize("name", NAMES)
def test_no_other_distribution_brings_the_name(name: str) -> None:
    assert set(packages_distributions().get(name, [])) <= {"tao-dynamo"}


@pytest.mark.parametrize("name", NAMES)
def test_the_name_is_found_here(name: str) -> None:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    assert ROOT in Path(spec.origin).parents


def test_constraints_hold_names_and_versions_only() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if line.count("==") != 1 or "/" in line or " " in line] == []
    assert "ai-dynamo==1.6.1" in lines
