# SPDX-License-Identifier: Apache-2.0
"""Folders as Dynamo 1.6.1 writes them, cut down to what is read."""

from __future__ import annotations

import http.server
import json
import threading
from pathlib import Path

import pytest

from kv_events.inspection import discovery, router_view
from kv_events.types import NodeId
from tao_dynamo.errors import TaoError, UsageError


def entry(folder: Path, name: str, content: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))


def model(worker: int, blocks: int | None, **config: object) -> dict[str, object]:
    card = {"kv_cache_block_size": 16, "runtime_config": {"total_kv_blocks": blocks, **config}}
    return {"type": "Model", "instance_id": worker, "card_json": card}


def channel(topic: str, transport: object) -> dict[str, object]:
    return {"type": "EventChannel", "topic": topic, "transport": transport}


def test_cards_ranks_and_transports(tmp_path: Path) -> None:
    mdc, channels = tmp_path / "v1" / "mdc", tmp_path / "v1" / "event_channels"
    entry(mdc, "workers%2Fa", model(2**63 + 5, 2048, kv_event_publishing_enabled=False))
    entry(mdc, "workers%2Fb", model(9, 1024, data_parallel_size=2, data_parallel_start_rank=4))
    entry(mdc, "tao%2Frouter", model(77, None))
    entry(mdc, "half written", '{"type": "Mod')
    entry(mdc, "a list", [1])
    entry(mdc, "no card", {"type": "Model", "instance_id": 5, "card_json": None})
    entry(channels, "a", channel("kv-events", {"kind": "Zmq", "config": {"endpoint": "tcp://127.0.0.1:1"}}))
    entry(channels, "b", channel("kv-events", {"kind": "Nats"}))
    found = discovery.read(tmp_path)
    assert found.cards == {
        NodeId(2**63 + 5, 0): discovery.Card(NodeId(2**63 + 5, 0), 16, 2048, False),
        NodeId(9, 4): discovery.Card(NodeId(9, 4), 16, 1024, True),
        NodeId(9, 5): discovery.Card(NodeId(9, 5), 16, 1024, True),
    }
    assert found.transports("kv-events") == {"zmq": 1, "nats": 1}
    assert not found.transports("kv_metrics")


def test_a_worker_that_tells_no_blocks_is_known_by_its_events(tmp_path: Path) -> None:
    entry(tmp_path, "m", model(9, None))
    assert not discovery.read(tmp_path).cards
    entry(tmp_path, "s", {"type": "EventSource", "topic": "kv-events", "metadata": {"worker": {"worker_id": 9}}})
    assert list(discovery.read(tmp_path).cards) == [NodeId(9, 0)]


def test_no_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--discovery"):
        discovery.read(tmp_path / "none")


def test_the_routers_words() -> None:
    status = {
        "nodes": [
            {"node": "7/0", "stale": True, "events": "ok"},
            {"node": f"{2**63}/1", "stale": False, "events": "mismatch"},
            {"node": "9/0"},
        ]
    }
    assert router_view.words(status) == {NodeId(7, 0): "stale", NodeId(2**63, 1): "mismatch", NodeId(9, 0): "ok"}


def test_the_router_is_asked_over_http() -> None:
    class Status(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"nodes": [{"node": "7/0", "stale": false, "events": "ok"}]}' if self.path == "/good" else b"[]"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Status) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert router_view.fetch(url + "/good") == {NodeId(7, 0): "ok"}
        with pytest.raises(TaoError, match="no status of a TAO router"):
            router_view.fetch(url + "/bad")
        server.shutdown()
    with pytest.raises(TaoError, match="no status of a TAO router"):
        router_view.fetch("http://127.0.0.1:9/engine/tao/status")
    with pytest.raises(UsageError, match="--router"):
        router_view.fetch("file:///etc/passwd")
