# SPDX-License-Identifier: Apache-2.0
"""Recordings of the bus: JSON lines, gzip by suffix, ``{"t": seconds, "subject": "…", "data": "<base64>"}``."""

from __future__ import annotations

import base64
import binascii
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple, cast

from kv_events import wire
from kv_events.index import BlockIndex
from tao_dynamo.errors import UsageError, WireError


class Message(NamedTuple):
    """One message of the bus; ``t`` counts from the start of listening, or of the recording, in seconds."""

    t: float
    subject: str
    data: bytes

    @property
    def topic(self) -> str:
        """The last word of the subject."""
        return self.subject.rsplit(".", 1)[-1]


def open_text(path: Path, mode: str) -> IO[str]:
    """Open a recording for reading (``"rt"``) or writing (``"wt"``)."""
    if path.suffix == ".gz":
        return cast("IO[str]", gzip.open(path, mode, encoding="utf-8"))
    return path.open(mode, encoding="utf-8")


def write(out: IO[str], message: Message) -> None:
    """Append one message."""
    data = base64.b64encode(message.data).decode()
    out.write(json.dumps({"t": round(message.t, 6), "subject": message.subject, "data": data}) + "\n")


def read(path: Path) -> Iterator[Message]:
    """Read a recording message by message.

    Raises:
        UsageError: the file is not there, or a line is not a message; names file and line.
    """
    try:
        with open_text(path, "rt") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _message(line, f"{path}:{number}")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UsageError(str(path), str(error), "a readable recording") from error


def index_of(path: Path, upto: int | None, block_size: int) -> tuple[BlockIndex, int]:
    """Build the block index from the first ``upto`` messages (None: all). Also returns how many could not be read."""
    index = BlockIndex()
    unreadable = 0
    for number, message in enumerate(read(path)):
        if upto is not None and number >= upto:
            break
        if not message.subject.endswith(".kv-events"):
            continue
        try:
            batch = wire.decode_kv_events(wire.decode_envelope(message.data).payload)
        except WireError:
            unreadable += 1
            continue
        unreadable += batch.malformed
        for event in batch.events:
            index.set_block_size(event.node, block_size)
            index.apply(event, message.t)
    return index, unreadable


def _message(line: str, where: str) -> Message:
    try:
        item = json.loads(line)
        return Message(float(item["t"]), str(item["subject"]), base64.b64decode(item["data"], validate=True))
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise UsageError(where, line.strip()[:60], 'a line {"t", "subject", "data": base64}') from error
