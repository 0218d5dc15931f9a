# SPDX-License-Identifier: Apache-2.0
"""Compiled loops: numba with a cache on disk that also works where the install is read-only."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import numba
from numba.core import config

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """``numba.njit`` with a cache; later processes load the machine code in milliseconds.

    Numba keeps it beside the source, else in the user's cache folder, else in ``NUMBA_CACHE_DIR``. Where
    none of them can be written, a private folder under the temporary one is used; where that is not ours
    alone, there is no cache, since numba unpickles what it finds there.
    """
    try:
        return cast("Function", numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:
        folder = private_folder(Path(tempfile.gettempdir()))
        if folder is None:
            return cast("Function", numba.njit(nogil=True)(function))
        config.CACHE_DIR = str(folder)
        return cast("Function", numba.njit(cache=True, nogil=True)(function))


def private_folder(parent: Path) -> Path | None:
    """A folder below ``parent`` that only this user can write, made where it is not there yet."""
    folder = parent / f"tao-dynamo-numba-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return folder if ours else None
