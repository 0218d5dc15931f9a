# SPDX-License-Identifier: Apache-2.0
"""One batch through the kernels: the launches and their order, for any device that can launch them.

Everything goes up once, the layers follow each other on the device, and only one byte per layer and two
words per space come back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from solver.gpu_batch import BLOCK, make_batch
from tao_dynamo.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from solver.columns import Ints
    from solver.dp_layer import DenseInstance

Buffer = Any
"""Memory on the device, as the device likes to name it."""


class Device(Protocol):
    """What runs the kernels: a GPU, or in the tests the same source compiled for the host.

    Every method may raise :class:`DeviceError`.
    """

    name: str

    def free_bytes(self) -> int:
        """Memory that a batch may take."""

    def upload(self, array: npt.NDArray[Any]) -> Buffer:
        """Copy an array to the device."""

    def empty(self, count: int, dtype: type[np.generic]) -> Buffer:
        """Make room for ``count`` elements, at least one."""

    def launch(self, kernel: str, words: int, threads: int, arguments: Sequence[Buffer | int]) -> None:
        """Start a kernel on ``threads`` threads in blocks of ``BLOCK``, after all launches before it.

        Integers among the arguments are passed as 64-bit ones, buffers as pointers.
        """

    def download(self, buffer: Buffer) -> npt.NDArray[Any]:
        """Wait for all launches, then copy a buffer back."""


def run(instances: Sequence[DenseInstance], device: Device) -> list[Ints]:
    """Solve state spaces that fit the device together; the assignments of their rounded problems.

    Raises:
        DeviceError: the device failed, or its answer contradicts itself.
    """
    if not instances:
        return []
    batch = make_batch(instances)
    count = len(instances)
    spaces = device.upload(batch.spaces)
    blocks = device.upload(batch.space_of_block)
    capacity, room, stride = (device.upload(array) for array in (batch.capacity, batch.room, batch.stride))
    cost, gain_high, gain_low = (device.upload(array) for array in (batch.cost, batch.gain_high, batch.gain_low))
    high_states = batch.states if batch.words > 1 else 1
    high = [device.empty(high_states, np.int64) for _ in range(2)]
    low = [device.empty(batch.states, np.int64) for _ in range(2)]
    decision = device.empty(max(1, batch.decisions), np.uint8)
    picks = device.empty(count * batch.width, np.int64)
    choice = device.empty(max(1, len(batch.cost)), np.uint8)
    value = device.empty(2 * count, np.int64)

    threads = len(batch.space_of_block) * BLOCK
    device.launch("start_spaces", batch.words, threads, [spaces, blocks, batch.steps, high[0], low[0], high[1], low[1]])
    for step in range(batch.steps):
        old, new = step % 2, (step + 1) % 2
        device.launch(
            "advance_layer",
            batch.words,
            threads,
            [
                *(spaces, blocks, batch.steps, step, capacity, room, stride, cost, gain_high, gain_low),
                *(high[old], low[old], high[new], low[new], decision),
            ],
        )
    last = batch.steps % 2
    for origin, to in batch.rounds:
        device.launch(
            "select_final",
            batch.words,
            count * to,
            [spaces, count, batch.width, origin, to, capacity, room, stride, high[last], low[last], picks],
        )
    device.launch(
        "trace_back",
        batch.words,
        count,
        [spaces, count, batch.width, stride, cost, decision, high[last], low[last], picks, choice, value],
    )
    choices, values = device.download(choice), device.download(value).reshape(count, 2)
    starts = batch.spaces[:, 5].tolist()
    return [
        _assignment(instance, choices[start : start + len(instance.cost)], words)
        for instance, start, words in zip(instances, starts, values.tolist(), strict=True)
    ]


def _assignment(instance: DenseInstance, choice: npt.NDArray[np.uint8], words: list[int]) -> Ints:
    """From one decision per layer to an assignment, held against the value that the device says it has."""
    node = choice.astype(np.int64) - 1
    placed = np.flatnonzero(node >= 0)
    if (node >= len(instance.node)).any():
        raise DeviceError(f"a decision names node {int(node.max())} of {len(instance.node)}")
    gains = [int(gain[placed, node[placed]].sum()) for gain in (instance.gain_high, instance.gain_low)]
    if gains != words:
        raise DeviceError(f"the placements are worth {gains}, the device says {words}")
    assignment = instance.free.copy()
    assignment[instance.candidate[placed]] = instance.node[node[placed]]
    return assignment
