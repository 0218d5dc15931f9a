# SPDX-License-Identifier: Apache-2.0
"""The pages, and the shell blocks in them.

A block after a line ``<!-- run -->`` is run; after ``<!-- run: graph -->`` it is run beside a graph. In all other
``sh`` blocks commands of ours must exist, with every flag that is used.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"(?:<!-- (run(?:: graph)?) -->\n)?^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^ {4}(?:make|dynamo|tao[a-z-]*|python|pip|export)\b.*(?:\n {4}.*)*", re.MULTILINE)
_ASSIGNMENT = re.compile(r"[A-Z_][A-Z0-9_]*=")


@dataclass(frozen=True)
class Block:
    """One block: where it stands, its language, how it is to be run, its text."""

    where: str
    language: str
    run: str
    text: str


def pages() -> list[Path]:
    """The pages of the site, and those that stand outside of it."""
    inside = [path for path in (ROOT / "docs").rglob("*.md") if not path.is_symlink()]
    return sorted([*inside, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))])


def blocks() -> list[Block]:
    """Every fenced block of every page, and the indented ones that begin with a command."""
    found = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        for match in _INDENTED.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(f"{page.relative_to(ROOT)}:{line}", "sh", "", match[0].replace("\n    ", "\n")))
        for match in _FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(f"{page.relative_to(ROOT)}:{line}", match[2], match[1] or "", match[3]))
    return found


def _words(part: str) -> list[str]:
    try:
        return shlex.split(part, comments=True)
    except ValueError:
        # A placeholder such as <the server's command>, or a quote that goes on in the next line.
        return part.split()


def commands(text: str) -> list[list[str]]:
    """The commands of a shell block as words: continued lines joined, comments and leading variables left out.

    Where a block has lines that begin with ``$``, the others are what was answered.
    """
    lines = text.replace("\\\n", " ").splitlines()
    if typed := [line[2:] for line in lines if line.startswith("$ ")]:
        lines = typed
    made = []
    for line in lines:
        for part in re.split(r"\s(?:&&|\|\||\||;)\s", line):
            words = _words(part)
            while words and (_ASSIGNMENT.match(words[0]) or words[0] in ("env", "timeout", "exec")):
                words.pop(0)
            if words and words[0] == "export":
                continue
            if words:
                made.append(words)
    return made
