# SPDX-License-Identifier: Apache-2.0
"""The router's own small HTTP server: the page, the snapshot and ``explain``. It only reads.

Dynamo's system server can serve JSON only (``register_engine_route`` takes a function from dict to dict), so the
page has a port of its own. There is nothing to write here, hence no token: whoever can reach the port can see which
sessions there are, and so it is bound to loopback unless told otherwise.
"""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from tao_dynamo.errors import StackError
from tao_dynamo.page.document import Document
from tao_dynamo.page.shared import Shared
from tao_dynamo.shell.logs import Events

log = Events("tao.page")

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8260
"""T, A and O on the keys of a telephone, and a nought."""
MAX_ID_CHARS = 1024

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_NOTHING = "default-src 'none'; frame-ancestors 'none'"

Explain = Callable[[str], Mapping[str, Any]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PageServer:
    """Serves the page.

    Args:
        shared: the snapshot.
        explain: what is known of one session.
        host: address to bind.
        port: TCP port; 0 takes a free one.
    """

    def __init__(self, shared: Shared, explain: Explain, *, host: str = DEFAULT_HOST, port: int = DEFAULT_PORT) -> None:
        self._shared = shared
        self._explain = explain
        self._host = host
        self._port = port
        self._document = Document.load()
        self._runner: web.AppRunner | None = None

    async def start(self) -> str:
        """Listen. Returns the URL. If the port is taken, a free one is used: a page must not stop a router.

        Raises:
            StackError: the address cannot be bound.
        """
        app = web.Application(middlewares=[self._guard], client_max_size=4096)
        app.add_routes(
            [
                web.get("/", self._page),
                web.get("/snapshot.json", self._snapshot),
                web.get("/explain.json", self._explained),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        for port in dict.fromkeys((self._port, 0)):
            try:
                site = web.TCPSite(self._runner, self._host, port)
                await site.start()
            except OSError as error:
                if error.errno == errno.EADDRINUSE and port:
                    continue
                raise StackError(f"the page cannot be served on {self._host} port {port}: {error.strerror}") from error
            break
        address = self._runner.addresses[0]
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{address[1]}/"

    async def close(self) -> None:
        """Stop listening; open connections are closed."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse what a page of another site may send by a name of its own that leads to loopback; add the headers."""
        if is_loopback(self._host) and not is_loopback(_name(request.host)):
            response: web.StreamResponse = _json(
                {"error": f"this page is for this machine only, not for {_name(request.host)!r}; use a tunnel"}, 403
            )
        else:
            try:
                response = await handler(request)
            except web.HTTPException as error:
                response = _json({"error": f"{error.status} {error.reason}"}, error.status)
                if isinstance(error, web.HTTPMethodNotAllowed):
                    response.headers["Allow"] = ", ".join(sorted(error.allowed_methods))
            except Exception as error:
                log.exception("page_failed", path=request.path)
                response = _json({"error": f"the router could not be looked at: {type(error).__name__}: {error}"}, 500)
        for name, value in _HEADERS.items():
            response.headers[name] = value
        response.headers.setdefault("Content-Security-Policy", _NOTHING)
        return response

    async def _page(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=self._document.body,
            content_type="text/html",
            charset="utf-8",
            headers={"Content-Security-Policy": self._document.policy},
        )

    async def _snapshot(self, request: web.Request) -> web.Response:
        shot = await self._shared.get()
        if shot.packed and "gzip" in request.headers.get("Accept-Encoding", ""):
            packed = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
            return web.Response(body=shot.packed, content_type="application/json", headers=packed)
        return web.Response(body=shot.body, content_type="application/json", headers={"Vary": "Accept-Encoding"})

    async def _explained(self, request: web.Request) -> web.Response:
        session = request.query.get("session", "")
        if not session or len(session) > MAX_ID_CHARS:
            return _json({"error": "ask for ?session=ID"}, 400)
        told = self._explain(session)
        return _json(told, 404 if "error" in told else 200)


def is_loopback(host: str) -> bool:
    """Whether a host name or address leads to this machine only."""
    name = host.strip("[]").lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _name(host: str) -> str:
    """The host of a ``Host`` header, without the port."""
    if host.startswith("["):
        return host.partition("]")[0].removeprefix("[")
    return host.partition(":")[0]


def _json(value: Mapping[str, Any], status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")
