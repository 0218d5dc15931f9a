# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's run-time compiler by its C API: CUDA to machine code, with no driver and no GPU."""

from __future__ import annotations

import ctypes
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Nvrtc:
    """The library of the pip package ``nvidia-cuda-nvrtc-cu12``."""

    def __init__(self) -> None:
        files = metadata.files("nvidia-cuda-nvrtc-cu12") or []
        found = [file for file in files if file.name.startswith(("libnvrtc.so", "nvrtc64"))]
        assert found, "nvidia-cuda-nvrtc-cu12 holds no NVRTC for this platform"
        self._library = ctypes.CDLL(str(found[0].locate()))

    def _call(self, name: str, *arguments: object) -> int:
        return int(getattr(self._library, name)(*arguments))

    def compile(self, source: str, name: str, options: Sequence[str]) -> bytes:
        """Compile to a cubin; fails the test with the compiler's log."""
        program = ctypes.c_void_p()
        made = self._call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
        assert made == 0
        try:
            given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            result = self._call("nvrtcCompileProgram", program, len(options), given)
            log = self._bytes(program, "nvrtcGetProgramLog").decode(errors="replace").rstrip("\0\n")
            assert result == 0, log
            assert not log, log
            return self._bytes(program, "nvrtcGetCUBIN")
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _bytes(self, program: ctypes.c_void_p, getter: str) -> bytes:
        size = ctypes.c_size_t()
        assert self._call(f"{getter}Size", program, ctypes.byref(size)) == 0
        text = ctypes.create_string_buffer(size.value)
        assert self._call(getter, program, text) == 0
        return text.raw
