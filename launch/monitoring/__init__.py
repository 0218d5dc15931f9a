# SPDX-License-Identifier: Apache-2.0
"""The Grafana board and the Prometheus alert rules, as they are shipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
BOARD = FOLDER / "tao-board.json"
ALERTS = FOLDER / "tao-alerts.yaml"


def board_text() -> str:
    """The board, as Grafana imports it."""
    return BOARD.read_text(encoding="utf-8")


def alert_groups() -> list[dict[str, Any]]:
    """The rule groups, as Prometheus reads them."""
    import yaml

    groups: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return groups
