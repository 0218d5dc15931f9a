# SPDX-License-Identifier: Apache-2.0
"""``tao-events``, where its packages are installed; else a line that says which is missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    try:
        from kv_events.cli import main as command
    except ModuleNotFoundError as error:
        sys.stderr.write(f"tao-events: needs the package {error.name}; pip install 'tao-dynamo[router]'\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return command(argv)


if __name__ == "__main__":
    sys.exit(main())
