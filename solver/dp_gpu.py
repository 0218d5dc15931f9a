# SPDX-License-Identifier: Apache-2.0
"""The dense DP on the GPU, many state spaces at once, with the CPU behind it.

A snapshot's answer never depends on the GPU: the plan is the same as :mod:`solver.dp_cpu`'s, and where the
GPU fails in mid-solve the CPU finishes the same solve. After one fault this process leaves the GPU alone, since a
CUDA context does not recover; the planner's next process tries again.
"""

from __future__ import annotations

import logging
import math
import random
import time
from functools import partial
from typing import TYPE_CHECKING

from solver import dp_cpu, gpu_run
from solver.columns import Ints
from solver.dp_layer import DenseInstance, dense_instance
from solver.gpu_batch import split
from solver.gpu_device import CupyDevice
from solver.gpu_run import Device
from solver.planning import make_plan
from solver.problem import Candidate, Node, Plan, Problem
from solver.rounding import round_problem, value_of
from tao_dynamo.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from solver.columns import Snapshot

_log = logging.getLogger(__name__)

MAX_STATES = 20_000_000_000
"""Default cap on layers x states; the device's free memory is the other."""


class DenseGpu:
    """Batches of dense DPs on one device, found on first use.

    Args:
        detect: makes the device or raises :class:`DeviceError`.
        on_cpu: what solves a state space where the device fails.
    """

    def __init__(
        self,
        detect: Callable[[], Device] = CupyDevice,
        on_cpu: Callable[[DenseInstance], Ints] = dp_cpu.run,
    ) -> None:
        self._detect = detect
        self._on_cpu = on_cpu
        self._device: Device | None = None
        self._missing: DeviceError | None = None
        self.faults = 0
        self.threshold = math.inf
        """Work (see :func:`work`) of a batch from which the GPU is the faster one; infinite until measured."""

    def device(self) -> Device:
        """The device.

        Raises:
            DeviceError: there is none, or it has failed before.
        """
        if self._missing is not None:
            raise self._missing
        if self._device is None:
            try:
                self._device = self._detect()
            except DeviceError as error:
                self._missing = error
                raise
        return self._device

    def warm_up(self) -> str:
        """Find the device, compile the kernels, measure the threshold; the device's name, "" without one."""
        try:
            name = self.device().name
        except DeviceError as error:
            _log.info("solver: no GPU: %s", error)
            return ""
        try:
            self.threshold = self._measure()
        except DeviceError as error:
            self._failed(error)
            return ""
        _log.info("solver: GPU %s pays from %.3g updates", name, self.threshold)
        return name

    def prefers(self, instances: Sequence[DenseInstance]) -> bool:
        """Whether a batch is large enough for the GPU to be faster; false without one or before `warm_up`."""
        return self._missing is None and sum(map(work, instances)) >= self.threshold

    def run(self, instances: Sequence[DenseInstance]) -> list[Ints]:
        """Assignments of the rounded problems, from the GPU alone, in as many batches as its memory asks for.

        Raises:
            DeviceError: there is no device, or it failed (counted once).
            BudgetExceededError: a state space is too large for it; nothing has been tried.
        """
        device = self.device()
        try:
            runs = split(instances, device.free_bytes())
            return [found for part in runs for found in gpu_run.run([instances[k] for k in part], device)]
        except DeviceError as error:
            self._failed(error)
            raise

    def run_anyhow(self, instances: Sequence[DenseInstance]) -> tuple[list[Ints], str]:
        """As :meth:`run`; after a fault of the device from the CPU, and then with what went wrong.

        Raises:
            DeviceError: there is no device.
            BudgetExceededError: a state space is too large for it.
        """
        self.device()
        try:
            return self.run(instances), ""
        except DeviceError as error:
            return [self._on_cpu(instance) for instance in instances], str(error)

    def solve(self, problem: Snapshot, *, max_states: int = MAX_STATES) -> Plan:
        """The optimum of a valid problem, rounded to its quantum; errors as in :meth:`run_anyhow`."""
        return self.solve_batch([problem], max_states=max_states)[0]

    def solve_batch(self, problems: Sequence[Snapshot], *, max_states: int = MAX_STATES) -> list[Plan]:
        """Solve many valid snapshots side by side; every plan says how long the whole batch took.

        Raises:
            DeviceError: there is no device.
            BudgetExceededError: a state space is larger than ``max_states`` or the device; nothing was tried.
        """
        began = time.perf_counter()
        self.device()
        fitted = [dp_cpu.fitting(problem, max_states) for problem in problems]
        found = [dp_cpu.greedy_optimum(rounded) for rounded, _ in fitted]
        open_ = [k for k, assignment in enumerate(found) if assignment is None]
        searched, fault = self.run_anyhow([fitted[k][1] for k in open_])
        for k, assignment in zip(open_, searched, strict=True):
            found[k] = assignment
        seconds = time.perf_counter() - began
        return [
            make_plan(
                rounded,
                assignment,
                bound=value_of(rounded, assignment),
                method="dp-cpu" if fault else "dp-gpu",
                seconds=seconds,
                note=f"solved on the CPU after a fault of the GPU: {fault}" if fault else "",
            )
            for (rounded, _), assignment in zip(fitted, found, strict=True)
            if assignment is not None
        ]

    def _failed(self, error: DeviceError) -> None:
        self.faults += 1
        self._missing = error
        self._device = None
        _log.warning("solver: GPU given up for this process: %s", error)

    def _measure(self) -> float:
        """Work where the two straight lines through a small and a large space's times cross."""
        small, large = _sample(16, 40), _sample(64, 320)
        device = self.device()
        times = [
            (_best_time(partial(self._on_cpu, space)), _best_time(partial(gpu_run.run, [space], device)))
            for space in (small, large)
        ]
        return crossing((work(small), *times[0]), (work(large), *times[1]))


