# SPDX-License-Identifier: Apache-2.0
"""The CUDA sources compiled as host code: a device whose threads are a loop."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from solver.gpu_batch import BLOCK
from solver.gpu_device import NAMES, SOURCE, compile_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

_PRELUDE = """
#include <utility>
#define __global__
#define __device__
#define __forceinline__ inline
struct Index { unsigned int x; };
static Index blockIdx, blockDim, threadIdx;
#include SOURCE
template <class... A, std::size_t... I>
static void call(void (*kernel)(A...), void** given, std::index_sequence<I...>) {
    kernel(*static_cast<A*>(given[I])...);
}
template <class... A>
static void launch(void (*kernel)(A...), unsigned blocks, unsigned threads, void** given, bool backwards) {
    blockDim.x = threads;
    for (u64 k = 0; k < (u64)blocks * threads; ++k) {
        const u64 at = backwards ? (u64)blocks * threads - 1 - k : k;
        blockIdx.x = (unsigned)(at / threads);
        threadIdx.x = (unsigned)(at % threads);
        call(kernel, given, std::index_sequence_for<A...>());
    }
}
"""
_ENTRY = """
extern "C" void host_{name}(unsigned blocks, unsigned threads, void** given, int backwards) {{
    launch({name}, blocks, threads, given, backwards != 0);
}}
"""
# Undefined behaviour, such as an overflow of a packed value, ends the process instead of passing.
_FLAGS = (
    *("-x", "c++", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"),
    *("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"),
)


def build(folder: Path) -> dict[int, ctypes.CDLL]:
    """Compile the kernels for the host, once per word count."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
    assert compiler, "the kernels are checked as host code: install a C++ compiler, or name it in CXX"
    source = folder / "kernels.cpp"
    source.write_text(
        _PRELUDE.replace("SOURCE", f'"{SOURCE}"') + "".join(_ENTRY.format(name=name) for name in NAMES),
        encoding="utf-8",
    )
    libraries = {}
    for words in (1, 2):
        target = folder / f"kernels{words}.so"
        options = [option.replace("--std", "-std") for option in compile_options(words)]
        subprocess.run([compiler, *_FLAGS, *options, str(source), "-o", str(target)], check=True, timeout=120)
        libraries[words] = ctypes.CDLL(str(target))
    return libraries


class HostDevice:
    """A :class:`solver.gpu_run.Device` on those libraries.

    ``backwards`` runs the threads from last to first: an order on which a result depends would show.
    """

    name = "host code"

    def __init__(self, libraries: dict[int, ctypes.CDLL], *, backwards: bool = False) -> None:
        self._libraries = libraries
        self._backwards = backwards
        self.launches: Counter[str] = Counter()
        self.downloads = 0
        self.free = 1 << 28

    def free_bytes(self) -> int:
        return self.free

    def upload(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return array.copy()

    def empty(self, count: int, dtype: type[np.generic]) -> npt.NDArray[Any]:
        # Rubbish, as fresh device memory holds.
        return np.full(count, 0x5A, dtype=dtype)

    def launch(self, kernel: str, words: int, threads: int, arguments: Sequence[Any]) -> None:
        self.launches[kernel] += 1
        cells = [
            ctypes.c_longlong(each) if isinstance(each, int) else ctypes.c_void_p(each.ctypes.data)
            for each in arguments
        ]
        given = (ctypes.c_void_p * len(cells))(*(ctypes.addressof(cell) for cell in cells))
        entry = getattr(self._libraries[words], f"host_{kernel}")
        entry(ctypes.c_uint(-(-threads // BLOCK)), ctypes.c_uint(BLOCK), given, ctypes.c_int(self._backwards))

    def download(self, buffer: npt.NDArray[Any]) -> npt.NDArray[Any]:
        self.downloads += 1
        return buffer.copy()
