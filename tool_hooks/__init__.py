# SPDX-License-Identifier: Apache-2.0
"""The shim that tells the router when tools run, how far they are and when they return.

    from tool_hooks import tool_call, tool_hook, wrap, session

It runs on the agents' CPU hosts: no Dynamo, no torch, no numpy. Names load when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tool_hooks.call import ToolCall, tool_call
    from tool_hooks.hook import tool_hook, wrap
    from tool_hooks.identity import current_session, session
    from tool_hooks.publisher import Publisher, default_publisher

__all__ = [
    "Publisher",
    "ToolCall",
    "current_session",
    "default_publisher",
    "session",
    "tool_call",
    "tool_hook",
    "wrap",
]

_HOME = {
    "Publisher": "publisher", "default_publisher": "publisher",
    "ToolCall": "call", "tool_call": "call",
    "tool_hook": "hook", "wrap": "hook",
    "current_session": "identity", "session": "identity",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
