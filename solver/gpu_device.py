# SPDX-License-Identifier: Apache-2.0
"""The GPU through CuPy: the only module that imports it, and only when asked for a device."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from solver.gpu_batch import BLOCK
from tao_dynamo.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

KERNELS = Path(__file__).resolve().parent / "kernels"
SOURCE = KERNELS / "dense_dp.cu"
NAMES = ("start_spaces", "advance_layer", "select_final", "trace_back")
MEMORY_SHARE = 0.5
"""Part of the free memory that one batch may take: the engine on the same GPU has use for it, too."""


def compile_options(words: int) -> tuple[str, ...]:
    """Options that the kernels are compiled with, for NVRTC and for CuPy."""
    return (f"-DWORDS={words}", f"-I{KERNELS}", "--std=c++17")


@contextlib.contextmanager
def device_errors(doing: str) -> Iterator[None]:
    """Turn whatever the driver, its runtime or its compiler raise into :class:`DeviceError`."""
    try:
        yield
    except DeviceError:
        raise
    # CuPy's errors have no common root (RuntimeError, MemoryError, ImportError, OSError and plain
    # Exception), and none of them may get past the fallback to the CPU.
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        raise DeviceError(f"{doing}: {type(error).__name__}: {text}") from error


class CupyDevice:
    """The current CUDA device. Raises :class:`DeviceError` when there is none, or no CuPy."""

    def __init__(self) -> None:
        with device_errors("look for a GPU"):
            import cupy

            self._cupy = cupy
            if cupy.cuda.runtime.getDeviceCount() < 1:
                raise DeviceError("no CUDA device")
            properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
            self.name = properties["name"].decode(errors="replace")
        with device_errors("compile the kernels"):
            self._kernels = {
                (name, words): module.get_function(name)
                for words, module in ((words, self._module(words)) for words in (1, 2))
                for name in NAMES
            }

    def _module(self, words: int) -> Any:
        return self._cupy.RawModule(
            code=SOURCE.read_text(encoding="utf-8"), options=compile_options(words), backend="nvrtc"
        )

    def free_bytes(self) -> int:
        """Memory that a batch may take: half of what is free, CuPy's own pool counted as free."""
        with device_errors("ask for free memory"):
            free, _ = self._cupy.cuda.runtime.memGetInfo()
            return int(MEMORY_SHARE * (free + self._cupy.get_default_memory_pool().free_bytes()))

    def upload(self, array: npt.NDArray[Any]) -> Any:
        """Copy an array to the device."""
        with device_errors("copy to the GPU"):
            return self._cupy.asarray(array)

    def empty(self, count: int, dtype: type[np.generic]) -> Any:
        """Make room on the device."""
        with device_errors("take GPU memory"):
            return self._cupy.empty(count, dtype=dtype)

    def launch(self, kernel: str, words: int, threads: int, arguments: Sequence[Any]) -> None:
        """Queue one kernel on the current stream."""
        with device_errors(f"launch {kernel}"):
            given = tuple(np.int64(each) if isinstance(each, int) else each for each in arguments)
            self._kernels[kernel, words]((-(-threads // BLOCK),), (BLOCK,), given)

    def download(self, buffer: Any) -> npt.NDArray[Any]:
        """Wait for the stream and copy a buffer back; a fault of an earlier launch shows here."""
        with device_errors("copy from the GPU"):
            copied: npt.NDArray[Any] = self._cupy.asnumpy(buffer)
            return copied
