# SPDX-License-Identifier: Apache-2.0
"""Passes a worker's chunks on. Chunks that are waiting already are made one: a hop costs per chunk, not per token."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

Chunk = dict[str, Any]

# What a chunk may hold besides these is for its receiver alone and keeps it from being joined.
_PLAIN = frozenset({"token_ids", "index", "output_type", "finish_reason"})


def plain(chunk: Chunk) -> bool:
    """Whether the chunk holds nothing but tokens, and does not end the stream."""
    if chunk.get("finish_reason") is not None or not chunk.get("token_ids"):
        return False
    return all(value is None or key in _PLAIN for key, value in chunk.items())


def join(waiting: list[Chunk]) -> list[Chunk]:
    """Join runs of plain chunks, with what follows them if that holds no more than tokens, an end and a usage.

    The result yields the same tokens in the same order; ends, usages, log probabilities and errors stay whole.
    """
    if len(waiting) < 2:
        return waiting
    out: list[Chunk] = []
    run: Chunk | None = None
    for chunk in waiting:
        if not plain(chunk):
            run = None
            out.append(chunk)
        elif run is not None and run.get("index") == chunk.get("index"):
            run["token_ids"] += chunk["token_ids"]
        else:
            run = chunk
            out.append(run)
    return out


class Pace:
    """How long a stream's chunks are gathered before the next are handed over.

    A hop costs about as much CPU to hand a chunk over as to read it. With few streams nothing is held back; with many,
    what comes within the window after a batch goes as one. Streams slower than a chunk per window are never delayed.
    """

    free = 8
    per_stream_s = 0.00025
    longest_s = 0.01

    def __init__(self) -> None:
        self.streams = 0

    def window_s(self) -> float:
        """Least time between two batches of one stream, for as many streams as there are now."""
        return min(self.longest_s, self.per_stream_s * self.streams) if self.streams > self.free else 0.0


class Relay:
    """Reads one stream as fast as it comes, hands over what is there.

    Args:
        stream: the worker's chunks.
        pace: shared by all streams.
    """

    def __init__(self, stream: AsyncIterator[Chunk], pace: Pace) -> None:
        self._pace = pace
        pace.streams += 1
        self._waiting: list[Chunk] = []
        self._waker: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._done = False
        self._task = asyncio.get_running_loop().create_task(self._read(stream))

    async def _read(self, stream: AsyncIterator[Chunk]) -> None:
        try:
            async for chunk in stream:
                self._waiting.append(chunk)
                waker = self._waker
                if waker is not None and not waker.done():
                    waker.set_result(None)
        except Exception as error:  # noqa: BLE001 - given to the one who reads
            self._error = error
        finally:
            self._pace.streams -= 1
            self._done = True
            if self._waker is not None and not self._waker.done():
                self._waker.set_result(None)

    async def batches(self) -> AsyncIterator[list[Chunk]]:
        """Yield what has come, joined, until the stream ends.

        Raises:
            Exception: whatever broke the stream, after everything that came before it.
        """
        loop = asyncio.get_running_loop()
        not_before = 0.0
        while True:
            if not self._waiting:
                if self._done:
                    break
                self._waker = loop.create_future()
                await self._waker
                self._waker = None
                continue
            early = not_before - time.monotonic()
            if early > 0.0 and not self._done:
                await asyncio.sleep(early)
            waiting, self._waiting = self._waiting, []
            window = self._pace.window_s()
            not_before = time.monotonic() + window if window else 0.0
            yield join(waiting)
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Stop reading."""
        self._task.cancel()
