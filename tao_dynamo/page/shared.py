# SPDX-License-Identifier: Apache-2.0
"""One computation of the snapshot for however many look at it."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from tao_dynamo.page.wire import Snapshot

FRESH_S = 0.5
SHARE = 0.05
"""Share of the router's time that looking may take, however many sessions there are: more of them, fewer looks."""
LONGEST_S = 5.0
"""No snapshot is handed out for longer, whatever it costs to make one."""
_WORTH_PACKING = 2048


@dataclass(frozen=True, slots=True)
class Shot:
    """A snapshot, and its JSON, plain and packed."""

    snapshot: Snapshot
    body: bytes
    packed: bytes


class Shared:
    """Keeps the last snapshot for a moment; those who ask while one is being made wait for that one.

    Args:
        make: looks at the router.
        fresh_s: for how long a snapshot is handed out again, at least.
        clock: seconds that never run backwards.
    """

    def __init__(
        self,
        make: Callable[[], Awaitable[Snapshot]],
        *,
        fresh_s: float = FRESH_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.made = 0
        self._make = make
        self._fresh_s = fresh_s
        self._clock = clock
        self._last: tuple[float, Shot] | None = None
        self._making: asyncio.Task[Shot] | None = None

    async def get(self) -> Shot:
        """The snapshot, at most ``fresh_s`` old, or older where looking takes long.

        Raises:
            Exception: what looking at the router raised; the next one to ask tries again.
        """
        if self._last is not None:
            since, shot = self._last
            costly_s = min(shot.snapshot.took_ms / 1e3 / SHARE, LONGEST_S)
            if self._clock() - since < max(self._fresh_s, costly_s):
                return shot
        if self._making is None or self._making.done():
            self._making = asyncio.get_running_loop().create_task(self._shoot(), name="tao snapshot")
        # One viewer that leaves does not take the snapshot away from the others.
        return await asyncio.shield(self._making)

    async def _shoot(self) -> Shot:
        snapshot = await self._make()
        self.made += 1
        body = msgspec.json.encode(snapshot)
        packed = await asyncio.to_thread(gzip.compress, body, 1) if len(body) >= _WORTH_PACKING else b""
        shot = Shot(snapshot, body, packed)
        self._last = self._clock(), shot
        return shot
