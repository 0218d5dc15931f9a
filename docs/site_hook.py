# SPDX-License-Identifier: Apache-2.0
"""MkDocs' hook: the navigation follows the files that are there, and links out of docs/ become the names of files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent
_LINK = re.compile(r"\[([^\]]+)\]\(([^):#\s]+)(#[^)]*)?\)")


def pages() -> list[str]:
    """Every page, as the navigation names it."""
    return sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


def on_config(config: Any) -> Any:
    """Fit the navigation to the files: sections named after a folder take the rest of that folder."""
    there = pages()
    named = {page for section in config.nav for listed in section.values() for page in listed}
    made = []
    for section in config.nav:
        for title, listed in section.items():
            folders = {str(Path(page).parent) for page in listed} - {"."}
            rest = [page for page in there if page not in named and str(Path(page).parent) in folders]
            kept = [page for page in listed if page in there] + rest
            named |= set(rest)
            if kept:
                made.append({title: kept})
    left = [page for page in there if page not in named]
    config.nav = [*made, *([{"More": left}] if left else [])]
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """A folder, and a file of the repository that is no page, cannot be linked from the site: name it."""
    here = (DOCS / page.file.src_uri).parent

    def name(found: re.Match[str]) -> str:
        target = (here / found[2]).resolve()
        if not target.exists() or (target.is_relative_to(DOCS) and target.is_file()):
            return found[0]
        return f"{found[1]} (`{target.relative_to(ROOT)}`)"

    return _LINK.sub(name, markdown)
