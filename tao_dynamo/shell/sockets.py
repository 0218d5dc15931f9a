# SPDX-License-Identifier: Apache-2.0
"""Options of the sockets that turns go over."""

from __future__ import annotations

import contextlib
import socket


def prompt_and_watched(sock: socket.socket | None) -> None:
    """Send small pieces at once; notice within half a minute a peer whose machine has gone.

    What a listening socket accepts has its options.
    """
    if sock is None:
        return
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, seconds in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
