# SPDX-License-Identifier: Apache-2.0
"""Structured logs: one event a line, as logfmt or JSON."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, Literal

LogFormat = Literal["logfmt", "json"]
_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:+@#")


class Events:
    """Writes events by name with fields: ``log.info("node_joined", node="7/0", tokens=32768)``."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: object) -> None:
        """For those who look for a fault: one line per turn and plan."""
        if self._logger.isEnabledFor(logging.DEBUG):
            self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Something that an operator may want to know."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Something is wrong, and serving goes on."""
        self._write(logging.WARNING, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """A fault of ours, with its traceback; serving goes on."""
        self._logger.error(event, extra={"fields": fields}, exc_info=True)  # noqa: LOG014 - called from one

    def _write(self, level: int, event: str, fields: dict[str, object]) -> None:
        self._logger.log(level, event, extra={"fields": fields})


class LineFormatter(logging.Formatter):
    """One line per record, whatever is in it; records of other libraries get their message as the event."""

    def __init__(self, style: LogFormat = "logfmt") -> None:
        super().__init__()
        self._json = style == "json"

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "ts": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        if self._json:
            return json.dumps(line, default=str)
        return " ".join(f"{key}={_logfmt(value)}" for key, value in line.items())


def _logfmt(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if text and _BARE.issuperset(text) else json.dumps(text)


def set_up(style: LogFormat = "logfmt", level: int = logging.INFO) -> None:
    """Send every record of the process to stderr in one form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(style))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
