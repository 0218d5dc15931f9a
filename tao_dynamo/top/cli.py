# SPDX-License-Identifier: Apache-2.0
"""``tao top``: who runs, who waits, since when and why."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tao_dynamo import __version__
from tao_dynamo.errors import ConfigError, TaoError, UsageError
from tao_dynamo.top import words

if TYPE_CHECKING:
    from rich.console import Console

DEFAULT_PORT = 8260
_PIPE_WIDTH = 160


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code: 2 for bad input, 1 where no router answers."""
    args = parser().parse_args(argv)
    try:
        return _top(args, os.environ)
    except UsageError as error:
        print(f"tao top: {error}", file=sys.stderr)
        return 2
    except TaoError as error:
        print(f"tao top: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        print(f"tao top: needs the package {error.name}; pip install 'tao-dynamo[top]'", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()
        return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="tao", description="Look at a running TAO router.")
    made.add_argument("--version", action="version", version=f"tao-dynamo {__version__}")
    verbs = made.add_subparsers(required=True, metavar="top")
    top = verbs.add_parser(
        "top",
        help="nodes, sessions, the waiting pool with its reasons, plans",
        description="Nodes, sessions, the waiting pool with its reasons, and the last plans of a running TAO router.",
        allow_abbrev=False,
    )
    top.add_argument(
        "--url",
        help="the router's page, or its system port (env DYN_TAO_PAGE_URL) "
        f"[default: http://127.0.0.1:{DEFAULT_PORT}/, or the port in DYN_TAO_PAGE_PORT]",
    )
    top.add_argument(
        "--once", action="store_true", help="print it once and end [default: only where there is no terminal]"
    )
    top.add_argument(
        "--json", action="store_true", help="print the snapshot as one line of JSON and end [default: off]"
    )
    top.add_argument("--every", default="1", metavar="S", help="seconds between two looks [default: 1]")
    top.add_argument(
        "--state",
        default="",
        metavar="STATES",
        help=f"only sessions in these: {', '.join(words.STATES)} [default: all]",
    )
    top.add_argument(
        "--sort", metavar="COLUMN", help="state, session, for, tokens, … [default: the waiting pool first]"
    )
    top.add_argument("--limit", default="40", metavar="N", help="sessions that --once prints [default: 40]")
    return made


def _top(args: argparse.Namespace, env: Mapping[str, str]) -> int:
    from tao_dynamo.top.client import Client

    every = _number("--every", args.every, 0.2, 3600.0)
    limit = int(_number("--limit", args.limit, 0, 1_000_000))
    states = frozenset(args.state.replace(",", " ").split())
    for state in states:
        if state not in words.STATES:
            raise ConfigError("--state", state, f"one of {', '.join(words.STATES)}")
    client = Client(_url(args.url, env))
    if args.json:
        sys.stdout.buffer.write(client.body() + b"\n")
        sys.stdout.flush()
        return 0
    from tao_dynamo.top import columns, drawing, printed

    if args.sort is not None and args.sort not in columns.KEYS:
        raise ConfigError("--sort", args.sort, f"one of {', '.join(columns.KEYS)}")
    if args.once or not sys.stdout.isatty():
        shot = client.snapshot()
        down = columns.COLUMNS[columns.KEYS.index(args.sort)].down if args.sort else False
        rows = columns.arrange(
            shot.sessions, states=states, query="", names=drawing.names(shot), sort=args.sort, down=down
        )
        printed.show(_console(), shot, rows, limit=limit, sort=args.sort)
        return 0
    from tao_dynamo.top.app import Top

    client.snapshot()  # so that a wrong address is told in one line, and not on a screen of its own
    Top(client, every_s=every, states=states, sort=args.sort).run()
    return 0


def _console() -> Console:
    """Where nobody says how wide a line may be, wide enough for all columns."""
    from rich.console import Console

    told = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console() if told else Console(width=_PIPE_WIDTH)


def _url(given: str | None, env: Mapping[str, str]) -> str:
    if given is not None:
        return given
    if url := env.get("DYN_TAO_PAGE_URL"):
        return url
    port = env.get("DYN_TAO_PAGE_PORT", str(DEFAULT_PORT))
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ConfigError("DYN_TAO_PAGE_PORT", port, "a port, or give --url")
    return f"http://127.0.0.1:{port}/"


def _number(where: str, text: str, low: float, high: float) -> float:
    want = f"a number from {low:g} to {high:g}"
    try:
        value = float(text)
    except ValueError:
        raise ConfigError(where, text, want) from None
    if not low <= value <= high:
        raise ConfigError(where, text, want)
    return value


if __name__ == "__main__":
    sys.exit(main())
