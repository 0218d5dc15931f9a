# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.policies import POLICIES, names
from benchmarks.report import policy_pages

FOLDER = Path(__file__).parents[3] / "docs" / "policies"


def test_the_pages_say_what_the_modules_say() -> None:
    for name, text in policy_pages.pages().items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, f"docs/policies/{name}: make report"
    assert {path.name for path in FOLDER.iterdir()} == set(policy_pages.pages())


def test_every_policy_has_a_page_or_a_row() -> None:
    assert set(policy_pages.MODULES) == {"tao", *POLICIES}
    text = policy_pages.pages()["README.md"]
    assert all(f"`{name}`" in text for name in names())


@pytest.mark.parametrize("name", list(policy_pages.MODULES))
def test_every_page_has_its_parts(name: str) -> None:
    title, parts = policy_pages.described(policy_pages.MODULES[name])
    assert title
    assert {"Rule", "Source", "Parameters", "Good when"} <= set(parts)
    assert all(len(part) > 4 for part in parts.values())
