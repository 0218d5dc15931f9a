# SPDX-License-Identifier: Apache-2.0
"""How fast output flows through ``tao-tool run``: a gigabyte, bare and under it, in turns.

    python -m benchmarks.tool_output [--rounds 5]

Read as a harness reads, 64 KiB at a time, from the first byte to the last.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import IO, cast

GIGABYTE = 1 << 30
SOURCES = {
    "text": ["sh", "-c", f"yes 0123456789abcdef | head -c {GIGABYTE}"],
    "zeros": ["head", "-c", str(GIGABYTE), "/dev/zero"],
}
SHIM = [sys.executable, "-m", "tool_hooks.cli", "run", "--session", "tool-output", "--"]


def flow_gb_s(command: Sequence[str]) -> float:
    """Gigabytes per second from the first byte to the last."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as source:
        output = cast("IO[bytes]", source.stdout)
        count = len(output.read(1))
        begun = time.perf_counter()
        while data := output.read(1 << 16):
            count += len(data)
        seconds = time.perf_counter() - begun
    if count != GIGABYTE:
        raise RuntimeError(f"{count} bytes came of {GIGABYTE}")
    return count / seconds / 1e9


def main(argv: Sequence[str] | None = None) -> int:
    """Print a JSON line: the best speeds of each source, in GB/s, and their ratio."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tool_output", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds, of which the best counts (default: 5)")
    args = parser.parse_args(argv)
    report = {}
    for name, command in SOURCES.items():
        pairs = [(flow_gb_s(command), flow_gb_s([*SHIM, *command])) for _ in range(args.rounds)]
        bare, ours = max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
        report[name] = {"bare": round(bare, 2), "tao_tool": round(ours, 2), "ratio": round(ours / bare, 2)}
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
