# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib.util
import math
import random
import sys
import types
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from solver import auto, bfd, dp_cpu, dp_gpu, exact
from solver.dp_gpu import DenseGpu, crossing, work
from solver.gpu_batch import BLOCK
from solver.gpu_device import CupyDevice
from solver.planning import make_plan
from solver.problem import Candidate, Node, Plan, Problem, Value
from solver.straight import Straight, go_straight
from tao_dynamo.errors import BudgetExceededError, DeviceError
from tests.solver.host_device import HostDevice, build
from tests.solver.test_kernels import instance_of, random_problem

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Sequence

    from solver.columns import Columns
    from solver.rounding import Rounded


def _gpu_present() -> bool:
    if importlib.util.find_spec("cupy") is None:
        return False
    try:
        CupyDevice()
    except DeviceError:
        return False
    return True


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[int, ctypes.CDLL]:
    return build(tmp_path_factory.mktemp("kernels"))


def content(plan: Plan) -> tuple[object, ...]:
    return plan.placements, plan.value, plan.bound, plan.optimal


def contended(seed: int, candidates: int = 9) -> Problem:
    """A snapshot that greedy does not solve at once."""
    rng = random.Random(seed)
    nodes = (Node("a", 23), Node("b", 19))
    waiting = tuple(
        Candidate(f"s{k}", rng.randrange(3, 11), rng.random() < 0.5, rng.randrange(1, 999), {"a": rng.randrange(9)})
        for k in range(candidates)
    )
    return Problem(nodes, waiting, quantum=1, seed=seed)


class Faulty(HostDevice):
    """Fails at the n-th launch, as a GPU does."""

    left = 3

    def launch(self, kernel: str, words: int, threads: int, arguments: Sequence[Any]) -> None:
        self.left -= 1
        if self.left == 0:
            raise DeviceError(f"launch {kernel}: CUDARuntimeError: cudaErrorIllegalAddress")
        super().launch(kernel, words, threads, arguments)


def test_plan_by_plan_as_the_cpu(libraries: dict[int, ctypes.CDLL]) -> None:
    rng = random.Random(21)
    gpu = DenseGpu(lambda: HostDevice(libraries))
    problems = [random_problem(rng) for _ in range(40)] + [contended(seed) for seed in range(20)]
    plans = gpu.solve_batch(problems)
    for problem, plan in zip(problems, plans, strict=True):
        assert plan.method == "dp-gpu"
        assert content(plan) == content(dp_cpu.solve(problem))
        assert content(plan) == content(gpu.solve(problem))


def test_a_small_device_takes_the_batch_in_parts(libraries: dict[int, ctypes.CDLL]) -> None:
    device = HostDevice(libraries)
    device.free = 200_000
    gpu = DenseGpu(lambda: device)
    problems = [contended(seed) for seed in range(6)]
    assert [content(plan) for plan in gpu.solve_batch(problems)] == [
        content(dp_cpu.solve(problem)) for problem in problems
    ]
    assert device.launches["start_spaces"] > 1


def test_a_space_that_the_device_cannot_hold_is_said_not_tried(libraries: dict[int, ctypes.CDLL]) -> None:
    device = HostDevice(libraries)
    device.free = 1000
    gpu = DenseGpu(lambda: device)
    with pytest.raises(BudgetExceededError, match="GPU memory"):
        gpu.solve(contended(1))
    with pytest.raises(BudgetExceededError, match="states"):
        gpu.solve(contended(1), max_states=10)
    assert not device.launches
    assert gpu.faults == 0


@pytest.mark.parametrize("launch", [1, 5, 11, 14])
def test_a_fault_in_mid_solve_is_finished_by_the_cpu_and_counted(
    libraries: dict[int, ctypes.CDLL], launch: int
) -> None:
    device = Faulty(libraries)
    device.left = launch
    gpu = DenseGpu(lambda: device)
    gpu.threshold = 0
    problem = contended(3)
    assert gpu.prefers([instance_of(problem)])
    plan = gpu.solve(problem)
    assert content(plan) == content(dp_cpu.solve(problem))
    assert plan.method == "dp-cpu"
    assert "cudaErrorIllegalAddress" in plan.note
    assert gpu.faults == 1
    # A CUDA context does not recover: from here on the device counts as missing, and that is no new fault.
    assert not gpu.prefers([instance_of(problem)])
    with pytest.raises(DeviceError):
        gpu.solve(problem)
    assert gpu.faults == 1


def test_a_fault_while_measuring_leaves_the_cpu(libraries: dict[int, ctypes.CDLL]) -> None:
    gpu = DenseGpu(lambda: Faulty(libraries))
    assert gpu.warm_up() == ""
    assert gpu.faults == 1
    assert gpu.threshold == math.inf


def test_the_threshold_is_measured(libraries: dict[int, ctypes.CDLL]) -> None:
    gpu = DenseGpu(lambda: HostDevice(libraries))
    assert not gpu.prefers([instance_of(contended(1))] * 1000)
    assert gpu.warm_up() == "host code"
    assert gpu.threshold >= 0
    # Threads in a loop cannot beat the compiled CPU core by more than noise on the large sample.
    assert gpu.threshold == math.inf or gpu.threshold > work(instance_of(contended(1)))


@pytest.mark.parametrize(
    ("small", "large", "want"),
    [
        ((10, 1.0, 3.0), (110, 11.0, 4.0), 10 + 100 * 2 / 9),
        ((10, 1.0, 0.5), (110, 11.0, 4.0), 10 - 100 * 0.5 / 6.5),
        ((10, 1.0, 3.0), (110, 2.0, 9.0), math.inf),
        ((10, 3.0, 1.0), (110, 4.0, 3.0), 0.0),
        ((10, 1.0, 2.0), (110, 11.0, 11.5), 210.0),
    ],
)
def test_where_two_lines_cross(small: tuple[int, float, float], large: tuple[int, float, float], want: float) -> None:
    assert crossing(small, large) == pytest.approx(want)


