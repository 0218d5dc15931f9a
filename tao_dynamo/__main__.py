# SPDX-License-Identifier: Apache-2.0
"""``python -m tao_dynamo``: TAO's router, in place of ``python -m dynamo.router``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tao_dynamo.errors import ConfigError, TaoError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the router. A wrong flag, file or environment gives one line and exit status 2."""
    # Dynamo writes four lines per request at its default level, and reads the level when it is first imported.
    os.environ.setdefault("DYN_LOG", "info,dynamo_runtime::pipeline::network=warn")
    try:
        from tao_dynamo.shell.config import PROG, main_config

        config = main_config(argv)
    except ModuleNotFoundError as error:
        print(f"tao-router: needs the package {error.name}; pip install 'tao-dynamo[dynamo]'", file=sys.stderr)
        return 2
    import uvloop

    from tao_dynamo.shell import logs, service

    logs.set_up(config.log_format)
    try:
        return uvloop.run(service.run(config))
    except ConfigError as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return 2
    except TaoError as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
