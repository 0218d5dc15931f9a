# SPDX-License-Identifier: Apache-2.0
"""``tao-events``: look at the bus, check it, record it, play it back, ask what a recording says is on each node.

All but ``replay`` only subscribe, so they never disturb the bus; none needs a router.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from kv_events import recording
from kv_events.chain import block_hashes, sequence_hashes
from kv_events.inspection import live
from kv_events.inspection.describe import Filter
from kv_events.inspection.replay import replay
from kv_events.inspection.tap import TOPICS, stop_on_signals
from kv_events.reader import BusOptions
from tao_dynamo.errors import ConfigError, TaoError, UsageError

_CHECK_CODES = "exit code: 0 healthy, 1 no NATS, 2 bad input, 3 nothing of the workers on NATS, 4 something is wrong"


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
    commands = parser.add_subparsers(required=True, metavar="tail|top|check|record|replay|overlap")

    tail = commands.add_parser("tail", help="print decoded events as they come, one line each")
    _bus(tail)
    _json(tail, "one JSON object a line")
    _sample(tail, 1000, "show at most so many messages a second, and say what was left out")
    tail.add_argument("--topic", choices=TOPICS, help="only this topic [default: all]")
    tail.add_argument("--worker", help="only this worker id [default: all]")
    tail.add_argument("--session", help="only this session's tool events [default: all]")
    tail.add_argument("--kind", help="only this kind: stored, removed, cleared, tool_start, … [default: all]")
    tail.set_defaults(run=_tail)

    top = commands.add_parser("top", help="a live table per node and per session; printed once where it is no terminal")
    _bus(top, seconds="2", text="with --once or no terminal: listen for so long")
    _json(top, "one JSON object every --seconds")
    top.add_argument("--once", action="store_true", help="print the tables once [default: live in a terminal]")
    _sample(top, 10_000, "decode at most so many messages of workers a second, and scale the rates up")
    _around(top)
    top.add_argument(
        "--block-size", type=_whole, help="tokens per block of nodes that discovery does not tell [default: not known]"
    )
    top.set_defaults(run=_top)

    check = commands.add_parser("check", help="is the bus healthy, and what is to be done", epilog=_CHECK_CODES)
    _bus(check, seconds="5", text="how long to listen")
    _json(check, "one JSON object")
    _sample(check, 10_000, "decode at most so many messages of workers a second")
    _around(check)
    check.add_argument("--tokens", type=Path, help="prompts being served, as overlap takes them [default: none]")
    check.add_argument("--need-tools", action="store_true", help="fail where no tool events come [default: a note]")
    check.set_defaults(run=_check)

    record = commands.add_parser("record", help="write the bus to a file")
    record.add_argument("file", type=Path, help="JSON lines; gzip if it ends in .gz")
    _bus(record)
    record.set_defaults(run=_record)

    play = commands.add_parser("replay", help="publish a recording on a bus, in its own rhythm")
    play.add_argument("file", type=Path, help="what `tao-events record` wrote")
    play.add_argument("--nats", help=_NATS_HELP)
    play.add_argument("--speed", type=_not_negative, default=1.0, help="times as fast; 0: at once [default: 1]")
    play.add_argument(
        "--beside-live", action="store_true", help="publish where workers talk too [default: refuse to, they would mix]"
    )
    play.set_defaults(run=_replay)

    overlap = commands.add_parser("overlap", help="blocks of token sequences on each node, by a recording")
    overlap.add_argument("recording", type=Path, help="what `tao-events record` wrote")
    overlap.add_argument("--tokens", type=Path, required=True, help=_TOKENS_FORM)
    overlap.add_argument("--upto", type=int, help="use the first N messages only [default: all]")
    _json(overlap, "print JSON")
    overlap.set_defaults(run=_overlap)
    return parser


_NATS_HELP = "server, several with commas (env NATS_SERVER) [default: nats://localhost:4222]"
_TOKENS_FORM = '{"block_size": 16, "sessions": {"name": [ids…]}}'


def _bus(parser: argparse.ArgumentParser, seconds: str | None = None, text: str = "stop after this long") -> None:
    parser.add_argument("--nats", help=_NATS_HELP)
    parser.add_argument(
        "--seconds", type=_positive, default=seconds, help=f"{text} [default: {seconds or 'when interrupted'}]"
    )


def _json(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--json", action="store_true", help=f"{text} [default: text]")


def _sample(parser: argparse.ArgumentParser, rate: int, text: str) -> None:
    parser.add_argument("--sample", type=_not_negative, default=rate, help=f"{text}; 0: all [default: {rate}]")


def _around(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--discovery",
        type=Path,
        default=os.environ.get("DYN_FILE_KV") or None,
        help="folder of Dynamo's file discovery, for sizes and transports (env DYN_FILE_KV) [default: none]",
    )
    parser.add_argument(
        "--router",
        help="a TAO router's status, http://HOST:DYN_SYSTEM_PORT/engine/tao/status: its view of nodes [default: none]",
    )


def _positive(value: str) -> float:
    number = float(value)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"got {value}, want more than 0")
    return number


def _not_negative(value: str) -> float:
    number = float(value)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"got {value}, want 0 or more")
    return number


def _whole(value: str) -> int:
    number = int(value)
    if number < 1:
        raise argparse.ArgumentTypeError(f"got {value}, want 1 or more")
    return number


_SCHEMES = ("nats", "tls", "ws", "wss")


def _options(args: argparse.Namespace) -> BusOptions:
    options = BusOptions.from_env()
    if args.nats:
        options = replace(options, servers=tuple(args.nats.split(",")))
    for server in options.servers:
        scheme, given, _ = server.rpartition("://")
        if given and scheme not in _SCHEMES:
            where = "--nats" if args.nats else "NATS_SERVER"
            raise ConfigError(where, server, "an address such as nats://localhost:4222, or with tls://, ws://, wss://")
    return options


def _known(args: argparse.Namespace) -> live.Around:
    return live.Around(args.discovery, args.router, getattr(args, "block_size", None))


def _tail(args: argparse.Namespace) -> int:
    wanted = Filter(args.topic, args.worker, args.session, args.kind)
    return asyncio.run(
        live.tail(
            _options(args),
            wanted,
            as_json=args.json,
            sample=args.sample,
            seconds=args.seconds,
            out=sys.stdout,
            notes=sys.stderr,
        )
    )


def _top(args: argparse.Namespace) -> int:
    return asyncio.run(
        live.watch(
            _options(args), _known(args), once=args.once, as_json=args.json, sample=args.sample, seconds=args.seconds
        )
    )


def _check(args: argparse.Namespace) -> int:
    expected = None
    if args.tokens is not None:
        asked = _tokens(args.tokens)
        expected = {
            tokens_hash for ids in asked.sessions.values() for tokens_hash in block_hashes(ids, asked.block_size)
        }
        if not expected:
            raise UsageError(str(args.tokens), "no session with a whole block", _TOKENS_FORM)
    return asyncio.run(
        live.examine(
            _options(args),
            _known(args),
            seconds=args.seconds,
            sample=args.sample,
            expected=expected,
            need_tools=args.need_tools,
            as_json=args.json,
        )
    )


def _record(args: argparse.Namespace) -> int:
    count, dropped = asyncio.run(live.record(_options(args), args.file, seconds=args.seconds))
    print(f"{count} messages in {args.file}", file=sys.stderr)
    if dropped:
        print(f"tao-events: {dropped} messages came too fast and are missing", file=sys.stderr)
    return 0


def _replay(args: argparse.Namespace) -> int:
    async def run() -> int:
        return await replay(
            args.file, _options(args), speed=args.speed, beside=args.beside_live, stop=stop_on_signals()
        )

    print(f"{asyncio.run(run())} messages of {args.file} published", file=sys.stderr)
    return 0


def _overlap(args: argparse.Namespace) -> int:
    if args.upto is not None and args.upto < 0:
        raise UsageError("--upto", args.upto, "0 or more")
    asked = _tokens(args.tokens)
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


def _tokens(path: Path) -> _Tokens:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Tokens)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(str(path), str(error), _TOKENS_FORM) from error


if __name__ == "__main__":
    sys.exit(main())
