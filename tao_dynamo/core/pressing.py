# SPDX-License-Identifier: Apache-2.0
"""Waiting sessions that go before all others: by class, oldest first."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from tao_dynamo.core.session import Session


class Pressing:
    """Sessions by their class and how long they have waited. A session is in here at most once."""

    def __init__(self) -> None:
        self._order: list[tuple[int, float, int]] = []
        self._sessions: dict[tuple[int, float, int], Session] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Session]:
        """In this order. Those that go while this runs are left out."""
        return (self._sessions[key] for key in list(self._order) if key in self._sessions)

    def add(self, session: Session) -> None:
        """The session, which waits, goes first from now on."""
        if session.pressing is None and session.waiting_since is not None:
            session.pressing = (-session.tier, session.waiting_since, session.index)
            insort(self._order, session.pressing)
            self._sessions[session.pressing] = session

    def discard(self, session: Session) -> None:
        """It waits no longer."""
        if session.pressing is not None:
            del self._order[bisect_left(self._order, session.pressing)]
            del self._sessions[session.pressing]
            session.pressing = None
