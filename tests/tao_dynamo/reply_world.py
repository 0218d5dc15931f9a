# SPDX-License-Identifier: Apache-2.0
"""Replies to a frontend made by hand."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

from tao_dynamo.shell.ingress_wire import Request
from tao_dynamo.shell.reply import Place, Reply
from tests.tao_dynamo.ingress_world import PATH, Frontend, eventually

LARGE = {"text": "x" * (16 << 20)}
"""More than any kernel keeps for a client that does not read."""


def made(place: Place, headers: dict[str, Any] | None = None) -> Reply:
    return Reply(Request(PATH, {}, "", "s1", headers or {}, {"tenant": "a"}), place)


def answering(frontend: Frontend) -> Reply:
    return made(frontend.place)


def look(one: Reply, later: float = 0.0) -> None:
    one.look(asyncio.get_running_loop().time() + later)


def tokens(chunks: list[dict[str, Any]]) -> list[int]:
    return [token for one in chunks for token in one.get("token_ids") or []]


async def left(one: Reply) -> None:
    """Until it has heard that its client has closed."""

    def gone() -> bool:
        look(one)
        return one.closed

    await eventually(gone)


@contextlib.contextmanager
def crowded() -> Iterator[tuple[socket.socket, Place]]:
    """A port whose one place is taken: who connects must wait until it is free, and asks again after 1 s."""
    with socket.socket() as server, socket.socket() as other:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        server.settimeout(20.0)
        other.connect(server.getsockname())
        yield server, (int(socket.AF_INET), server.getsockname())
