# SPDX-License-Identifier: Apache-2.0
"""The way of a turn's chunks back to Dynamo: pushed into its response sender, or pulled out of a generator.

Pushing costs half of being pulled from (``tao-bench hop``): no hop between threads for each chunk. But a push blocks
once the frontend is some 128 chunks behind, and what it blocks is the event loop of all turns. So only a turn's first
chunks are pushed from the loop, fewer than fit; the rest are pushed by a thread, joined while that thread is held up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from tao_dynamo.errors import SlowClientError
from tao_dynamo.shell.relay import Chunk, join

FROM_THE_LOOP = 100
"""Chunks of a turn pushed from the event loop; Dynamo 1.6's channel takes 128 before it blocks."""
MOST_BEHIND = 4096
"""Chunks that may wait for a client that does not read, once joined. Beyond it the turn ends, or it would keep all."""
_MOST_THREADS = 512


class Sender(Protocol):
    """Dynamo's response sender."""

    def send(self, obj: Chunk) -> None:
        """Hand a chunk over; blocks while the channel is full. RuntimeError: the client has left."""


class Outlet(Protocol):
    """Where chunks go."""

    def put(self, chunks: list[Chunk]) -> None:
        """Take chunks; never waits. Once the client has left they are dropped.

        Raises:
            SlowClientError: too many wait for the client already; the turn is to end.
        """


class Push:
    """Pushes into a response sender.

    Args:
        sender: Dynamo's.
        threads: for chunks that may have to wait; see :func:`threads`.
    """

    def __init__(self, sender: Sender, threads: ThreadPoolExecutor) -> None:
        self._sender = sender
        self._threads = threads
        self._left = FROM_THE_LOOP
        self._behind: list[Chunk] = []
        self._pushing: asyncio.Future[None] | None = None
        self._gone = False

    def put(self, chunks: list[Chunk]) -> None:
        """Take chunks; never waits.

        Raises:
            SlowClientError: too many wait already.
        """
        if self._gone:
            return
        if self._pushing is None and len(chunks) <= self._left:
            self._left -= len(chunks)
            self._send(chunks)
            return
        self._behind = bounded(self._behind, chunks)
        if self._pushing is None:
            self._push_on()

    async def drained(self) -> None:
        """Wait until everything is handed over. Dynamo ends the stream itself when the turn's generator ends."""
        while self._pushing is not None:
            await asyncio.wait((self._pushing,))
            await asyncio.sleep(0)

    def _push_on(self) -> None:
        chunks, self._behind = join(self._behind), []
        self._pushing = asyncio.get_running_loop().run_in_executor(self._threads, self._send, chunks)
        self._pushing.add_done_callback(self._pushed)

    def _pushed(self, _done: asyncio.Future[None]) -> None:
        self._pushing = None
        if self._behind:
            self._push_on()

    def _send(self, chunks: list[Chunk]) -> None:
        try:
            for chunk in chunks:
                self._sender.send(chunk)
        except RuntimeError:
            # Dynamo has stopped the turn's context as well, which is how the turn hears of it.
            self._gone = True


class Pull:
    """Keeps chunks until they are asked for, one by one."""

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._news = asyncio.Event()

    def put(self, chunks: list[Chunk]) -> None:
        """Take chunks; never waits.

        Raises:
            SlowClientError: too many wait already.
        """
        self._chunks = bounded(self._chunks, chunks)
        self._news.set()

    async def until(self, work: asyncio.Task[None]) -> AsyncIterator[Chunk]:
        """Yield the chunks that ``work`` puts here, until it is done; it is cancelled if nobody asks any longer.

        Raises:
            Exception: what ended the work, after everything that came before it.
        """
        work.add_done_callback(lambda _: self._news.set())
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                done = work.done()
                chunks, self._chunks = join(self._chunks), []
                for chunk in chunks:
                    yield chunk
                if done:
                    work.result()
                    return
        finally:
            work.cancel()


def bounded(behind: list[Chunk], more: list[Chunk]) -> list[Chunk]:
    """Put more chunks behind those that wait, joined where there are too many.

    Raises:
        SlowClientError: there are too many even so; those that wait stay as they are.
    """
    if len(behind) + len(more) <= MOST_BEHIND:
        behind += more
        return behind
    # Copies, since joining changes what it joins.
    together = join([_copy(chunk) for chunk in (*behind, *more)])
    if len(together) > MOST_BEHIND:
        raise SlowClientError(f"the client does not read: more than {MOST_BEHIND} chunks wait for it")
    return together


def _copy(chunk: Chunk) -> Chunk:
    tokens = chunk.get("token_ids")
    return {**chunk, "token_ids": list(tokens)} if tokens else dict(chunk)


def threads() -> ThreadPoolExecutor:
    """Threads for turns whose client reads more slowly than its tokens come; as many as are held up at once."""
    return ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="tao-push")
