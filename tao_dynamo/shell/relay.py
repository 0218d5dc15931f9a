# SPDX-License-Identifier: Apache-2.0
"""Passes a worker's chunks on. Chunks that are waiting already are made one: a hop costs per chunk, not per token."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

Chunk = dict[str, Any]

# What a chunk may hold besides these is for its receiver alone and keeps it from being joined.
_PLAIN = frozenset({"token_ids", "index", "output_type", "finish_reason"})


def plain(chunk: Chunk) -> bool:
    """Whether the chunk holds nothing but tokens, and does not end the stream."""
    if chunk.get("finish_reason") is not None or not chunk.get("token_ids"):
        return False
    for key, value in chunk.items():  # noqa: SIM110 - every chunk comes by here, and a generator costs twice as much
        if value is not None and key not in _PLAIN:
            return False
    return True


def ends(chunk: Chunk) -> bool:
    """Whether the chunk ends its stream and holds nothing but tokens, the reason and a usage."""
    if chunk.get("finish_reason") is None:
        return False
    return all(value is None or key in _PLAIN or key == "completion_usage" for key, value in chunk.items())


def join(waiting: list[Chunk]) -> list[Chunk]:
    """Join runs of plain chunks, with the end that follows them if that holds no more than tokens and a usage.

    The result yields the same tokens in the same order; log probabilities, errors and other usages stay whole.
    """
    if len(waiting) < 2:
        return waiting
    out: list[Chunk] = []
    run: Chunk | None = None
    for chunk in waiting:
        if run is not None and run.get("index") == chunk.get("index"):
            if plain(chunk):
                run["token_ids"] += chunk["token_ids"]
                continue
            if ends(chunk):
                # One event less of some four a turn, for us, the frontend and the client (``tao-bench hop``).
                out[-1] = {**chunk, "token_ids": run["token_ids"] + (chunk.get("token_ids") or [])}
                run = None
                continue
        run = chunk if plain(chunk) else None
        out.append(chunk)
    return out


class Pace:
    """How long a stream's chunks are gathered before the next are handed over.

    Handing a chunk over costs the router, the frontend and the client about as much as making it. What comes within
    the window after a batch goes as one; the window grows with the number of streams. Streams slower than a chunk per
    window, which those of real engines are, are never delayed.
    """

    shortest_s = 0.001
    per_stream_s = 0.00025
    longest_s = 0.01

    def __init__(self) -> None:
        self.streams = 0

    def window_s(self) -> float:
        """Least time between two batches of one stream, for as many streams as there are now; whole milliseconds."""
        window_s = min(self.longest_s, self.shortest_s + self.per_stream_s * self.streams)
        return round(window_s, 3)  # what uvloop's timers can keep


class Relay:
    """Gathers one stream's chunks and hands them over in batches; close it at the end of the stream.

    Args:
        put: takes a batch, or raises what the turn is to end with.
        pace: shared by all streams.
    """

    __slots__ = ("_error", "_loop", "_not_before", "_pace", "_put", "_timer", "_waiting")

    def __init__(self, put: Callable[[list[Chunk]], None], pace: Pace) -> None:
        pace.streams += 1
        self._put = put
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Chunk] = []
        self._timer: asyncio.TimerHandle | None = None
        self._not_before = 0.0
        self._error: Exception | None = None

    def add(self, chunks: list[Chunk]) -> None:
        """Take chunks; they are handed over now, or when the window after the last batch is over.

        Raises:
            Exception: what ``put`` raised, now or since the last chunks.
        """
        if self._error is not None:
            raise self._error
        self._waiting += chunks
        if self._timer is None:
            if self._loop.time() >= self._not_before:
                self.flush()
            else:
                self._timer = self._loop.call_at(self._not_before, self._due)

    def flush(self) -> None:
        """Hand over what there is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._not_before = self._loop.time() + self._pace.window_s()
            self._put(join(waiting))

    def close(self) -> None:
        """Hand over the rest."""
        self._pace.streams -= 1
        if self._error is None:
            self.flush()

    def _due(self) -> None:
        try:
            self.flush()
        except Exception as error:  # noqa: BLE001 - raised by the next add, where the turn hears of it
            self._error = error
