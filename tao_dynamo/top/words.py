# SPDX-License-Identifier: Apache-2.0
"""Times, tokens and states as they are shown in a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from tao_dynamo.page.wire import PlanRow, SessionRow

STATES = ("waiting", "paused", "running", "tool", "idle")
GLYPHS = {"waiting": "◆", "paused": "■", "running": "●", "tool": "◐", "idle": "○"}
SOURCES = {
    "progress": "the tool reports progress",
    "declared": "declared by the caller",
    "timeout": "its timeout",
    "sleep": "the sleep in its command",
    "history": "earlier calls of this kind",
    "global": "all earlier calls",
    "default": "nothing known of it",
}


def clean(text: str) -> str:
    """Text from clients, with nothing in it that a terminal would obey."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text)


def seconds(s: float | None) -> str:
    """As short as can be read: ``0.4 s``, ``12 s``, ``3:07``, ``2 h 05``; nothing for None."""
    if s is None:
        return ""
    if s < 9.95:
        return f"{s:.1f} s"
    if s < 99.5:
        return f"{s:.0f} s"
    whole = round(s)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02}"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02}"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def brief(s: float) -> str:
    """A time that may be very short: ``2.1 ms``."""
    if s < 0.0995:
        return f"{s * 1e3:.1f} ms"
    return f"{s * 1e3:.0f} ms" if s < 1 else seconds(s)


def tokens(n: int) -> str:
    """``812``, ``4.2k``, ``131k``, ``2.1M``."""
    if n < 1000:
        return str(n)
    if n < 9950:
        return f"{n / 1e3:.1f}k"
    if n < 999_500:
        return f"{n / 1e3:.0f}k"
    return f"{n / 1e6:.1f}M" if n < 9.95e6 else f"{n / 1e6:.0f}M"


def percent(part: int, whole: int) -> str:
    """Such as ``65 %``; nothing of nothing is nothing."""
    return f"{100 * part / whole:.0f} %" if whole > 0 else ""


def shortened(text: str, names: Mapping[str, str]) -> str:
    """Text in which nodes go by their short names; their ids are twenty digits long."""
    for node, name in names.items():
        if node in text:
            text = text.replace(node, name)
    return text


def why(row: SessionRow, names: Mapping[str, str]) -> str:
    """Why a session has no room, else what it does."""
    if row.reason:
        return clean(shortened(row.reason, names))
    says = []
    if row.marked:
        says.append("will be paused when its turn ends")
    if row.state == "running":
        says.append(f"{tokens(row.output)} tokens out" if row.output else "no token yet")
    if row.state == "idle":
        says.append("its next turn has not come")
    if row.state == "tool":
        says.append("about to return" if row.ready else f"holds {tokens(row.held)} tokens")
    if row.parent:
        says.append(f"part of {clean(row.parent)}")
    return ", ".join(says)


def credit(row: SessionRow, names: Mapping[str, str]) -> str:
    """The node with the most credit, and on how many others there is some."""
    if row.best is None:
        return ""
    node, most = row.best
    more = f" +{len(row.credits) - 1}" if len(row.credits) > 1 else ""
    return f"{tokens(most)} @ {names.get(node, node)}{more}"


def plan(row: PlanRow) -> str:
    """A plan in one line."""
    says = [f"{row.placed} of {row.candidates} placed", row.method, brief(row.seconds)]
    says.append("optimal" if row.optimal else gap(row))
    if row.note:
        says.append(clean(row.note))
    says += [f"{count} refused: {reason}" for reason, count in row.refused.items()]
    return " · ".join(says)


def gap(row: PlanRow) -> str:
    """How far from the optimum a plan is at most, in the first component in which it may be."""
    for name, found, bound in zip(("credit", "ready", "context"), row.value, row.bound, strict=True):
        if bound > found:
            return f"at most {tokens(bound - found)} {name} short of the optimum"
    return "optimum not proven"
