# SPDX-License-Identifier: Apache-2.0
"""Fetches the snapshot over HTTP."""

from __future__ import annotations

import gzip
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import msgspec

from tao_dynamo.errors import ConfigError, StackError, WireError
from tao_dynamo.page.wire import Snapshot

TIMEOUT_S = 5.0
_MAX_BYTES = 256 * 2**20


class Client:
    """One router.

    Args:
        url: where its page is, or its system port (``DYN_SYSTEM_PORT``), which has the same snapshot.

    Raises:
        ConfigError: that is no HTTP address.
    """

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigError("--url", url, "the address of a router's page, such as http://127.0.0.1:8260/")
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/"
        # A proxy for the world outside is none for this machine.
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
        self._engine_routes = False

    def body(self) -> bytes:
        """The snapshot's JSON.

        Raises:
            StackError: nobody answers, or not with a snapshot.
        """
        if not self._engine_routes:
            code, body = self._get("snapshot.json")
            if code == 200:
                return body
            self._engine_routes = code == 404
        if self._engine_routes:
            code, body = self._get("engine/tao/snapshot")
        if code != 200:
            raise StackError(f"{self.url} answers {code}: {_error(body)}")
        return body

    def snapshot(self) -> Snapshot:
        """The snapshot.

        Raises:
            StackError: nobody answers.
            WireError: what answers is no router of this version.
        """
        try:
            return msgspec.json.decode(self.body(), type=Snapshot)
        except msgspec.MsgspecError as error:
            raise WireError(f"{self.url} is no router of this version of TAO: {error}") from error

    def explain(self, session: str) -> dict[str, Any]:
        """What is known of one session; ``{"error": …}`` if it is not known.

        Raises:
            StackError: nobody answers.
        """
        if self._engine_routes:
            _, body = self._get("engine/tao/explain", {"session": session})
        else:
            _, body = self._get(f"explain.json?session={urllib.parse.quote(session, safe='')}")
        try:
            told = json.loads(body)
        except ValueError:
            told = None
        return told if isinstance(told, dict) else {"error": "the router gave no answer that can be read"}

    def _get(self, path: str, send: dict[str, str] | None = None) -> tuple[int, bytes]:
        data = None if send is None else json.dumps(send).encode()
        headers = {"Accept-Encoding": "gzip", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data=data, headers=headers)  # noqa: S310 - http(s) only
        try:
            with self._open(request, timeout=TIMEOUT_S) as answer:
                body = answer.read(_MAX_BYTES)
                packed = answer.headers.get("Content-Encoding") == "gzip"
                return answer.status, gzip.decompress(body) if packed else body
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(65_536)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            hint = "start one with `dynamo serve`, or say where it is with --url"
            raise StackError(f"no router answers at {self.url} ({reason}); {hint}") from error


def _error(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")
