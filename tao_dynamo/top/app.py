# SPDX-License-Identifier: Apache-2.0
"""The live screen of ``tao top``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Protocol

from rich.console import Group
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Input, Static
from textual.worker import WorkType

from tao_dynamo.errors import TaoError
from tao_dynamo.page.wire import Snapshot
from tao_dynamo.top import columns, drawing, words
from tao_dynamo.top.sessions import Sessions
from tao_dynamo.top.words import STATES, seconds

LATE_S = 5.0
_PANE_LINES = 5


class Source(Protocol):
    """Where the picture comes from, as :class:`tao_dynamo.top.client.Client` fetches it."""

    url: str

    def snapshot(self) -> Snapshot:
        """The router now."""

    def explain(self, session: str) -> dict[str, Any]:
        """One session now."""


class Top(App[None]):
    """The screen.

    Args:
        source: the router.
        every_s: seconds between two looks.
        states: show only sessions in these; none: all.
        sort: a column's key; None: the router's own order.
    """

    TITLE = "tao top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; background: ansi_default; }
    Static, Sessions, Input { background: ansi_default; }
    #top, #nodes, #pane { height: auto; padding: 0 1; }
    #nodes { max-height: 30%; overflow-y: auto; margin: 1 0; scrollbar-size: 1 1; }
    #sessions { height: 1fr; min-height: 4; padding: 0 1; scrollbar-size: 1 1; overflow-x: hidden; }
    #pane { max-height: 40%; overflow-y: auto; border-top: solid $primary; }
    #search { display: none; height: 1; border: none; padding: 0 1; }
    #search.open { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("slash", "search", "search"),
        Binding("enter", "explain", "explain"),
        Binding("s", "sort", "sort"),
        Binding("r", "reverse", "reverse"),
        *(Binding(str(number), f"state('{state}')", state, show=False) for number, state in enumerate(STATES, 1)),
        Binding("0", "state('')", "one state, 0 all", key_display="1-5"),
        Binding("p", "freeze", "freeze"),
        Binding("escape", "close_open", "back", show=False),
    ]

    def __init__(
        self, source: Source, *, every_s: float = 1.0, states: frozenset[str] = frozenset(), sort: str | None = None
    ) -> None:
        super().__init__(ansi_color=True)
        self._source = source
        self._every_s = every_s
        self._states = states
        self._sort = sort
        self._down = columns.COLUMNS[columns.KEYS.index(sort)].down if sort else False
        self._query = ""
        self._frozen = False
        self._looking = False
        self._open: str | None = None
        self._told: Mapping[str, Any] | None = None
        self._shot: Snapshot | None = None
        self._heard_at = time.monotonic()
        self._trouble = ""

    def compose(self) -> ComposeResult:
        """The parts, from top to bottom."""
        yield Static(id="top")
        yield Static(id="nodes")
        yield Sessions()
        yield Input(placeholder="session, tool, node or reason", id="search", compact=True)
        yield Static(id="pane")
        yield Footer()

    def on_mount(self) -> None:
        """Begin."""
        self.query_one(Sessions).focus()
        self.set_interval(self._every_s, self._look)
        self._look()

    def on_resize(self) -> None:
        """The terminal has another size."""
        self._draw()

    # --- looking

    def _look(self) -> None:
        if not self._frozen and not self._looking:
            self._looking = True
            fetch: WorkType[None] = self._fetch
            self.run_worker(fetch, group="look")

    async def _fetch(self) -> None:
        try:
            self._shot = await asyncio.to_thread(self._source.snapshot)
            self._heard_at, self._trouble = time.monotonic(), ""
            if self._open is not None:
                self._told = await asyncio.to_thread(self._source.explain, self._open)
        except TaoError as error:
            self._trouble = str(error)
        finally:
            self._looking = False
        self._draw()

    # --- drawing

    def _draw(self) -> None:
        shot = self._shot
        if not self.query("#top"):  # an answer that comes before the screen is made, or after it has gone
            return
        top = self.query_one("#top", Static)
        if shot is None:
            top.update(Text(self._trouble or f"asking {self._source.url} …", drawing.BAD if self._trouble else ""))
            return
        known = drawing.names(shot)
        sessions = self.query_one(Sessions)
        rows = columns.arrange(
            shot.sessions, states=self._states, query=self._query, names=known, sort=self._sort, down=self._down
        )
        sessions.sort, sessions.down = self._sort, self._down
        top.update(self._top(shot, len(rows)))
        width = max(40, self.size.width - 3)
        nodes = [drawing.node(node, shot.admission_mark, width) for node in shot.nodes]
        self.query_one("#nodes", Static).update(Group(*nodes) if nodes else Text("no node", drawing.BAD))
        sessions.show(rows, known)
        pane = self.query_one("#pane", Static)
        if self._open is not None and self._told is not None:
            pane.border_title = "why (esc closes)"
            pane.update(Group(*drawing.explained(self._told, known)))
        else:
            pane.border_title = "last plans"
            pane.update(Group(*drawing.plans(shot, _PANE_LINES)))

    def _top(self, shot: Snapshot, rows: int) -> Group:
        first = Text.assemble(
            ("TAO ", "bold"), (f"{shot.version} · policy {shot.policy} · up {seconds(shot.up_s)} · ", drawing.DIM)
        )
        age = time.monotonic() - self._heard_at
        if self._frozen:
            first.append("frozen", "bold yellow")
        elif self._trouble and age > LATE_S:
            first.append(f"no answer for {seconds(age)}", drawing.BAD)
        else:
            first.append("live", "bold green")
        if rows != len(shot.sessions):
            first.append(f" · {rows} of {len(shot.sessions)} sessions shown", drawing.DIM)
        if self._query:
            first.append(f" · search {self._query!r}", drawing.DIM)
        problems = [Text(f"! {words.clean(problem)}", "yellow") for problem in shot.problems]
        return Group(first, drawing.states(shot, self._states), drawing.health(shot), *problems)

    # --- keys

    def action_freeze(self) -> None:
        """Stop looking, or go on."""
        self._frozen = not self._frozen
        self._draw()

    def action_state(self, state: str) -> None:
        """Show or hide the sessions in that state; "" shows all."""
        self._states = frozenset() if not state else self._states ^ {state}
        self._draw()

    def action_sort(self) -> None:
        """Sort by the next column; after the last one the router's own order."""
        at = -1 if self._sort is None else columns.KEYS.index(self._sort)
        self._by(columns.KEYS[at + 1] if at + 1 < len(columns.KEYS) else None)

    def on_sessions_sort_asked(self, message: Sessions.SortAsked) -> None:
        """A title was clicked: sort by it, or the other way round."""
        if message.key == self._sort:
            self.action_reverse()
        else:
            self._by(message.key)

    def _by(self, key: str | None) -> None:
        self._sort = key
        self._down = columns.COLUMNS[columns.KEYS.index(key)].down if key else False
        self._draw()

    def action_reverse(self) -> None:
        """The other way round."""
        self._down = not self._down
        self._draw()

    def action_explain(self) -> None:
        """Say of the chosen session why it is where it is."""
        sessions = self.query_one(Sessions)
        if sessions.cursor < 0:
            sessions.action_go(0)
        self._open = sessions.chosen
        self._look_at_open()

    def on_sessions_moved(self, message: Sessions.Moved) -> None:
        """While a session is explained, the explanation follows the cursor."""
        if self._open is not None:
            self._open = message.session_id
            self._look_at_open()

    def _look_at_open(self) -> None:
        async def fetch(session: str) -> None:
            try:
                self._told = await asyncio.to_thread(self._source.explain, session)
            except TaoError as error:
                self._told = {"error": str(error)}
            self._draw()

        if self._open is not None:
            work: WorkType[None] = partial(fetch, self._open)
            self.run_worker(work, group="explain", exclusive=True)

    def action_search(self) -> None:
        """Open the search."""
        box = self.query_one("#search", Input)
        box.add_class("open")
        box.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search while it is typed."""
        self._query = event.value
        self._draw()

    def on_input_submitted(self) -> None:
        """Back to the list; the search stays."""
        self.query_one(Sessions).focus()

    def action_close_open(self) -> None:
        """Close what is open, the last first."""
        box = self.query_one("#search", Input)
        if self._open is not None:
            self._open = self._told = None
        elif box.has_class("open"):
            box.value = ""
            box.remove_class("open")
        self.query_one(Sessions).focus()
        self._draw()
