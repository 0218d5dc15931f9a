# SPDX-License-Identifier: Apache-2.0
"""As much of etcd's JSON gateway as changes one record, with the faults that it may have."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Kept:
    value: bytes
    lease: int
    mod_revision: int


@dataclass
class FakeEtcd:
    """Its records, and what goes wrong.

    Attributes:
        asked: path and question of each request.
        users: name -> password; empty: nobody is asked.
        before: called with the path before a request is dealt with; what it returns is the answer.
        after: called with the path once a request is dealt with; if it returns True, the answer is lost.
    """

    records: dict[str, Kept] = field(default_factory=dict)
    revision: int = 1
    users: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    before: Callable[[str], tuple[int, bytes] | None] = lambda _path: None
    after: Callable[[str], bool] = lambda _path: False
    url: str = ""

    def put(self, key: str, value: bytes, lease: int) -> None:
        self.revision += 1
        self.records[key] = Kept(value, lease, self.revision)

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    def answer(self, path: str, token: str, question: dict[str, Any]) -> tuple[int, bytes] | None:
        """Status and text of the answer; None: it is lost."""
        self.asked.append((path, question))
        fault = self.before(path)
        if fault is not None:
            return fault
        if path == "/v3/auth/authenticate":
            right = self.users.get(question["name"]) == question["password"]
            found = _ok({"token": "let-me-in"}) if right else _no(400, "etcdserver: authentication failed")
        elif self.users and token != "let-me-in":  # noqa: S105
            found = _no(400, "etcdserver: user name is empty")
        else:
            found = {"/v3/kv/range": self._range, "/v3/kv/txn": self._txn}[path](question)
        return None if self.after(path) else found

    def _range(self, question: dict[str, Any]) -> tuple[int, bytes]:
        kept = self.records.get(_plain(question["key"]).decode())
        if kept is None:
            return _ok({"header": {"revision": str(self.revision)}})
        # As etcd writes them: whole numbers as text, base64, and what is nothing is left out.
        one = {
            "key": question["key"],
            "create_revision": "2",
            "mod_revision": str(kept.mod_revision),
            "version": "1",
            "value": base64.b64encode(kept.value).decode(),
            "lease": str(kept.lease),
        }
        return _ok({"header": {"revision": str(self.revision)}, "kvs": [one], "count": "1"})

    def _txn(self, question: dict[str, Any]) -> tuple[int, bytes]:
        (compare,) = question["compare"]
        (put,) = (one["request_put"] for one in question["success"])
        assert (compare["target"], compare["result"], put["key"]) == ("MOD", "EQUAL", compare["key"])
        key = _plain(put["key"]).decode()
        kept = self.records.get(key)
        if (kept.mod_revision if kept else 0) != int(compare["mod_revision"]):
            return _ok({"header": {}})
        assert kept is not None
        assert not ("lease" in put and put.get("ignore_lease"))
        self.put(key, _plain(put["value"]), kept.lease if put.get("ignore_lease") else int(put.get("lease", 0)))
        return _ok({"header": {}, "succeeded": True, "responses": [{"response_put": {}}]})


@contextmanager
def served(etcd: FakeEtcd, tls: ssl.SSLContext | None = None) -> Iterator[FakeEtcd]:
    """Serve it on a free port of this machine, which ``etcd.url`` then tells."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found = etcd.answer(self.path, self.headers.get("Authorization", ""), question)
            if found is None:
                self.close_connection = True
                return
            status, text = found
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Clients that leave, and those who speak no TLS with us."""

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    etcd.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
    try:
        yield etcd
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _plain(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _ok(answer: dict[str, Any]) -> tuple[int, bytes]:
    return 200, json.dumps(answer).encode()


def _no(status: int, why: str) -> tuple[int, bytes]:
    return status, json.dumps({"error": why, "code": 3, "message": why}).encode()
