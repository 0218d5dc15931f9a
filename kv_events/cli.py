# SPDX-License-Identifier: Apache-2.0
"""``tao-events``: look at the bus, record it, and ask what a recording says is on each node.

It only subscribes, so it never disturbs the bus, and it needs no router.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from kv_events import recording
from kv_events.chain import block_hashes, sequence_hashes
from kv_events.reader import BusOptions
from tao_dynamo.bus_trouble import bus_trouble
from tao_dynamo.errors import TaoError, UsageError

TOPICS = ("kv-events", "kv_metrics", "forward-pass-metrics", "agent-tool-events")
MAX_SHOWN = 200
"""Hashes of one event that a line shows are cut, so that a line stays a line."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code: 2 for bad input, 1 where the bus cannot be reached."""
    args = _parser().parse_args(argv)
    try:
        code: int = args.run(args)
    except UsageError as error:
        print(f"tao-events: {error}", file=sys.stderr)
        return 2
    except TaoError as error:
        print(f"tao-events: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 0
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tao-events", description="Look at Dynamo's event bus.")
    commands = parser.add_subparsers(required=True, metavar="tail|record|overlap")

    tail = commands.add_parser("tail", help="print decoded events as they come, one line each")
    _bus(tail)
    tail.add_argument("--json", action="store_true", help="one JSON object a line (default: text)")
    tail.add_argument("--topic", choices=TOPICS, help="only this topic (default: all)")
    tail.add_argument("--worker", help="only this worker id (default: all)")
    tail.add_argument("--session", help="only this session's tool events (default: all)")
    tail.add_argument("--kind", help="only this kind: stored, removed, cleared, tool_start, … (default: all)")
    tail.set_defaults(run=_tail)

    record = commands.add_parser("record", help="write the bus to a file")
    record.add_argument("file", type=Path, help="JSON lines; gzip if it ends in .gz")
    _bus(record)
    record.set_defaults(run=_record)

    overlap = commands.add_parser("overlap", help="blocks of token sequences on each node, by a recording")
    overlap.add_argument("recording", type=Path, help="what `tao-events record` wrote")
    overlap.add_argument("--tokens", type=Path, required=True, help='{"block_size": 16, "sessions": {"name": [ids…]}}')
    overlap.add_argument("--upto", type=int, help="use the first N messages only (default: all)")
    overlap.add_argument("--json", action="store_true", help="print JSON (default: text)")
    overlap.set_defaults(run=_overlap)
    return parser


def _bus(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nats", help="server, several with commas (default: NATS_SERVER, else nats://localhost:4222)")
    parser.add_argument("--seconds", type=float, help="stop after this long (default: when interrupted)")


def _tail(args: argparse.Namespace) -> int:
    def show(message: recording.Message) -> None:
        for line in describe(message):
            if _wanted(line, args):
                print(json.dumps(line) if args.json else _text(line), flush=True)

    return asyncio.run(_follow(args, show))


def _record(args: argparse.Namespace) -> int:
    count = 0
    try:
        out = recording.open_text(args.file, "wt")
    except OSError as error:
        raise UsageError(str(args.file), str(error), "a file that can be written") from error
    with out:

        def keep(message: recording.Message) -> None:
            nonlocal count
            count += 1
            recording.write(out, message)

        code = asyncio.run(_follow(args, keep))
    print(f"{count} messages in {args.file}", file=sys.stderr)
    return code


def _overlap(args: argparse.Namespace) -> int:
    if args.upto is not None and args.upto < 0:
        raise UsageError("--upto", args.upto, "0 or more")
    try:
        asked = msgspec.json.decode(args.tokens.read_bytes(), type=_Tokens)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(str(args.tokens), str(error), '{"block_size": 16, "sessions": {"name": [ids…]}}') from error
    index, unreadable = recording.index_of(args.recording, args.upto, asked.block_size)
    answer = {}
    for name, tokens in asked.sessions.items():
        found = index.overlap(sequence_hashes(block_hashes(tokens, asked.block_size)), asked.block_size)
        answer[name] = {str(node): found.get(node, 0) for node in index.nodes}
    if unreadable:
        print(f"tao-events: {unreadable} events could not be read and were left out", file=sys.stderr)
    if args.json:
        print(json.dumps(answer))
    else:
        for name, nodes in answer.items():
            print(name, *(f"{node}={blocks}" for node, blocks in nodes.items()))
    return 0


class _Tokens(msgspec.Struct):
    block_size: int
    sessions: dict[str, list[int]]

    def __post_init__(self) -> None:
        if self.block_size < 1:
            raise ValueError(f"block_size: got {self.block_size}, want 1 or more")


async def _follow(args: argparse.Namespace, handle: Callable[[recording.Message], None]) -> int:
    """Hand over every message of the four topics until time is up or the user stops it."""
    import nats
    import nats.errors

    options = BusOptions.from_env()
    if args.nats:
        options = replace(options, servers=tuple(args.nats.split(",")))
    failures: list[Exception] = []

    async def note(error: Exception) -> None:
        failures.append(error)

    # nats-py ends a refused TLS connection in a way that asyncio remarks on.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    bus = nats.NATS()
    try:
        # A client that may reconnect tries again and again inside its first connect, whatever refused it.
        await bus.connect(
            **options.arguments(),
            name="tao-events",
            allow_reconnect=False,
            max_reconnect_attempts=2,
            reconnect_time_wait=0.2,
            connect_timeout=5,
            error_cb=note,
        )
    except (OSError, nats.errors.Error, TimeoutError) as error:
        raise bus_trouble(failures[-1] if failures else error, ",".join(options.servers), os.environ) from error
    bus.options["allow_reconnect"] = True
    start = time.monotonic()

    async def receive(message: Any) -> None:
        handle(recording.Message(time.monotonic() - start, message.subject, message.data))

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    for topic in TOPICS[:3]:
        await bus.subscribe(f"namespace.*.component.*.endpoint.*.{topic}", cb=receive)
    await bus.subscribe("namespace.*.agent-tool-events", cb=receive)
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(stop.wait(), args.seconds)
    await bus.drain()
    return 0


def describe(message: recording.Message) -> list[dict[str, Any]]:
    """Decode a message into one flat record per event. What cannot be read becomes a record that says so."""
    topic = message.subject.rsplit(".", 1)[-1]
    base: dict[str, Any] = {"t": round(message.t, 3), "topic": topic}
    try:
        envelope = msgspec.msgpack.decode(message.data)
        payload = msgspec.msgpack.decode(envelope["payload"])
        base["sequence"] = envelope.get("sequence")
        if topic == "kv-events":
            return [base | _kv_event(event) for event in payload]
        if topic == "agent-tool-events":
            return [base | _tool_event(payload)]
        node = f"{payload.get('worker_id')}/{payload.get('dp_rank', 0)}"
        rest = {k: v for k, v in payload.items() if k not in ("worker_id", "dp_rank")}
        return [base | {"node": node} | rest]
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        return [base | {"kind": "unreadable", "bytes": len(message.data), "error": str(error)[:80]}]


def _kv_event(item: dict[str, Any]) -> dict[str, Any]:
    event = item["event"]
    data = event["data"]
    record = {
        "node": f"{item['worker_id']}/{event.get('dp_rank', 0)}",
        "event_id": event["event_id"],
        "tier": item.get("storage_tier", "device"),
    }
    if isinstance(data, str):
        return record | {"kind": data}
    kind, body = next(iter(data.items()))
    if kind == "stored":
        hashes = [block["block_hash"] for block in body["blocks"]]
        return record | {"kind": kind, "parent": body.get("parent_hash"), "blocks": hashes[:MAX_SHOWN]}
    if kind == "removed":
        return record | {"kind": kind, "blocks": body["block_hashes"][:MAX_SHOWN]}
    return record | {"kind": kind}


def _tool_event(event: dict[str, Any]) -> dict[str, Any]:
    session = (event.get("agent_context") or event).get("session_id")
    return {"kind": event.get("event_type"), "session": session} | dict(event.get("tool") or {})


def _wanted(line: dict[str, Any], args: argparse.Namespace) -> bool:
    return (
        (args.topic is None or line["topic"] == args.topic)
        and (args.worker is None or str(line.get("node", "")).split("/")[0] == args.worker)
        and (args.session is None or line.get("session") == args.session)
        and (args.kind is None or line.get("kind") == args.kind)
    )


def _text(line: dict[str, Any]) -> str:
    parts = [f"{line['t']:9.3f}", f"{line['topic']:<20}"]
    for key, value in line.items():
        if key in ("t", "topic") or value is None:
            continue
        if isinstance(value, list):
            value = f"{len(value)} blocks" if value else "0 blocks"  # noqa: PLW2901 - shown shorter
        parts.append(str(value) if key in ("kind", "node") else f"{key}={value}")
    return " ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
