# SPDX-License-Identifier: Apache-2.0
"""The list of cases names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent.parent
LIST = (TESTS / "README.md").read_text(encoding="utf-8")


def test_every_case_has_its_tests_and_each_is_there() -> None:
    assert re.findall(r"^\| C(\d+):", LIST, re.MULTILINE) == [
        *(str(n) for n in range(1, 17)),
        "16",
        *(str(n) for n in range(17, 22)),
    ]
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", LIST)
    assert len(named) >= 50
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not re.search(rf"^(async def|def|class) {name}\b", (TESTS / file).read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert not missing
