# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share, and number types that refuse nonsense by name."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.traces import EXTRACT, load
from benchmarks.workload import Workload, choose
from tao_dynamo.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable


class Help(argparse.ArgumentDefaultsHelpFormatter):
    """Every option's help ends in its default."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.nargs == 0 or "(default" in (action.help or ""):
            return action.help
        return super()._get_help_string(action)


def whole(low: int) -> Callable[[str], int]:
    """An integer of at least ``low``."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low:
            raise argparse.ArgumentTypeError(f"got {text!r}, want an integer of at least {low}")
        return value

    return parse


def number(low: float, *, above: bool = False) -> Callable[[str], float]:
    """A finite number of at least ``low``, or above it."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < low or (above and value == low):
            word = "above" if above else "of at least"
            raise argparse.ArgumentTypeError(f"got {text!r}, want a number {word} {low:g}")
        return value

    return parse


def add_workload(parser: argparse.ArgumentParser, *, traces: str, sessions: int, concurrency: int) -> None:
    """The options that say which sessions run, and how many at once; ``traces`` is the source's flag."""
    group = parser.add_argument_group("sessions")
    group.add_argument(traces, dest="source", type=Path, default=EXTRACT, help="file or folder of recorded sessions")
    group.add_argument("--sessions", type=whole(1), default=sessions, help="how many sessions to run")
    group.add_argument("--concurrency", type=whole(1), default=concurrency, help="how many at once, at most")
    group.add_argument("--seed", type=int, default=0, help="chooses the sessions and their order")
    group.add_argument(
        "--max-turns",
        type=whole(1),
        default=None,
        help="cut every session after so many turns (default: none)",
    )
    group.add_argument(
        "--max-prompt-tokens",
        type=whole(16),
        default=None,
        help="shrink prompts and answers by one factor: the longest prompt gets this size (default: none)",
    )
    group.add_argument(
        "--max-pause",
        type=number(0),
        default=600.0,
        help="cut tool and think times to this many recorded seconds",
    )


def workload(args: argparse.Namespace) -> Workload:
    """The sessions that the options of :func:`add_workload` ask for."""
    return choose(
        load(args.source),
        count=args.sessions,
        seed=args.seed,
        max_turns=args.max_turns,
        max_prompt_tokens=args.max_prompt_tokens,
        max_pause_s=args.max_pause,
    )


def add_arrivals(parser: argparse.ArgumentParser) -> None:
    """The options of what does not follow from the sessions' own pace."""
    group = parser.add_argument_group("arrivals")
    group.add_argument(
        "--arrivals",
        type=Path,
        default=None,
        help="file of single requests that come beside the sessions (default: for mixed-chat Mooncake's, else none)",
    )
    group.add_argument(
        "--rate",
        type=number(0, above=True),
        default=None,
        help="single requests a second, the recorded gaps stretched evenly (default: as recorded)",
    )
    group.add_argument(
        "--session-rate",
        type=number(0, above=True),
        default=None,
        help="open loop: sessions begin at this rate a second, in the rhythm of --arrivals or else of Mooncake's file, "
        "and --concurrency bounds nothing (default: closed loop)",
    )


def int_range(text: str) -> tuple[int, int]:
    """``LOW:HIGH``, whole numbers, LOW below HIGH."""
    low, _, high = text.partition(":")
    if not (low.isdigit() and high.isdigit() and int(low) < int(high)):
        raise argparse.ArgumentTypeError(f"got {text!r}, want LOW:HIGH with LOW below HIGH")
    return int(low), int(high)


def writable(path: Path | None, flag: str) -> None:
    """Refuse an output file that cannot be written, before the work is done.

    Raises:
        ConfigError: its folder does not exist, or it is a folder itself.
    """
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise ConfigError(flag, str(path), "a file in a folder that exists")
