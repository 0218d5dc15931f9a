# SPDX-License-Identifier: Apache-2.0
"""The list of sessions on the live screen. Only lines that can be seen are made, however many sessions there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tao_dynamo.page.wire import SessionRow
from tao_dynamo.top import columns, drawing


class Sessions(ScrollView, can_focus=True):
    """A line for each session, under a line of titles that stays."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "next", show=False),
        Binding("up,k", "move(-1)", "previous", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("home,g", "go(0)", "first", show=False),
        Binding("end,G", "go(-1)", "last", show=False),
    ]

    class Moved(Message):
        """The cursor is on another session."""

        def __init__(self, session_id: str) -> None:
            super().__init__()
            self.session_id = session_id

    def __init__(self) -> None:
        super().__init__(id="sessions")
        self.rows: Sequence[SessionRow] = ()
        self.sort: str | None = None
        self.down = False
        self.chosen: str | None = None
        self._names: Mapping[str, str] = {}

    def show(self, rows: Sequence[SessionRow], names: Mapping[str, str]) -> None:
        """Show these. The cursor stays on its session while that is there."""
        self.rows, self._names = rows, names
        self.virtual_size = Size(self._wide, len(rows) + 1)
        self.refresh()

    @property
    def _wide(self) -> int:
        return self.scrollable_content_region.width

    @property
    def cursor(self) -> int:
        """The line that the cursor is on; -1: on none."""
        return next((number for number, row in enumerate(self.rows) if row.id == self.chosen), -1)

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        width = self._wide
        wide = columns.widths(width)
        console = self.app.console
        if y == 0:
            return Strip(drawing.head(wide, self.sort, self.down).render(console)).adjust_cell_length(
                width, self.rich_style
            )
        index = self.scroll_offset.y + y - 1
        if index >= len(self.rows):
            return Strip.blank(width, self.rich_style)
        row = self.rows[index]
        strip = Strip(drawing.session(row, self._names, wide).render(console)).adjust_cell_length(width)
        style = self.rich_style
        if row.id == self.chosen:
            style += Style(bgcolor="grey30", bold=True)
        return strip.apply_style(style)

    def action_move(self, step: int) -> None:
        """Move the cursor by so many lines."""
        at = self.cursor
        self.action_go(max(0, at + step) if at >= 0 else 0)

    def action_page(self, pages: int) -> None:
        """Move the cursor by so many screens."""
        self.action_move(pages * max(1, self.size.height - 2))

    def action_go(self, index: int) -> None:
        """Put the cursor on a line; -1 is the last."""
        if not self.rows:
            return
        index = len(self.rows) - 1 if index < 0 else min(index, len(self.rows) - 1)
        self.chosen = self.rows[index].id
        top, seen = self.scroll_offset.y, max(1, self.size.height - 1)
        if index < top:
            self.scroll_to(y=index, animate=False)
        elif index >= top + seen:
            self.scroll_to(y=index - seen + 1, animate=False)
        self.refresh()
        self.post_message(self.Moved(self.chosen))

    def on_click(self, event: events.Click) -> None:
        """A click chooses a session; on the titles it sorts."""
        if event.y == 0:
            at = 0
            for key, width in columns.widths(self._wide).items():
                if at <= event.x < at + width:
                    self.post_message(self.SortAsked(key))
                at += width + 1
            return
        index = self.scroll_offset.y + event.y - 1
        if index < len(self.rows):
            self.action_go(index)

    class SortAsked(Message):
        """A title was clicked."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key
