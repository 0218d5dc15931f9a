# SPDX-License-Identifier: Apache-2.0
"""Folders for the logs of a run where the user names none: new ones are made, the oldest are swept away."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path

KEPT = 5
"""Folders of runs that have ended which are left for who wants to read their logs."""
_NAME = re.compile(r"tao-dynamo-(\d+)-[0-9a-f]{6}")


def new_run_folder() -> Path:
    """A name for a new one; the folder itself is made when the run starts."""
    return Path(tempfile.gettempdir()) / f"tao-dynamo-{os.getpid()}-{os.urandom(3).hex()}"


def sweep(beside: Path) -> None:
    """Remove what runs that have ended left beside this folder, but for the latest few; other users' is left alone."""
    if not _NAME.fullmatch(beside.name):
        return
    ended: list[tuple[float, Path]] = []
    for folder in beside.parent.glob("tao-dynamo-*"):
        name = _NAME.fullmatch(folder.name)
        with contextlib.suppress(OSError):
            about = folder.lstat()
            if name and folder.is_dir() and about.st_uid == os.getuid() and not _runs(int(name[1])):
                ended.append((about.st_mtime, folder))
    for _, folder in sorted(ended)[:-KEPT]:
        shutil.rmtree(folder, ignore_errors=True)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