def test_without_cupy_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    gpu = DenseGpu()
    assert gpu.warm_up() == ""
    assert not gpu.prefers([instance_of(contended(1))])
    with pytest.raises(DeviceError, match="cupy"):
        gpu.solve(contended(1))
    assert gpu.faults == 0


class FakeCupy(types.ModuleType):
    """CuPy's interface as far as it is used, on host code; what a kernel gets is held to what CuPy can pass."""

    def __init__(self, libraries: dict[int, ctypes.CDLL], devices: int = 1) -> None:
        super().__init__("cupy")
        self.host = HostDevice(libraries)
        self.cuda = types.SimpleNamespace(
            runtime=types.SimpleNamespace(
                getDeviceCount=lambda: devices,
                getDeviceProperties=lambda _: {"name": b"Fake H200"},
                memGetInfo=lambda: (1 << 28, 1 << 30),
            ),
            Device=lambda: types.SimpleNamespace(id=0),
        )
        self.asarray = self.host.upload
        self.asnumpy = self.host.download
        self.empty = self.host.empty

    def get_default_memory_pool(self) -> types.SimpleNamespace:
        return types.SimpleNamespace(free_bytes=lambda: 0)

    def RawModule(self, *, code: str, options: tuple[str, ...], backend: str) -> types.SimpleNamespace:  # noqa: N802
        assert "advance_layer" in code
        assert backend == "nvrtc"
        words = 2 if "-DWORDS=2" in options else 1

        def get_function(name: str) -> Any:
            def start(grid: tuple[int], block: tuple[int], given: tuple[Any, ...]) -> None:
                assert block == (BLOCK,)
                assert all(isinstance(each, np.ndarray | np.int64) for each in given)
                plain = [int(each) if isinstance(each, np.int64) else each for each in given]
                self.host.launch(name, words, grid[0] * BLOCK, plain)

            return start

        return types.SimpleNamespace(get_function=get_function)


def test_the_way_through_cupy(libraries: dict[int, ctypes.CDLL], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy(libraries))
    gpu = DenseGpu()
    assert gpu.device().name == "Fake H200"
    for seed in range(5):
        plan = gpu.solve(contended(seed))
        assert plan.method == "dp-gpu"
        assert content(plan) == content(dp_cpu.solve(contended(seed)))


def test_what_cupy_raises_becomes_a_device_error(
    libraries: dict[int, ctypes.CDLL], monkeypatch: pytest.MonkeyPatch
) -> None:
    class CompileException(Exception):  # noqa: N818 - CuPy's name
        pass

    broken = FakeCupy(libraries)

    def fail(**_: object) -> None:
        raise CompileException("no")

    broken.RawModule = fail  # type: ignore[method-assign, assignment]
    monkeypatch.setitem(sys.modules, "cupy", broken)
    with pytest.raises(DeviceError, match="CompileException"):
        CupyDevice()
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy(libraries, devices=0))
    with pytest.raises(DeviceError, match="no CUDA device"):
        CupyDevice()


class Exact:
    """`exact` without a proof: the greedy assignment and a bound that nothing meets."""

    FINISH_SHARE = exact.FINISH_SHARE

    @staticmethod
    def refined(rounded: Rounded, *_: object) -> Plan:
        return make_plan(rounded, bfd.assign(rounded), bound=Value(1 << 40, 0, 0), method="exact", seconds=0.0)


def unsettled(columns: Columns, began: float, budget: float) -> Straight:
    return go_straight(columns, began, budget)._replace(settled=False)


@pytest.mark.parametrize(
    ("launch", "affordable", "method"), [(99, 0.0, "dp-gpu"), (5, 4e8, "dp-cpu"), (5, 0.0, "exact")]
)
def test_auto_keeps_what_it_has_where_the_gpu_fails(
    libraries: dict[int, ctypes.CDLL],
    monkeypatch: pytest.MonkeyPatch,
    launch: int,
    affordable: float,
    method: str,
) -> None:
    device = Faulty(libraries)
    device.left = launch
    gpu = DenseGpu(lambda: device)
    gpu.threshold = 0
    monkeypatch.setattr(dp_gpu, "shared", gpu)
    monkeypatch.setattr(auto, "exact", Exact)
    monkeypatch.setattr(auto, "go_straight", unsettled)
    monkeypatch.setattr(auto, "CPU_UPDATES_PER_S", affordable)
    plan = auto.solve(contended(3), 1000.0)
    assert plan.method == method
    assert ("cudaErrorIllegalAddress" in plan.note) == (launch == 5)
    assert plan.optimal == (method != "exact")
    if plan.optimal:
        assert content(plan) == content(dp_cpu.solve(contended(3)))


@pytest.mark.gpu
@pytest.mark.skipif(not _gpu_present(), reason="no CUDA device here")
def test_on_a_gpu_plan_by_plan_as_the_cpu() -> None:
    rng = random.Random(5)
    gpu = DenseGpu()
    problems = [random_problem(rng) for _ in range(500)] + [contended(seed, 14) for seed in range(200)]
    plans = gpu.solve_batch(problems)
    assert {plan.method for plan in plans} == {"dp-gpu"}
    assert [content(plan) for plan in plans] == [content(dp_cpu.solve(problem)) for problem in problems]
    assert gpu.warm_up() != ""
    assert gpu.faults == 0
