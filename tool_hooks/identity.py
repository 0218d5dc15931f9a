# SPDX-License-Identifier: Apache-2.0
"""Which session a tool call belongs to: argument, then context variable, then environment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar

SESSION_ENV = "DYN_SESSION_ID"
PARENT_ENV = "DYN_PARENT_SESSION_ID"
TENANT_ENV = "DYN_TENANT_ID"

_session: ContextVar[str | None] = ContextVar("tao_session_id", default=None)


def current_session(session_id: str | None = None) -> str | None:
    """The session id in force: ``session_id`` itself, the enclosing :func:`session`, ``DYN_SESSION_ID``, or
    None.
    """
    return session_id or _session.get() or os.environ.get(SESSION_ENV) or None


@contextlib.contextmanager
def session(session_id: str) -> Iterator[None]:
    """Run a block, and the asyncio tasks started in it, under a session id."""
    token = _session.set(session_id)
    try:
        yield
    finally:
        _session.reset(token)
