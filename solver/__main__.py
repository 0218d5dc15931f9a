# SPDX-License-Identifier: Apache-2.0
"""``python -m solver solve|explain``: a snapshot in, a plan or its reasons out."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from solver.explain import explain
from solver.front import METHODS, solve
from solver.json_io import plan_to_json, problem_from_json
from tao_dynamo.errors import ProblemError, SolverError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from solver.problem import Problem


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0, or 2 where the input is wrong and 1 where there is no plan, with one line why."""
    arguments = _parser().parse_args(argv)
    try:
        problem = _read(arguments.file)
        plan = solve(problem, method=arguments.method, budget_ms=arguments.budget_ms)
    except UsageError as error:
        sys.stderr.write(f"solver: error: {error}\n")
        return 2
    except SolverError as error:
        sys.stderr.write(f"solver: no plan: {error}\n")
        return 1
    lines = explain(problem, plan) if arguments.verb == "explain" else [plan_to_json(plan)]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _read(name: str) -> Problem:
    try:
        text = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise ProblemError("FILE", name, f"a file that can be read ({error.strerror})") from error
    return problem_from_json(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m solver", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="solve|explain")
    for verb, text in (
        ("solve", "read a problem, print the plan, both as JSON"),
        ("explain", "say in words why each candidate went where it did or stayed out"),
    ):
        command = verbs.add_parser(verb, help=text, description=text)
        command.add_argument(
            "file", nargs="?", default="-", metavar="FILE", help="the problem; - is standard input (default: -)"
        )
        command.add_argument("--method", choices=METHODS, default="auto", help="how to solve it (default: %(default)s)")
        command.add_argument(
            "--budget-ms",
            type=_milliseconds,
            default=1000.0,
            metavar="N",
            help="time for auto and exact, in milliseconds (default: %(default)g)",
        )
    return parser


def _milliseconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"got {text!r}, want 0 or more milliseconds")
    return number


if __name__ == "__main__":
    sys.exit(main())
