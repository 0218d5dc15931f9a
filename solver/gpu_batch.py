# SPDX-License-Identifier: Apache-2.0
"""Many state spaces as the flat arrays that the kernels read, and what a batch needs on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tao_dynamo.errors import BudgetExceededError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from solver.columns import Ints
    from solver.dp_layer import DenseInstance

BLOCK = 256
"""Threads of a block; the states of one space never share a block with another's."""

MAX_STATES = 2**31 - 1
"""States of one space: the kernels divide them in 32 bits."""

FOLD = 64
WIDE_FOLD = 256
MANY_STATES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """``B`` state spaces side by side.

    ``spaces[B, 9]`` has the columns of ``struct Space`` in ``kernels/dense_dp.cuh``; ``space_of_block`` names
    the space of every block of ``BLOCK`` states; ``capacity``, ``room``, ``stride``, ``cost``, ``gain_high``
    and ``gain_low`` are the instances' own, one after the other (``gain_high`` of one zero with one word).
    ``steps`` is the number of layers of the longest space. The final state of a space is searched by
    ``rounds[0][1]`` threads, then by ever fewer, as ``rounds`` of (from, to) says.
    """

    words: int
    spaces: Ints
    space_of_block: npt.NDArray[np.int32]
    capacity: Ints
    room: Ints
    stride: Ints
    cost: Ints
    gain_high: Ints
    gain_low: Ints
    states: int
    decisions: int
    steps: int
    rounds: tuple[tuple[int, int], ...]

    @property
    def width(self) -> int:
        """Candidates for the final state that each space keeps room for."""
        return self.rounds[0][1]


def device_bytes(instance: DenseInstance, words: int) -> int:
    """What one space takes on the device: two layers' values and a byte of decision per layer and state."""
    layers = len(instance.cost)
    return instance.states * (16 * words + layers) + 16 * layers * len(instance.node) + 8 * FOLD * WIDE_FOLD


def words_of(instances: Sequence[DenseInstance]) -> int:
    """Words per value that all of them can be run with: a one-word value is a two-word one with no high."""
    return max((instance.packing.words for instance in instances), default=1)


def split(instances: Sequence[DenseInstance], limit_bytes: int) -> list[range]:
    """Cut a list into runs that fit the device one after the other.

    Raises:
        BudgetExceededError: a single space is larger than that, or than the kernels can index.
    """
    words = words_of(instances)
    runs: list[range] = []
    begin, used = 0, 0
    for k, instance in enumerate(instances):
        if instance.states > MAX_STATES:
            raise BudgetExceededError("states of one space on the GPU", instance.states, MAX_STATES)
        needed = device_bytes(instance, words)
        if needed > limit_bytes:
            raise BudgetExceededError("bytes of GPU memory", needed, limit_bytes)
        if k > begin and used + needed > limit_bytes:
            runs.append(range(begin, k))
            begin, used = k, 0
        used += needed
    if begin < len(instances):
        runs.append(range(begin, len(instances)))
    return runs


def make_batch(instances: Sequence[DenseInstance]) -> Batch:
    """Lay the instances, at least one, side by side."""
    words = words_of(instances)
    states = _column(instance.states for instance in instances)
    nodes = _column(len(instance.node) for instance in instances)
    layers = _column(len(instance.cost) for instance in instances)
    blocks = -(-states // BLOCK)
    columns = (
        _starts(states),
        states,
        nodes,
        _starts(nodes),
        layers,
        _starts(layers),
        _starts(layers * nodes),
        _starts(layers * states),
        _starts(blocks),
    )
    fold = WIDE_FOLD if int(states.max()) > MANY_STATES else FOLD
    return Batch(
        words=words,
        spaces=np.ascontiguousarray(np.stack(columns, axis=1)),
        space_of_block=np.repeat(np.arange(len(instances), dtype=np.int32), blocks),
        capacity=_flat([instance.capacity for instance in instances]),
        room=_flat([instance.room for instance in instances]),
        stride=_flat([instance.stride for instance in instances]),
        cost=_flat([instance.cost for instance in instances]),
        gain_high=_flat([instance.gain_high for instance in instances] if words > 1 else []),
        gain_low=_flat([instance.gain_low for instance in instances]),
        states=int(states.sum()),
        decisions=int((layers * states).sum()),
        steps=int(layers.max()),
        rounds=((0, FOLD * fold), (FOLD * fold, FOLD), (FOLD, 1)),
    )


def _column(numbers: Any) -> Ints:
    return np.fromiter(numbers, dtype=np.int64)


def _starts(lengths: Ints) -> Ints:
    return np.cumsum(lengths) - lengths


def _flat(arrays: list[Ints]) -> Ints:
    """One array of all, never empty: a device has no empty buffers."""
    joined = np.concatenate([array.reshape(-1) for array in arrays]) if arrays else np.zeros(0, dtype=np.int64)
    return joined.astype(np.int64) if len(joined) else np.zeros(1, dtype=np.int64)
