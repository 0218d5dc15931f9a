# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tool_hooks.bars import HEARTBEAT, BarReader, Progress, parse


@pytest.mark.parametrize(
    ("printed", "fraction", "remaining_s"),
    [
        ("\r 45%|████▌     | 45/100 [00:10<00:12,  4.50it/s]", 0.45, 12.0),
        ("train: 3%|▎  | 31/1000 [00:01<1:02:03, 20it/s]\x1b[A\r", 0.03, 3723.0),
        ("\r 10%|█         | 2/20 [00:00<00:00, 18.6it/s]", 0.1, None),
        ("\r100%|██████████| 20/20 [00:01<00:00, 18.6it/s]\n", 1.0, 0.0),
        ("\r  0%|          | 0/20 [00:00<?, ?it/s]", 0.0, None),
        ("\r   \x1b[90m━\x1b[0m╸ \x1b[32m12.0/48.0 MB\x1b[0m 5 MB/s eta \x1b[36m0:00:07\x1b[0m", 0.25, 7.0),
        ("   ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 256.0/1024.0 kB 1.1 MB/s eta 0:00:01", 0.25, 1.0),
        ("Progress: [ 37%] [######..........]", 0.37, None),
        ("\r12% [Working]", 0.12, None),
        ("\r45% [3 libfoo 12.3 kB/45 kB 27%]", 0.45, None),
        ("tests/test_a.py ..........      [ 66%]\n", 0.66, None),
        ("tests/test_a.py::test_b PASSED  [ 12%]\n", 0.12, None),
        ("[gw1] [ 81%] PASSED tests/test_a.py::test_c \n", 0.81, None),
        ("[ 25%] Building CXX object a.o\n", 0.25, None),
        ("[30/120] Linking a.so\n", 0.25, None),
        ("\nfile.iso     45%[====>       ] 123.40M  5.60MB/s    eta 20s    ", 0.45, 20.0),
        ("\nfile.iso     45%[====>       ] 123.40M  5.60MB/s    eta 2m 5s  ", 0.45, 125.0),
        ("     50K .......... .......... .......... .......... ..........  9% 1.20M 30s\n", 0.09, 30.0),
        ("  1950K .......... .......... .......... .......... .......... 97% 5.1M=1m3s\n", 0.97, 63.0),
        ("\r 45  123M   45 55.9M    0     0  5123k      0  0:00:24  0:00:11  0:00:13 5678k", 0.45, 13.0),
        ("\r#################                        45.3%", 0.453, None),
        ("Receiving objects:  41% (123/300), 1.2 MiB | 2 MiB/s\r", 0.41, None),
    ],
)  # fmt: skip
def test_reads_the_usual_bars(printed: str, fraction: float, remaining_s: float | None) -> None:
    assert parse(printed.encode()) == Progress(pytest.approx(fraction), remaining_s)


@pytest.mark.parametrize(
    "printed",
    [
        "coverage: 87% of lines\n",
        "TOTAL   1234   56   95%\n",
        "disk is 45% full [warning]\n",
        "see https://example.org/a/b?c=%20\n",
        "ratio 3/4 of all\n",
        "[INFO] 100% sure\n",
        "\r 450%|████▌     |",
        "",
        "\xff\xfe%/\x00",
    ],
)
def test_passes_over_what_is_no_bar(printed: str) -> None:
    assert parse(printed.encode("latin-1", "replace")) is None


def test_the_newest_line_counts() -> None:
    assert parse(b"a [ 10%]\nb [ 20%]\nnothing\n") == Progress(0.2, None)


def test_a_bar_cut_in_two_is_read_when_it_is_whole() -> None:
    reader = BarReader()
    assert reader.feed(" 45%|████".encode()) is None
    assert reader.feed("▌     | 45/100 [00:10<00:12,  4.50it/s]".encode()) == Progress(0.45, 12.0)


def test_after_a_second_bar_only_heartbeats_come() -> None:
    reader = BarReader()
    assert reader.feed(b"[ 90%]\n") == Progress(0.9, None)
    assert reader.feed(b"[ 10%]\n") is HEARTBEAT
    assert reader.feed(b"[ 95%]\n") is HEARTBEAT


def test_memory_is_bounded() -> None:
    reader = BarReader()
    for _ in range(100):
        reader.feed(b"%/" * 50_000)
    assert len(reader._tail) <= 2048


@given(st.lists(st.binary(max_size=100), max_size=20))
def test_any_bytes_are_harmless(chunks: list[bytes]) -> None:
    reader = BarReader()
    for chunk in chunks:
        progress = reader.feed(chunk)
        assert progress is None or progress.fraction is None or 0.0 <= progress.fraction <= 1.0
