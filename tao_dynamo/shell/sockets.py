# SPDX-License-Identifier: Apache-2.0
"""Options of the sockets that turns go over."""

from __future__ import annotations

import contextlib
import resource
import socket

ENOUGH = 1 << 16
"""File descriptors; a turn takes two while it runs. Beyond this other things end first."""
OTHERS = 100
"""File descriptors for all else."""


def allow_many() -> int:
    """Allow this process as many file descriptors as it may have, up to enough; returns how many.

    A shell's usual limit is 1,024, which is less than 500 turns at once.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ENOUGH if hard == resource.RLIM_INFINITY else min(ENOUGH, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    return ENOUGH if soft == resource.RLIM_INFINITY else soft


def turns_at_once() -> int:
    """How many turns there are file descriptors for."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (ENOUGH if soft == resource.RLIM_INFINITY else max(2, soft - OTHERS)) // 2


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
