# SPDX-License-Identifier: Apache-2.0
"""``tao-events top``: the bus as two tables, one row per node and one per session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kv_events.inspection.describe import plain
from kv_events.inspection.discovery import Card
from kv_events.inspection.meters import Meters
from kv_events.inspection.toolboard import Call, ToolBoard
from kv_events.types import NodeId

if TYPE_CHECKING:
    from rich.console import RenderableType

_GONE_AFTER_S: Final = 30.0
_MAX_SESSIONS: Final = 40

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Bus:
    """How the listening itself goes.

    Attributes:
        connected: whether the bus is there.
        outages: times that it went away.
        dropped: messages that we were too slow for.
        share: of the workers' messages of the last seconds, the part that was decoded.
        whole: whether all were, from the beginning; else the blocks of the nodes are not known.
    """

    connected: bool = True
    outages: int = 0
    dropped: int = 0
    share: float = 1.0
    whole: bool = True


def snapshot(
    t: float,
    bus: Bus,
    meters: Meters,
    board: ToolBoard,
    cards: Mapping[NodeId, Card],
    block_size: int | None,
    router: Mapping[NodeId, str],
) -> dict[str, Any]:
    """Return everything that is shown, as plain data.

    Args:
        t: seconds since listening began.
        bus: how the listening goes.
        meters: what was heard of the nodes.
        board: what was heard of the sessions.
        cards: what discovery says of the nodes.
        block_size: tokens per block of nodes that discovery does not know.
        router: what TAO's router says of the nodes' events, see ``kv_events.inspection.router_view``.
    """
    return {
        "seconds": round(t, 1),
        "connected": bus.connected,
        "outages": bus.outages,
        "messages": dict(meters.messages) | dict.fromkeys(("agent-tool-events",) if board.kinds else (), _heard(board)),
        "decoded": round(bus.share, 3),
        "dropped": bus.dropped,
        "unreadable": meters.unreadable + board.unreadable,
        "unknown": meters.unknown,
        "repeats": meters.repeats + board.repeats,
        "gaps": meters.gaps,
        "nodes": _nodes(t, bus, meters, cards, block_size, router),
        "sessions": _sessions(t, board),
        "session_count": len(board.sessions),
        "running_tools": board.running,
    }


def _heard(board: ToolBoard) -> int:
    return sum(board.kinds.values()) + board.repeats + board.unreadable


def _nodes(
    t: float,
    bus: Bus,
    meters: Meters,
    cards: Mapping[NodeId, Card],
    block_size: int | None,
    router: Mapping[NodeId, str],
) -> Rows:
    rows = []
    for node in sorted(meters.nodes.keys() | cards.keys()):
        meter, card = meters.nodes.get(node), cards.get(node)
        size = (card.block_size if card else None) or block_size
        row: dict[str, Any] = {"node": str(node), "router": router.get(node)}
        if meter is None:
            rows.append(row | {"view": "silent"})
            continue
        stored, removed = meter.rates()
        used, total = meter.used_blocks, card.total_blocks if card else None
        age = t - meter.heard
        rows.append(
            row
            | {
                "blocks": meter.blocks if bus.whole else None,
                "tokens": meter.blocks * size if size and bus.whole else None,
                "lower": meter.lower if bus.whole else None,
                "used_blocks": used,
                "kv_use": round(used / total, 3) if used is not None and total else None,
                "running": meter.running,
                "queued": meter.queued,
                "stored_per_s": round(stored / bus.share, 1),
                "removed_per_s": round(removed / bus.share, 1),
                "lag_ms": round(1e3 * meter.lag_s, 1),
                "gaps": meter.gaps,
                "resyncs": meter.healed,
                "restarts": meter.restarts,
                "view": "gone" if age > _GONE_AFTER_S else meter.view if bus.whole else "sampled",
                "heard_s_ago": round(age, 1),
            }
        )
    return rows


def _sessions(t: float, board: ToolBoard) -> Rows:
    rows: Rows = []
    for session in board.sessions.values():
        common = {"ended": session.ended, "failed": session.failed, "heard_s_ago": round(t - session.heard, 1)}
        rows += [{"session": session.session} | _call(call, t) | common for call in session.calls.values()]
        if not session.calls:
            rows.append({"session": session.session} | _NO_CALL | common)
    # Whose tool has run for longest first, then who was heard of last.
    return sorted(rows, key=lambda row: (row["for_s"] is None, -(row["for_s"] or 0.0), row["heard_s_ago"]))


_NO_CALL: Final = {"tool": None, "for_s": None, "back_in_s": None, "by": None}


def _call(call: Call, t: float) -> dict[str, Any]:
    back = None if call.back is None else round(call.back - t, 1)
    return {"tool": call.tool, "for_s": round(t - call.started, 1), "back_in_s": back, "by": call.why or None}


def render(shown: Mapping[str, Any], title: str, sessions: int = _MAX_SESSIONS) -> RenderableType:
    """Return the tables for a terminal or a file; at most so many rows of sessions."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(line) for line in _head(shown, title)]
    nodes: Rows = shown["nodes"]
    with_router = any(row.get("router") for row in nodes)
    columns = ["blocks", "tokens", "lower", "in use", "use", "run", "queue", "stored/s", "removed/s", "lag ms", "gaps"]
    columns += ["resyncs", "view", *(["router"] if with_router else [])]
    parts.append(_table("node", columns, [_node_cells(row, with_router) for row in nodes]))
    cells = [_session_cells(row) for row in shown["sessions"][:sessions]]
    parts.append(_table("session", ["tool", "for s", "back in s", "by", "ended", "failed", "heard s ago"], cells))
    more = len(shown["sessions"]) - len(cells)
    if more > 0:
        parts.append(Text(f"… and {more} more"))
    return Group(*parts)


