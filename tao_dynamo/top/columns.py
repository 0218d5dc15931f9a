# SPDX-License-Identifier: Apache-2.0
"""The columns of the sessions: what they show, how they sort, how wide they are, and in what order they go."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tao_dynamo.page.wire import SessionRow
from tao_dynamo.top import words
from tao_dynamo.top.words import STATES, clean, seconds, tokens

Names = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Column:
    """A column. ``width`` 0: it takes what is left. ``needs``: terminals narrower than that do without it."""

    key: str
    title: str
    width: int
    text: Callable[[SessionRow, Names], str]
    by: Callable[[SessionRow], float | str]
    right: bool = False
    down: bool = False
    needs: int = 0


def _since(row: SessionRow) -> float:
    return row.waited_s if row.state == "waiting" and row.waited_s is not None else row.for_s


def _tool(row: SessionRow, _names: Names) -> str:
    return (clean(row.tool) + (f" x{row.calls}" if row.calls > 1 else "")) if row.tool else ""


def _state(row: SessionRow, _names: Names) -> str:
    place = f" #{row.place}" if row.place else ""
    return f"{words.GLYPHS.get(row.state, '?')} {row.state}{place}"


def _or_last(value: float | None) -> float:
    return math.inf if value is None else value


COLUMNS = (
    Column("state", "STATE", 14, _state, lambda row: STATES.index(row.state) * 1e7 + row.place),
    Column("session", "SESSION", 0, lambda row, _: clean(row.session or row.id), lambda row: row.id),
    Column("for", "FOR", 7, lambda row, _: seconds(_since(row)), _since, right=True, down=True),
    Column(
        "tokens", "TOKENS", 6, lambda row, _: tokens(row.cost), lambda row: row.cost, right=True, down=True, needs=70
    ),
    Column("credit", "CREDIT", 15, words.credit, lambda row: row.best[1] if row.best else 0, down=True, needs=125),
    Column(
        "node",
        "NODE",
        8,
        lambda row, names: names.get(row.node, row.node) if row.node else "",
        lambda row: row.node or "\uffff",
        needs=90,
    ),
    Column("tool", "TOOL", 14, _tool, lambda row: row.tool or "\uffff"),
    Column(
        "ran",
        "RAN",
        7,
        lambda row, _: seconds(row.tool_elapsed_s),
        lambda row: _or_last(row.tool_elapsed_s),
        right=True,
        down=True,
        needs=100,
    ),
    Column(
        "back",
        "BACK IN",
        7,
        lambda row, _: seconds(row.returns_in_s),
        lambda row: _or_last(row.returns_in_s),
        right=True,
    ),
    Column("why", "WHY", 0, words.why, lambda row: row.reason),
)
KEYS = tuple(column.key for column in COLUMNS)

# What waits has neither node nor tool, what runs has no tool: the reason takes their place.
_NOT_OF = {"waiting": ("node", "tool", "ran", "back"), "running": ("tool", "ran", "back")}


def widths(width: int) -> dict[str, int]:
    """How wide each column is in a line of ``width`` cells; those that have no place are left out."""
    shown = [column for column in COLUMNS if width >= column.needs]
    left = width - sum(column.width for column in shown) - len(shown) + 1
    session = max(12, min(34, left // 2))
    found = {column.key: column.width or (session if column.key == "session" else left - session) for column in shown}
    if found["why"] < 8:
        found["session"] += found.pop("why") + 1
    return found


def line(row: SessionRow, names: Names, wide: Mapping[str, int]) -> list[tuple[str, str]]:
    """The cells of a row, (key, text padded to its width), with a space between them."""
    cells: list[tuple[str, str]] = []
    free = 0
    for column in COLUMNS:
        if column.key not in wide:
            continue
        if column.key in _NOT_OF.get(row.state, ()) and "why" in wide:
            free += wide[column.key] + 1
            continue
        width = wide[column.key] + (free if column.key == "why" else 0)
        cells.append((column.key, fit(column.text(row, names), width, right=column.right)))
    return cells


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Text in just ``width`` cells."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) > width:
        return set_cell_size(text, max(0, width - 1)) + "…"[: max(0, width)]
    return " " * (width - cell_len(text)) + text if right else set_cell_size(text, width)


def arrange(
    rows: Sequence[SessionRow], *, states: frozenset[str], query: str, names: Names, sort: str | None, down: bool
) -> list[SessionRow]:
    """The rows to show. Without a sort they stay in the router's order: the waiting pool first."""
    wanted = query.strip().lower()
    found = [row for row in rows if (not states or row.state in states) and (not wanted or wanted in _all(row, names))]
    if sort is None:
        return found
    by = COLUMNS[KEYS.index(sort)].by
    last = [row for row in found if by(row) in (math.inf, "\uffff")]
    first = [row for row in found if by(row) not in (math.inf, "\uffff")]
    return [*sorted(first, key=by, reverse=down), *last]


def _all(row: SessionRow, names: Names) -> str:
    node = f"{row.node} {names.get(row.node, '')}" if row.node else ""
    return " ".join((row.id, row.tool or "", node, row.reason, row.parent or "")).lower()
