# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.tool_hooks.bus import Listener, Server, new_child_namespace


@pytest.fixture(autouse=True)
def _no_outer_session(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("NATS_", "DYN_"))]:
        monkeypatch.delenv(name)
    new_child_namespace()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server().start()
    yield running
    running.stop()


@pytest.fixture
def listener(server: Server) -> Iterator[Listener]:
    listening = Listener(server.port)
    yield listening
    listening.close()