def work(instance: DenseInstance) -> int:
    """Updates that a dense DP makes: layers x states x nodes."""
    return len(instance.cost) * instance.states * max(1, len(instance.node))


def crossing(small: tuple[int, float, float], large: tuple[int, float, float]) -> float:
    """From (work, seconds on the CPU, seconds on the GPU) at two sizes: the work from which the GPU wins.

    Zero where it always does, infinite where it never does. Times are taken as linear in the work.
    """
    (w0, cpu0, gpu0), (w1, cpu1, gpu1) = small, large
    lead0, lead1 = gpu0 - cpu0, gpu1 - cpu1
    if lead1 >= lead0:
        return 0.0 if lead0 <= 0 and lead1 <= 0 else math.inf
    return max(0.0, w0 + lead0 * (w1 - w0) / (lead0 - lead1))


def _sample(candidates: int, quanta: int) -> DenseInstance:
    """A state space of two nodes for measuring."""
    rng = random.Random(candidates)
    nodes = (Node("a", quanta), Node("b", quanta))
    waiting = tuple(
        Candidate(f"s{k}", rng.randrange(1, 3 + quanta // 5), rng.random() < 0.5, rng.randrange(10_000), {"a": k})
        for k in range(candidates)
    )
    return dense_instance(round_problem(Problem(nodes, waiting, quantum=1)))


def _best_time(action: Callable[[], object], rounds: int = 3) -> float:
    action()
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        action()
        took.append(time.perf_counter() - began)
    return min(took)


shared = DenseGpu()
"""The one of this process."""


def warm_up() -> str:
    """As :meth:`DenseGpu.warm_up`."""
    return shared.warm_up()


def prefers(instances: Sequence[DenseInstance]) -> bool:
    """As :meth:`DenseGpu.prefers`."""
    return shared.prefers(instances)


def run(instances: Sequence[DenseInstance]) -> list[Ints]:
    """As :meth:`DenseGpu.run`."""
    return shared.run(instances)


def solve(problem: Snapshot, *, max_states: int = MAX_STATES) -> Plan:
    """As :meth:`DenseGpu.solve`."""
    return shared.solve(problem, max_states=max_states)


def solve_batch(problems: Sequence[Snapshot], *, max_states: int = MAX_STATES) -> list[Plan]:
    """As :meth:`DenseGpu.solve_batch`."""
    return shared.solve_batch(problems, max_states=max_states)


def faults() -> int:
    """CUDA errors that this process has survived."""
    return shared.faults
