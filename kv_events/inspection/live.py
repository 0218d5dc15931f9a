# SPDX-License-Identifier: Apache-2.0
"""The commands that listen to the bus: ``tail``, ``top``, ``check`` and ``record``. Async; each runs until stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from kv_events import recording, wire
from kv_events.inspection import check, discovery, router_view, top
from kv_events.inspection.describe import Filter, describe, text
from kv_events.inspection.meters import RATE_OVER_S, Meters
from kv_events.inspection.printer import Printer
from kv_events.inspection.tap import Sampler, Tap, stop_on_signals, wait
from kv_events.inspection.toolboard import ToolBoard
from kv_events.reader import BusOptions
from kv_events.recording import Message
from kv_events.types import NodeId
from tao_dynamo.errors import TaoError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

_EVERY_S: Final = 1.0
_REREAD_S: Final = 5.0


@dataclass(frozen=True)
class Around:
    """Where to learn what the bus itself does not say; all of it optional."""

    discovery: Path | None = None
    router: str | None = None
    block_size: int | None = None


@dataclass
class Picture:
    """All that is made of the messages. Tool events are few and all looked at; the rest is sampled."""

    sampler: Sampler
    meters: Meters = field(default_factory=Meters)
    board: ToolBoard = field(default_factory=ToolBoard)
    marks: deque[tuple[float, int, int]] = field(default_factory=deque)

    def take(self, message: Message) -> None:
        """Take a message in."""
        if message.topic == wire.TOOL_EVENTS:
            self.board.take(message)
        else:
            self.meters.take(message, time.time(), look=self.sampler.admit(message.t))

    def mark(self, t: float) -> float:
        """Note where all counters stand, for the rates; return the share of messages decoded of late."""
        self.meters.mark(t)
        self.marks.append((t, self.sampler.seen, self.sampler.taken))
        while len(self.marks) > 2 and self.marks[1][0] <= t - RATE_OVER_S:
            self.marks.popleft()
        seen, taken = (self.marks[-1][at] - self.marks[0][at] for at in (1, 2))
        return taken / seen if taken else 1.0


async def tail(
    bus: BusOptions, wanted: Filter, *, as_json: bool, sample: float, seconds: float | None, out: TextIO, notes: TextIO
) -> int:
    """Print events as they come. What is left out, because there is more than ``sample`` a second, is said on notes."""
    stop = stop_on_signals()
    loop = asyncio.get_running_loop()
    printer = Printer(out, partial(loop.call_soon_threadsafe, stop.set))
    sampler = Sampler(sample)

    def show(message: Message) -> None:
        if wanted.may_match(message) and sampler.admit(message.t):
            for record in describe(message):
                if wanted.matches(record):
                    printer.say(json.dumps(record) if as_json else text(record))

    try:
        async with Tap(bus, show) as tap:
            until = float("inf") if seconds is None else time.monotonic() + seconds
            told = Told(notes)
            while not await wait(stop, min(_EVERY_S, until - time.monotonic())):
                told.tell(sampler, tap, printer)
                if time.monotonic() >= until:
                    break
            told.tell(sampler, tap, printer)
    finally:
        printer.close()
    return 0


class Told:
    """Says, once a second, what was left out since it last spoke."""

    def __init__(self, notes: TextIO) -> None:
        self._notes = notes
        self._seen = self._taken = self._lost = self._outages = 0

    def tell(self, sampler: Sampler, tap: Tap, printer: Printer) -> None:
        """Speak if there is anything to say."""
        seen, taken = sampler.seen - self._seen, sampler.taken - self._taken
        lost = tap.dropped + printer.dropped - self._lost
        said = []
        if taken < seen:
            said.append(f"showing {taken:,} of {seen:,} messages; --sample 0 shows all")
        if lost:
            said.append(f"{lost:,} more were dropped: too slow")
        if tap.outages > self._outages:
            said.append("the bus went away; trying to come back")
        if said:
            print(f"tao-events: {'; '.join(said)}", file=self._notes, flush=True)
        self._seen, self._taken, self._lost = sampler.seen, sampler.taken, self._lost + lost
        self._outages = tap.outages


async def record(bus: BusOptions, path: Path, *, seconds: float | None) -> tuple[int, int]:
    """Write the bus to a file; return how many messages, and how many signals came that some were dropped."""
    stop = stop_on_signals()
    count = 0
    try:
        out = recording.open_text(path, "wt")
    except OSError as error:
        raise UsageError(str(path), str(error), "a file that can be written") from error
    with out:

        def keep(message: Message) -> None:
            nonlocal count
            count += 1
            recording.write(out, message)

        async with Tap(bus, keep) as tap:
            await wait(stop, seconds)
    return count, tap.dropped


async def watch(bus: BusOptions, around: Around, *, once: bool, as_json: bool, sample: float, seconds: float) -> int:
    """Show the tables: once after so many seconds, or again and again until stopped.

    Raises:
        UsageError: a terminal's tables are wanted and the package rich is not there.
    """
    console = None if as_json else _console()
    picture = Picture(Sampler(sample))
    meters = picture.meters
    stop = stop_on_signals()
    known = Known(around)
    async with Tap(bus, picture.take) as tap:

        async def shown() -> dict[str, Any]:
            await known.refresh()
            await tap.settle()
            t = time.monotonic() - tap.begun
            share = picture.mark(t)
            whole = picture.sampler.taken == picture.sampler.seen
            bus_state = top.Bus(tap.connected, tap.outages, tap.dropped, share, whole)
            return top.snapshot(t, bus_state, meters, picture.board, known.cards, around.block_size, known.words)

        title = f"tao-events top  {', '.join(bus.servers)}"
        picture.mark(0.0)
        if once or console is None or not console.is_terminal:
            stopped = False
            while not stopped:
                stopped = await wait(stop, seconds) or once or console is not None
                now = await shown()
                if console is None:
                    print(json.dumps(now), flush=True)
                else:
                    console.print(top.render(now, title))
            return 0
        from rich.live import Live

        with Live(console=console, screen=True, auto_refresh=False) as live:
            while not await wait(stop, _EVERY_S):
                rows = max(3, console.size.height - 12 - len(meters.nodes))
                live.update(top.render(await shown(), title, sessions=rows), refresh=True)
    return 0


async def examine(
    bus: BusOptions,
    around: Around,
    *,
    seconds: float,
    sample: float,
    expected: AbstractSet[int] | None,
    need_tools: bool,
    as_json: bool,
) -> int:
    """Listen for some seconds and print one line per finding; return the exit code that ``check`` gives."""
    picture = Picture(Sampler(sample), Meters(expected))
    known = Known(around, strict=True)
    await known.refresh()
    stop = stop_on_signals()
    async with Tap(bus, picture.take) as tap:
        await wait(stop, seconds)
        listened = time.monotonic() - tap.begun
        await known.refresh(force=True)
    heard = check.Heard(
        round(listened, 1),
        picture.meters,
        picture.board,
        dropped=tap.dropped,
        outages=tap.outages,
        discovery=known.found,
        router=known.words if around.router else None,
        expected=len(expected) if expected is not None else None,
        need_tools=need_tools,
    )
    findings = check.judge(heard)
    code = check.exit_code(findings)
    if as_json:
        print(json.dumps({"exit": code, "findings": [asdict(finding) for finding in findings]}))
        return code
    for finding in findings:
        advice = f" -> {finding.advice}" if finding.advice else ""
        print(f"{finding.level:<5} {finding.about:<12} {finding.text}{advice}")
    left_out = picture.meters.left_out
    if left_out:
        print(f"note  sampled      {left_out:,} messages were counted and not decoded: --sample 0 decodes all")
    return code


class Known:
    """What discovery and the router say, read again now and then. ``strict``: what is wrong with them is an error."""

    def __init__(self, around: Around, *, strict: bool = False) -> None:
        self.found: discovery.Discovery | None = None
        self.words: Mapping[NodeId, str] = {}
        self._around = around
        self._strict = strict
        self._read = float("-inf")

    @property
    def cards(self) -> Mapping[NodeId, discovery.Card]:
        """The nodes that discovery knows."""
        return self.found.cards if self.found is not None else {}

    async def refresh(self, *, force: bool = False) -> None:
        """Read both again, at most every few seconds."""
        now = time.monotonic()
        if now - self._read < _REREAD_S and not force:
            return
        first, self._read = self._read < 0, now
        with contextlib.suppress(*(() if self._strict or first else (TaoError,))):
            if self._around.discovery is not None:
                self.found = await asyncio.to_thread(discovery.read, self._around.discovery)
            if self._around.router is not None:
                self.words = await asyncio.to_thread(router_view.fetch, self._around.router)


def _console() -> Console:
    try:
        from rich.console import Console
    except ImportError as error:
        raise UsageError("top", "no package rich", "pip install 'tao-dynamo[top]', or --json") from error
    console = Console()
    # What is no terminal has no width: nothing is to be cut there.
    return console if console.is_terminal else Console(width=200)
