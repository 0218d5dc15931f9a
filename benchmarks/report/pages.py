# SPDX-License-Identifier: Apache-2.0
"""Blocks of a page that are made by a program, between marks that stay."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tao_dynamo.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_BLOCK = re.compile(r"(<!-- begin (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(page: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    """The page with the text of each of its blocks made anew.

    Raises:
        ConfigError: the page names a block that nothing makes.
    """

    def made(found: re.Match[str]) -> str:
        name = found[2]
        if name not in blocks:
            raise ConfigError("<!-- begin -->", name, f"one of {', '.join(sorted(blocks))}")
        return f"{found[1]}{blocks[name]().strip()}\n{found[3]}"

    return _BLOCK.sub(made, page)


def table(header: list[str], rows: list[list[str]], *, words: bool = False) -> str:
    """A Markdown table, its first column to the left and the others to the right, or to the left as well if words."""
    lines = [header, ["---", *["---" if words else "---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
