# SPDX-License-Identifier: Apache-2.0
"""The parts of the screen as text with styles; the same for a look once and for the live screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from tao_dynamo.page.wire import NodeRow, SessionRow, Snapshot
from tao_dynamo.top import columns, words
from tao_dynamo.top.words import GLYPHS, STATES, brief, percent, seconds, tokens

STYLES = {
    "waiting": "bold yellow",
    "paused": "bold magenta",
    "running": "bold green",
    "tool": "bold blue",
    "idle": "bold bright_black",
}
DIM = "bright_black"
BAD = "bold red"
_WIDE = 110
_TROUBLE = 9
_CELL = {"tokens": "", "for": "", "session": "bold", "why": DIM}


def names(shot: Snapshot) -> dict[str, str]:
    """Short names of the nodes, by their ids."""
    return {node.node: node.name for node in shot.nodes}


def states(shot: Snapshot, shown: frozenset[str] = frozenset()) -> Text:
    """How many sessions are in each state."""
    text = Text()
    for number, state in enumerate(STATES, 1):
        style = STYLES[state] if not shown or state in shown else DIM
        text.append(f"{number} ", DIM)
        text.append(f"{GLYPHS[state]} {shot.by_state.get(state, 0)} {state}", style)
        text.append("   ")
    text.right_crop(3)
    return text


def health(shot: Snapshot) -> Text:
    """Bus and planner in one line."""
    bus = shot.bus
    text = Text("bus ", DIM)
    if bus.listens and bus.connected:
        text.append("connected", "green").append(f", last KV event {brief(bus.lag_s)} old", DIM)
    else:
        text.append("not connected" if bus.listens else "not used", BAD)
    if bus.stale_nodes:
        text.append(f", {bus.stale_nodes} nodes being read anew", BAD)
    trouble = bus.malformed + bus.dropped
    if trouble:
        text.append(f", {trouble} messages malformed or dropped", BAD)
    cached = percent(shot.totals.cached_tokens, shot.totals.prompt_tokens)
    done = shot.totals
    text.append(f" · {tokens(done.turns)} turns, {done.pauses} pauses, {done.restarts} restarts", DIM)
    if cached:
        text.append(f" · {cached} of prompts from the cache", DIM)
    return text


def node(row: NodeRow, mark: float, width: int) -> Text:
    """A node in one line: name, bar, what is given and what is left."""
    used = row.reserved + row.foreign
    tail = f" {percent(used, row.capacity):>5}  {tokens(used):>5} of {tokens(row.capacity):<5}"
    tail += f" {row.running_sessions:>3} of {row.sessions:>3} running  {tokens(row.residual):>5} to give"
    if row.used is not None and width >= _WIDE:
        tail += f"  engine {percent(row.used, row.capacity):>5}"
    trouble = "stale" if row.stale else "" if row.events == "ok" else row.events
    cells = max(8, min(60, width - 9 - len(tail) - _TROUBLE))
    text = Text.assemble((f"{row.name:>8} ", "bold"))
    text.append_text(bar(row, mark, cells))
    text.append(tail, DIM)
    if trouble:
        text.append(f" {trouble}", BAD)
    return text


def bar(row: NodeRow, mark: float, cells: int) -> Text:
    """A node's room, to scale: running turns, between turns, not TAO's, kept for the overdue; and the mark."""
    text = Text()
    parts = (
        (row.running, "▇", "green"),
        (row.reserved - row.running, "▇", "blue"),
        (row.foreign, "▒", "white"),
        (row.claimed, "▒", "yellow"),
    )
    filled = 0
    done = 0
    for amount, glyph, style in parts:
        filled += amount
        until = min(cells, round(cells * filled / row.capacity)) if row.capacity else 0
        text.append(glyph * max(0, until - done), style)
        done = max(done, until)
    text.append("·" * (cells - done), DIM)
    at = min(cells - 1, int(cells * mark))
    marked = text[:at]
    marked.append("┃", "bold")
    marked.append_text(text[at + 1 :])
    return marked


def head(wide: Mapping[str, int], sort: str | None, down: bool) -> Text:
    """The names of the columns, the one that is sorted by marked."""
    text = Text(style="bold")
    for column in columns.COLUMNS:
        if column.key not in wide:
            continue
        width, title = wide[column.key], column.title
        if column.key == sort and len(title) + 2 <= width:
            title += " ▼" if down else " ▲"
        text.append(columns.fit(title, width, right=column.right), "reverse" if column.key == sort else DIM)
        text.append(" ")
    text.right_crop(1)
    return text


def session(row: SessionRow, known: Mapping[str, str], wide: Mapping[str, int]) -> Text:
    """A session in one line."""
    text = Text()
    for key, cell in columns.line(row, known, wide):
        style = STYLES.get(row.state, "") if key == "state" else _CELL.get(key, "")
        text.append(cell, BAD if row.overdue and key in ("for", "why") else style)
        text.append(" ")
    text.right_crop(1)
    return text


def explained(told: Mapping[str, Any], known: Mapping[str, str]) -> list[Text]:
    """What is known of one session, some lines."""
    if "error" in told:
        return [Text(words.clean(str(told["error"])), BAD)]
    state = str(told["state"])
    first = Text.assemble(
        (f"{GLYPHS.get(state, '?')} {state} for {seconds(told['for_s'])}", STYLES.get(state, "")),
        f"  {words.clean(str(told['session_id']))}",
    )
    reason = words.clean(words.shortened(str(told["reason"]), known))
    facts = [f"needs {tokens(told['cost'])}", f"context {tokens(told['footprint'])}"]
    if told["node"]:
        facts.append(f"holds {tokens(told['held'])} on {known.get(told['node'], told['node'])}")
    if state != "running":
        facts.append("ready" if told["ready"] else "not ready")
    if told["overdue"]:
        facts.append("overdue")
    lines = [first]
    if reason:
        lines.append(Text(f"{reason[0].upper()}{reason[1:]}.", BAD if told["overdue"] else ""))
    lines.append(Text(" · ".join(facts), DIM))
    for call in told["tool_calls"]:
        left = call["remaining"]
        source = words.SOURCES.get(left["source"], left["source"])
        name = words.clean(call["key"] or "tool")
        says = f"{name} ran {seconds(call['elapsed_s'])}, back in {seconds(left['seconds'])} by {source}"
        lines.append(Text(says, "blue"))
    lines.extend(_choice(choice, told["node"], known) for choice in told["nodes"][:6])
    return lines


def _choice(choice: Mapping[str, Any], here: str | None, known: Mapping[str, str]) -> Text:
    name = known.get(choice["node"], choice["node"])
    credit = f"{name:>10}  credit {tokens(choice['credit']):>5}  "
    if choice["node"] == here:
        return Text.assemble(credit, ("is here", "green"))
    missing = choice["adds"] - choice["free"]
    if choice["stale"]:
        verdict, style = "stale", BAD
    else:
        verdict, style = ("fits", "green") if missing <= 0 else (f"{tokens(missing)} short", "red")
    room = f"would add {tokens(choice['adds']):>5}  may get {tokens(choice['free']):>5}  "
    return Text.assemble(credit, room, (verdict, style))


def plans(shot: Snapshot, count: int) -> list[Text]:
    """The last plans, newest first."""
    lines = []
    for row in shot.plans[:count]:
        style = "yellow" if row.refused else DIM
        line = Text.assemble((f"{seconds(row.ago_s):>7} ago  ", DIM), (words.plan(row), style))
        line.no_wrap, line.overflow = True, "ellipsis"
        lines.append(line)
    return lines or [Text("no plan yet: nobody had to wait", DIM)]


def shown(shot: Snapshot, rows: Sequence[SessionRow]) -> str:
    """How many of how many sessions are shown."""
    total = len(shot.sessions)
    of = f"{len(rows)} of {total}" if len(rows) != total else str(total)
    return f"{of}, {shot.left_out} more not listed" if shot.left_out else of
