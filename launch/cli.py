# SPDX-License-Identifier: Apache-2.0
"""The ``dynamo`` command: ``dynamo serve GRAPH``.

Dynamo itself has had no such command since 0.4. Should another ``dynamo`` be on the PATH, every other verb is handed to
it unchanged.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tao_dynamo import __version__

_HANDED_ON = "TAO_DYNAMO_HANDED_ON"
_OURS = b"launch.cli"

_HELP = """\
usage: dynamo serve GRAPH [options]
       dynamo manifests [options]

verbs:
  serve      start a graph on this machine and keep it running (dynamo serve --help)
  manifests  print Kubernetes objects of a graph with TAO in it (dynamo manifests --help)

options:
  --help     this text
  --version  TAO-Dynamo's version

Any other verb goes to the next `dynamo` on the PATH, if there is one.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    verb = words[0] if words else "--help"
    if verb in ("serve", "manifests"):
        try:
            return _ours(verb)(words[1:])
        except ModuleNotFoundError as error:
            sys.stderr.write(f"dynamo {verb}: needs the package {error.name}; pip install 'tao-dynamo[dynamo]'\n")
            return 2
    if verb in ("--help", "-h"):
        sys.stdout.write(_HELP)
        return 0
    if verb in ("--version", "-V"):
        sys.stdout.write(f"tao-dynamo {__version__}\n")
        return 0
    other = other_dynamo(Path(sys.argv[0]), os.environ)
    if other is not None:
        os.environ[_HANDED_ON] = "1"
        sys.stdout.flush()
        os.execv(other, [str(other), *words])  # noqa: S606
    sys.stderr.write(
        f"dynamo: error: no verb {verb!r}; TAO-Dynamo has `serve` and `manifests`, "
        "and there is no other `dynamo` on the PATH\n"
    )
    return 2


def _ours(verb: str) -> Callable[[Sequence[str]], int]:
    if verb == "serve":
        from launch import serve

        return serve.main
    from launch.kubernetes import manifests

    return manifests.main


def other_dynamo(ours: Path, environment: Mapping[str, str]) -> Path | None:
    """The next ``dynamo`` on the PATH that is not TAO-Dynamo's, in this or another environment."""
    if environment.get(_HANDED_ON):
        return None
    for folder in environment.get("PATH", "").split(os.pathsep):
        candidate = Path(folder or ".") / "dynamo"
        try:
            if not os.access(candidate, os.X_OK) or not candidate.is_file() or candidate.resolve() == ours.resolve():
                continue
            with candidate.open("rb") as script:
                if _OURS in script.read(2048):
                    continue
        except OSError:
            continue
        return candidate
    return None


if __name__ == "__main__":
    sys.exit(main())
