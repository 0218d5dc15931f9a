# SPDX-License-Identifier: Apache-2.0
"""``docs/policies``: a page for each policy, out of its module's docstring."""

from __future__ import annotations

import importlib
import re
import textwrap
from typing import TYPE_CHECKING

from benchmarks.policies.tao import ABLATIONS, FOR_EVER, Variant
from benchmarks.report.pages import table
from tao_dynamo.core.policy import DEFAULT, Policy

if TYPE_CHECKING:
    from pathlib import Path

MODULES = {
    "tao": "tao",
    "thunderagent": "thunderagent",
    "dynamo-kv": "dynamo_kv",
    "round-robin": "round_robin",
    "cache-aware": "cache_aware",
    "longest-prefix": "longest_prefix",
    "continuum": "continuum",
    "agentix-las": "agentix",
    "tokencake": "tokencake",
}
"""Policy and the module of ``benchmarks.policies`` that is it."""

_PARTS = ("Rule", "Source", "Parameters", "Variants", "Not modelled", "Good when")
_PART = re.compile(rf"(?:^|(?<=\s))({'|'.join(_PARTS)}):\s+")
_INTRO = """\
# Policies

What the simulator can run, a page each: the rule, where it comes from, its parameters, and when it is good. All of them
hear the same events and answer through one interface (`benchmarks/policies/base.py`).

    tao-bench simulate --policy NAME
    tao-bench compare --policies NAME,NAME

These pages are made by `tao-bench report` out of the modules in `benchmarks/policies`.

"""


def pages() -> dict[str, str]:
    """File name and text of every page."""
    made: dict[str, str] = {}
    titles: list[list[str]] = []
    for name, module in MODULES.items():
        title, parts = described(module)
        made[f"{name}.md"] = _page(name, title, parts)
        titles.append([f"[`{name}`]({name}.md)", title])
    rows = [[f"`{name}`", _changes(variant)] for name, variant in ABLATIONS.items() if name != "tao"]
    ablations = f"\n## TAO with one thing changed\n\n{table(['name', 'what is changed'], rows, words=True)}\n"
    listed = "\n".join(f"- {link}: {title}" for link, title in titles)
    return {"README.md": f"{_INTRO}{listed}\n{ablations}", **made}


def described(module: str) -> tuple[str, dict[str, str]]:
    """A policy module's first line, and its parts by name."""
    text = importlib.import_module(f"benchmarks.policies.{module}").__doc__ or ""
    title, _, rest = text.partition("\n")
    pieces = _PART.split(" ".join(rest.replace("``", "`").split()))
    # What stands before the first part, then name and text by turns.
    return title.strip().rstrip("."), dict(zip(pieces[1::2], (piece.strip() for piece in pieces[2::2]), strict=True))


def write(folder: Path) -> list[Path]:
    """Write the pages; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
        paths.append(folder / name)
    return paths


def _page(name: str, title: str, parts: dict[str, str]) -> str:
    found = [f"**{part}.** {parts[part][0].upper()}{parts[part][1:]}" for part in _PARTS if part in parts]
    body = "\n\n".join(textwrap.fill(part, 118, break_on_hyphens=False, break_long_words=False) for part in found)
    return f"# {name}\n\n{title}.\n\n{body}\n\n    tao-bench simulate --policy {name}\n"


def _changes(variant: Variant) -> str:
    changed = [
        f"`{name}` {_value(getattr(variant.policy, name))} instead of {_value(getattr(DEFAULT, name))}"
        for name in Policy.__dataclass_fields__
        if name != "name" and getattr(variant.policy, name) != getattr(DEFAULT, name)
    ]
    changed += [] if variant.credit else ["no credit"]
    changed += [] if variant.readiness else ["nothing is known of tools: every session counts as ready"]
    changed += ["the exact return time of every tool is known"] if variant.oracle else []
    changed += ["the engine is told to evict paused and ended sessions first"] if variant.demote else []
    return "; ".join(changed)


def _value(value: object) -> str:
    if value is None:
        return "by T\\*"
    return "without end" if isinstance(value, float) and value >= FOR_EVER else str(value)
