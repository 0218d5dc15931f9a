# SPDX-License-Identifier: Apache-2.0
"""How far a run is: a bar on a terminal, else a line every few seconds. Standard error only."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.metrics import Figures, rows

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

_LINE_EVERY_S = 5.0


class Meter:
    """Counts steps towards a known total. Use as a context manager."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._said = time.monotonic()
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
            )
            self._bar = Progress(*columns, TextColumn("{task.fields[note]}"), console=Console(stderr=True))
            self._task = self._bar.add_task(what, total=total, note="")

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def step(self, note: str) -> None:
        """One more is done; ``note`` says what goes on."""
        self._done += 1
        if self._bar:
            self._bar.update(self._task, completed=self._done, note=note)
        elif time.monotonic() - self._said >= _LINE_EVERY_S:
            self._said = time.monotonic()
            print(f"{self._what}: {self._done}/{self._total}, {note}", file=sys.stderr, flush=True)


def print_table(title: str, result: Figures) -> None:
    """Write a result's figures to standard output."""
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for label, text in rows(result):
        table.add_row(label, text)
    # A file or pipe gets a fixed width: rich would squeeze the table into 80 columns.
    Console(width=None if sys.stdout.isatty() else 120).print(table)
