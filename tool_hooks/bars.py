# SPDX-License-Identifier: Apache-2.0
"""Reads how far a command is from the progress bars it prints. Pure: bytes in, progress out."""

from __future__ import annotations

import re
from typing import NamedTuple

TAIL_BYTES = 2048
_RESET = 0.3
# Every bar that is known here has one of these.
_SIGNS = (b"%", b"/", b":")


class Progress(NamedTuple):
    """What a bar says: the share done in [0, 1] and the seconds left, each None when it does not say."""

    fraction: float | None
    remaining_s: float | None


HEARTBEAT = Progress(None, None)

_CLOCK = r"(?P<clock>(?:\d+:)?\d+:\d\d(?::\d\d)?)"
_SIZE = r"[kKMGT]?"
_BYTES = rf"[\d.]+{_SIZE}"
_CURL = (
    rf"^\s*(?P<percent>\d{{1,3}})\s+{_BYTES}\s+\d{{1,3}}\s+{_BYTES}\s+\d{{1,3}}\s+{_BYTES}\s+{_BYTES}\s+{_BYTES}"
    rf"\s+[\d:-]+\s+[\d:-]+\s+(?:{_CLOCK}|[\d:-]+)"
)
# Each pattern is tried on the last lines of what was printed, in this order; the first that fits counts.
_PATTERNS = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        # tqdm:  45%|####5     | 45/100 [00:10<00:12,  4.5it/s]
        rf"(?P<percent>\d{{1,3}})%\|[^|\n]*\|\s*(?P<n>[\d.]+){_SIZE}/(?P<of>[\d.]+){_SIZE}\s*\[[\d:]+<{_CLOCK}",
        r"(?P<percent>\d{1,3})%\|[^|\n]*\|",
        # pip, rich:  ━━━━━━ 12.3/45.6 MB 5.2 MB/s eta 0:00:07
        rf"[━╸╺\- ]\s(?P<n>[\d.]+)/(?P<of>[\d.]+) [kKMG]?i?B\b.{{0,40}}?eta {_CLOCK}",
        # curl's table: " 45  123M   45 55.9M    0     0  5123k      0  0:00:24  0:00:11  0:00:13 5678k"
        _CURL,
        # curl --progress-bar:  ######      45.3%
        r"^[#=O\- ]{5,}\s(?P<percent>\d{1,3}(?:\.\d)?)%\s*$",
        # wget's bar and its dots:  file  45%[====>   ] 12M 5.6MB/s eta 20s   /   50K ..... ..... 45% 1.2M 30s
        r"(?P<percent>\d{1,3})%\[[=>+ ]*\].{0,60}?(?:eta (?:(?P<min>\d+)m )?(?P<sec>\d+)s)?\s*$",
        rf"^\s*\d+K[ .]+\s(?P<percent>\d{{1,3}})%\s+[\d.]+{_SIZE}(?:[ =](?:(?P<min>\d+)m)?(?P<sec>\d+)s)?",
        # apt and dpkg:  Progress: [ 45%] ...   /   45% [Working]
        r"Progress: \[\s*(?P<percent>\d{1,3})%\]",
        r"^\s*(?P<percent>\d{1,3})% \[",
        # pytest, alone and under xdist; make and cmake; ninja
        r"^\[gw\d+\] \[\s*(?P<percent>\d{1,3})%\]",
        r"\[\s*(?P<percent>\d{1,3})%\]\s*$",
        r"^\[\s*(?P<percent>\d{1,3})%\] ",
        r"^\[(?P<n>\d+)/(?P<of>\d+)\] ",
        # git:  Receiving objects:  45% (123/273)
        r"^(?:remote: )?[A-Z][a-z]+ [a-z]+:\s+(?P<percent>\d{1,3})% \((?P<n>\d+)/(?P<of>\d+)\)",
    )
)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class BarReader:
    """Follows one stream. After a bar that starts anew, others may follow: from then on it gives heartbeats
    only.
    """

    def __init__(self) -> None:
        self._tail = b""
        self._last = 0.0
        self._several = False

    def feed(self, data: bytes) -> Progress | None:
        """Take what was just printed; what its newest bar says, or None where there is none."""
        self._tail = (self._tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]
        if not any(sign in self._tail for sign in _SIGNS):
            return None
        progress = parse(self._tail)
        if progress is None:
            return None
        self._tail = b""
        if progress.fraction is not None:
            self._several = self._several or progress.fraction < self._last - _RESET
            self._last = progress.fraction
        return HEARTBEAT if self._several else progress


def parse(data: bytes) -> Progress | None:
    """The newest bar in ``data``, read line by line from its end; None where there is none."""
    text = _ESCAPES.sub("", data.decode("utf-8", "replace"))
    for line in reversed(re.split(r"[\r\n]+", text)):
        if any(sign in line for sign in "%/:"):
            for pattern in _PATTERNS:
                match = pattern.search(line)
                if match is not None:
                    return _read(match)
    return None


def _read(match: re.Match[str]) -> Progress | None:
    found = {name: value for name, value in match.groupdict().items() if value is not None}
    if "n" in found and "of" in found:
        n, of = _float(found["n"]), _float(found["of"])
        # 1.2k/3.4M has two units: then the percentage is the surer one.
        fraction = n / of if of > 0.0 and n <= of and "percent" not in found else None
    else:
        fraction = None
    if fraction is None and "percent" in found:
        percent = float(found["percent"])
        fraction = percent / 100.0 if percent <= 100.0 else None
    remaining = None
    if "clock" in found:
        remaining = 0.0
        for part in found["clock"].split(":"):
            remaining = remaining * 60.0 + float(part)
    elif "sec" in found:
        remaining = 60.0 * float(found.get("min", 0)) + float(found["sec"])
    if remaining == 0.0 and fraction is not None and fraction < 1.0:
        remaining = None  # bars round down to whole seconds: the fraction says more
    return None if fraction is None and remaining is None else Progress(fraction, remaining)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
