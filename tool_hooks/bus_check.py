# SPDX-License-Identifier: Apache-2.0
"""One connection to the bus, to see whether it takes us: hooks themselves never say so."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from tao_dynamo.bus_trouble import bus_trouble, without_passwords
from tao_dynamo.errors import TaoError
from tool_hooks.nats_wire import NatsConnection, NatsOptions


def check_bus(env: Mapping[str, str]) -> str:
    """Connect as the hooks do, and leave again; return the server's URL.

    Raises:
        ConfigError: the server does not take our credentials or certificates; the variable is named.
        StackError: nobody answers.
    """
    options = NatsOptions.from_env(env)
    *others, last = options.servers
    for url in others:
        with contextlib.suppress(TaoError):
            return _try(url, options, env)
    return _try(last, options, env)


def _try(url: str, options: NatsOptions, env: Mapping[str, str]) -> str:
    try:
        NatsConnection(url, options).close()
    except (OSError, TaoError) as error:
        raise bus_trouble(error, url, env) from error
    return without_passwords(url)
