# SPDX-License-Identifier: Apache-2.0
"""``tao top --once``: the whole picture, printed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from tao_dynamo.page.wire import SessionRow, Snapshot
from tao_dynamo.top import columns, drawing, words
from tao_dynamo.top.words import seconds


def show(console: Console, shot: Snapshot, rows: Sequence[SessionRow], *, limit: int, sort: str | None) -> None:
    """Print a snapshot, of the sessions the first ``limit`` of ``rows``."""
    width = console.width
    known = drawing.names(shot)
    title = Text.assemble(
        ("TAO ", "bold"), (f"{shot.version} · policy {shot.policy} · up {seconds(shot.up_s)}", drawing.DIM)
    )
    lines = [title, drawing.states(shot), drawing.health(shot)]
    lines += [Text(f"! {words.clean(problem)}", "yellow") for problem in shot.problems]
    lines += [Text(), *(drawing.node(node, shot.admission_mark, width) for node in shot.nodes), Text()]
    wide = columns.widths(width)
    lines.append(drawing.head(wide, sort, columns.COLUMNS[columns.KEYS.index(sort)].down if sort else False))
    lines += [drawing.session(row, known, wide) for row in rows[:limit]]
    if len(rows) > limit:
        lines.append(Text(f"… {len(rows) - limit} more (--limit)", drawing.DIM))
    lines += [Text(), Text("last plans", "bold"), *drawing.plans(shot, 5)]
    for text in lines:
        text.rstrip()
        console.print(text, no_wrap=True, overflow="ellipsis", highlight=False, soft_wrap=not console.is_terminal)
