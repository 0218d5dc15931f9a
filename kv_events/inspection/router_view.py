# SPDX-License-Identifier: Apache-2.0
"""What a running TAO router says of the nodes' events: its status, read over HTTP. Optional everywhere."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any

from kv_events.types import NodeId
from tao_dynamo.errors import TaoError, UsageError

_TIMEOUT_S = 3.0


def fetch(url: str) -> dict[NodeId, str]:
    """Return the router's word for each node: ``ok``, ``stale``, ``silent``, ``mismatch``, …

    Args:
        url: of the status, such as ``http://127.0.0.1:8081/engine/tao/status``.

    Raises:
        UsageError: it is no HTTP address.
        TaoError: nobody answers there, or not with a status.
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError("--router", url, "http://HOST:PORT/engine/tao/status")
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - http or https, see above
            status = json.load(answer)
        return words(status)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TaoError(f"no status of a TAO router at {url}: {error}") from error


def words(status: Mapping[str, Any]) -> dict[NodeId, str]:
    """Read the status."""
    return {
        NodeId.parse(row["node"]): "stale" if row.get("stale") else str(row.get("events", "ok"))
        for row in status["nodes"]
    }
