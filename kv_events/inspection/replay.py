# SPDX-License-Identifier: Apache-2.0
"""``tao-events replay``: publish a recording on a bus, in the rhythm in which it was heard.

It is the one command that publishes, so it refuses a bus on which workers are talking already: their events and the
recorded ones would be taken for one another's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path

from kv_events import recording
from kv_events.inspection.tap import Tap, wait
from kv_events.reader import BusOptions
from kv_events.recording import Message
from tao_dynamo.errors import UsageError

QUIET_S = 1.5
"""How long the bus must be silent before: idle workers speak once a second."""
_FLUSH_EVERY = 256


async def replay(
    path: Path, options: BusOptions, *, speed: float, beside: bool, stop: asyncio.Event, quiet_s: float = QUIET_S
) -> int:
    """Publish a recording; return how many messages.

    Args:
        path: the recording; read twice, first to see that all of it can be read.
        options: the bus.
        speed: times as fast as it was recorded; 0: as fast as possible.
        beside: publish even where others do.
        stop: ends it early.
        quiet_s: how long to listen for others.

    Raises:
        UsageError: the recording cannot be read, or others publish on the bus.
        TaoError: there is no bus.
    """
    for _ in recording.read(path):
        pass
    if not beside:
        heard: list[Message] = []
        async with Tap(options, heard.append):
            await wait(stop, quiet_s)
        if heard:
            raise UsageError(
                "replay", f"live messages, such as {heard[0].subject}", "a bus where no worker talks, or --beside-live"
            )
    async with Tap(options, lambda _message: None, ()) as tap:
        return await _publish(tap, recording.read(path), speed, stop)


async def _publish(tap: Tap, messages: Iterable[Message], speed: float, stop: asyncio.Event) -> int:
    begun = time.monotonic()
    first: float | None = None
    count = 0
    for message in messages:
        first = message.t if first is None else first
        ahead = begun + (message.t - first) / speed - time.monotonic() if speed else 0.0
        if ahead > 0:
            await wait(stop, ahead)
        if stop.is_set():
            break
        await tap.publish(message.subject, message.data)
        count += 1
        if count % _FLUSH_EVERY == 0:
            await tap.flush()
    await tap.flush()
    return count
