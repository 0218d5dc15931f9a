# SPDX-License-Identifier: Apache-2.0
"""The load of ``tao-bench hop``, in a process of its own: as little work per chunk as a client can do.

Reads a JSON job from stdin, writes the measured cells as JSON to stdout. Connections are kept alive; a stream's bytes
are only counted and searched for its end, since 30,000 events a second must not cost what is to be measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from tao_dynamo.errors import StackError

_END = b"0\r\n\r\n"
_COUNT = re.compile(rb'"completion_tokens":(\d+)')
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)
_TURN_TIMEOUT_S = 60.0


@dataclass
class Cell:
    """One graph under one load. Times in seconds; ``cpu_s`` is that of the processes in the job, by part."""

    graph: str
    tokens: int
    concurrency: int
    turns: int = 0
    output_tokens: int = 0
    wall_s: float = 0.0
    first_s: list[float] = field(default_factory=list)
    total_s: list[float] = field(default_factory=list)
    events: int = 0
    cpu_s: dict[str, float] = field(default_factory=dict)


class _Connection(asyncio.Protocol):
    """One kept-alive connection, one turn at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._done: asyncio.Future[None] | None = None
        self._tail = b""
        self.first = 0.0
        self.events = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._socket = transport.get_extra_info("socket")
        if self._socket is not None:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        if self._socket is not None and _QUICKACK is not None:
            # Else streams on loopback stall for 44 ms; the kernel forgets the option after each piece.
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
        count = data.count(b"data:")
        if count and not self.first:
            self.first = time.perf_counter()
        self.events += count
        self._tail = (self._tail + data)[-2048:]
        if self._tail.endswith(_END) and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(StackError(f"the server broke off ({exc or 'closed'})"))

    async def turn(self, raw: bytes) -> int:
        """Send a request; returns how many tokens came."""
        if self._transport is None:
            raise StackError("not connected")
        self.first, self.events, self._tail = 0.0, 0, b""
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(raw)
        await asyncio.wait_for(self._done, _TURN_TIMEOUT_S)
        found = _COUNT.search(self._tail)
        if found is None:
            raise StackError(f"an answer without usage: {self._tail[-300:]!r}")
        return int(found[1])

    def close(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.abort()


def _request(url: str, model: str, session: str, tokens: int, prompt: list[int]) -> bytes:
    parts = urlsplit(url)
    body = json.dumps(
        {
            "model": model,
            "prompt": prompt,
            "max_tokens": tokens,
            "min_tokens": tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\n"
        f"x-dynamo-session-id: {session}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def measure(graph: str, about: Mapping[str, Any], tokens: int, concurrency: int, turns: int) -> Cell:
    """Run ``turns`` turns, so many at once, each connection a session of its own."""
    cell = Cell(graph, tokens, concurrency)
    parts = urlsplit(about["url"])
    loop = asyncio.get_running_loop()
    left = iter(range(turns))

    async def agent(number: int) -> None:
        _, connection = await loop.create_connection(_Connection, parts.hostname, parts.port)
        prompt = [300 + (number * 37 + i * 7) % 2000 for i in range(64)]
        raw = _request(about["url"], about["model"], f"hop-{tokens}-{number}", tokens, prompt)
        try:
            for _ in left:
                began = time.perf_counter()
                came = await connection.turn(raw)
                ended = time.perf_counter()
                if came != tokens:
                    raise StackError(f"{graph}: {came} tokens came instead of {tokens}")
                cell.turns += 1
                cell.output_tokens += came
                cell.events += connection.events
                cell.first_s.append(connection.first - began)
                cell.total_s.append(ended - began)
        finally:
            connection.close()

    pids = about["pids"] | {"client": [os.getpid()]}
    before = {part: _cpu(named) for part, named in pids.items()}
    began = time.perf_counter()
    await asyncio.gather(*(agent(number) for number in range(concurrency)))
    cell.wall_s = time.perf_counter() - began
    cell.cpu_s = {part: _cpu(named) - before[part] for part, named in pids.items()}
    return cell


def _cpu(pids: Sequence[int]) -> float:
    """CPU seconds of these processes so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


async def run(job: Mapping[str, Any], cells: list[Cell]) -> None:
    """Measure every cell of the job, the graphs in turn within each repetition."""
    me = asyncio.current_task()
    if me is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, me.cancel)
    for about in job["graphs"].values():
        await measure("warm", about, 8, 8, 64)
    for repetition in range(job["repetitions"]):
        names = list(job["graphs"])
        # Nobody is always first after the pause.
        names = names[repetition % len(names) :] + names[: repetition % len(names)]
        for tokens, concurrency, turns in job["loads"]:
            for name in names:
                cells.append(await measure(name, job["graphs"][name], tokens, concurrency, turns))
                print(f"{statistics.median(cells[-1].total_s) * 1e3:9.2f} ms  {name}", file=sys.stderr)


def main() -> int:
    """Entry point. Told to end early it gives what it has."""
    import uvloop

    job = json.load(sys.stdin)
    cells: list[Cell] = []
    with contextlib.suppress(asyncio.CancelledError):
        uvloop.run(run(job, cells))
    json.dump([asdict(cell) for cell in cells], sys.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