def _head(shown: Mapping[str, Any], title: str) -> list[str]:
    heard = ", ".join(f"{topic} {count:,}" for topic, count in sorted(shown["messages"].items())) or "nothing"
    state = "" if shown["connected"] else "  THE BUS IS AWAY"
    lines = [f"{title}  {shown['seconds']:g} s{state}", f"heard: {heard}"]
    odd = {key: shown[key] for key in ("outages", "dropped", "unreadable", "unknown", "repeats", "gaps") if shown[key]}
    if odd:
        lines.append("odd: " + ", ".join(f"{key} {count:,}" for key, count in odd.items()))
    if shown["decoded"] < 1.0:
        lines.append(
            f"sampled: {shown['decoded']:.1%} of the workers' messages were decoded; rates are scaled up, blocks are "
            "not known"
        )
    return lines


def _node_cells(row: Mapping[str, Any], with_router: bool) -> list[object]:
    use = row.get("kv_use")
    keys = ("blocks", "tokens", "lower", "used_blocks")
    rest = ("running", "queued", "stored_per_s", "removed_per_s", "lag_ms", "gaps", "resyncs", "view")
    cells = [row["node"], *(row.get(key) for key in keys), None if use is None else f"{use:.0%}"]
    return [*cells, *(row.get(key) for key in rest), *([row.get("router")] if with_router else [])]


def _session_cells(row: Mapping[str, Any]) -> list[object]:
    back = row["back_in_s"]
    late = f"late {-back:g}" if back is not None and back < 0 else back
    keys = ("ended", "failed", "heard_s_ago")
    return [row["session"], row["tool"] or "-", row["for_s"], late, row["by"], *(row[key] for key in keys)]


def _table(first: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, no_wrap=True, overflow="ellipsis")
    for column in columns:
        table.add_column(
            column, justify="left" if column in ("tool", "by", "view", "router") else "right", no_wrap=True
        )
    for row in rows:
        table.add_row(*(Text(plain(_cell(value))) for value in row))
    return table


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
