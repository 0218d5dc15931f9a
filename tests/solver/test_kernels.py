# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from solver import dp_cpu
from solver.columns import Ints
from solver.dp_layer import DenseInstance, apply_layer, dense_instance, final_state, trace_back
from solver.gpu_batch import device_bytes, make_batch, split, words_of
from solver.gpu_device import NAMES, SOURCE, compile_options
from solver.gpu_run import run
from solver.problem import Candidate, Node, Problem
from solver.rounding import round_problem
from tao_dynamo.errors import BudgetExceededError, DeviceError
from tests.solver.host_device import HostDevice, build
from tests.solver.nvrtc import Nvrtc

if TYPE_CHECKING:
    import ctypes

BATCHES = 150


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[int, ctypes.CDLL]:
    return build(tmp_path_factory.mktemp("kernels"))


def random_problem(rng: random.Random) -> Problem:
    """Any shape, with all that can go wrong in it: no nodes, no candidates, ties, zero costs, wide values."""
    nodes = tuple(Node(f"n{k}", rng.randrange(0, 25)) for k in range(rng.choice((0, 1, 1, 2, 2, 3, 4))))
    scale = rng.choice((1, 3, 1000, 1 << 38))
    candidates = []
    for k in range(rng.randrange(0, 12)):
        homes = rng.sample(nodes, rng.randrange(0, len(nodes) + 1))
        credit = {node.id: rng.randrange(0, 4) * scale for node in homes}
        candidates.append(
            Candidate(f"s{k}", rng.randrange(0, 14), rng.random() < 0.5, rng.randrange(0, 4) * scale, credit)
        )
    return Problem(nodes, tuple(candidates), quantum=rng.choice((1, 1, 2)), seed=rng.randrange(5))


def instance_of(problem: Problem) -> DenseInstance:
    return dense_instance(round_problem(problem))


def by_definition(instance: DenseInstance) -> Ints:
    """The answer of the plain numpy text of ``dp_layer``."""
    high = np.full(instance.states, -1 if instance.packing.words == 2 else 0, dtype=np.int64)
    low = np.full(instance.states, 0 if instance.packing.words == 2 else -1, dtype=np.int64)
    high[0] = low[0] = 0
    layers = [apply_layer(instance, layer, high, low) for layer in range(len(instance.cost))]
    decision = np.array(layers, dtype=np.uint8).reshape(len(layers), instance.states)
    return trace_back(instance, decision, final_state(instance, high, low))


def test_the_kernels_as_host_code_give_the_cpus_answer(
    libraries: dict[int, ctypes.CDLL], capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(7)
    spaces = wide = mixed = 0
    for k in range(BATCHES):
        batch = [instance_of(random_problem(rng)) for _ in range(rng.randrange(1, 9))]
        device = HostDevice(libraries, backwards=k % 2 == 1)
        found = run(batch, device)
        for instance, assignment in zip(batch, found, strict=True):
            assert assignment.tolist() == dp_cpu.run(instance).tolist()
            assert assignment.tolist() == by_definition(instance).tolist()
        words = {instance.packing.words for instance in batch}
        spaces, wide, mixed = spaces + len(batch), wide + (2 in words), mixed + (len(words) == 2)
        # No round trip per layer: all launches, then the decisions and the values.
        assert device.launches["advance_layer"] == max(len(instance.cost) for instance in batch)
        assert device.downloads == 2
    assert wide > BATCHES // 10
    assert mixed > BATCHES // 10
    with capsys.disabled():
        print(f" [{BATCHES} batches, {spaces} state spaces, {wide} batches with two words compared] ", end="")


def test_a_space_as_large_as_in_use_gives_the_cpus_answer(libraries: dict[int, ctypes.CDLL]) -> None:
    rng = random.Random(11)
    nodes = (Node("a", 120), Node("b", 100))
    candidates = tuple(
        Candidate(f"s{k}", rng.randrange(4, 40), rng.random() < 0.6, rng.randrange(60_000), {"a": 97 * k})
        for k in range(24)
    )
    instance = instance_of(Problem(nodes, candidates, quantum=1))
    found = run([instance], HostDevice(libraries))
    assert found[0].tolist() == dp_cpu.run(instance).tolist()


def test_values_at_the_edge_of_two_words_do_not_overflow(libraries: dict[int, ctypes.CDLL]) -> None:
    nodes = (Node("a", 20),)
    # Sums of credit and of footprint just below 2**42, of 62 bits together with the readiness not to be had.
    candidates = tuple(Candidate(f"s{k}", 2, True, (1 << 40) - k, {"a": (1 << 40) - k}) for k in range(4))
    instance = instance_of(Problem(nodes, candidates, quantum=1))
    assert instance.packing.words == 2
    assert run([instance], HostDevice(libraries))[0].tolist() == by_definition(instance).tolist()


def test_no_space_at_all_is_no_launch(libraries: dict[int, ctypes.CDLL]) -> None:
    device = HostDevice(libraries)
    assert run([], device) == []
    assert not device.launches


@pytest.mark.parametrize(("decision", "complaint"), [(0, "worth"), (200, "names node")])
def test_a_device_that_contradicts_itself_is_caught(
    libraries: dict[int, ctypes.CDLL], decision: int, complaint: str
) -> None:
    class Liar(HostDevice):
        def download(self, buffer: np.ndarray) -> np.ndarray:
            copied = super().download(buffer)
            return np.full_like(copied, decision) if copied.dtype == np.uint8 else copied

    nodes = (Node("a", 5), Node("b", 7))
    candidates = tuple(Candidate(f"s{k}", 2 + k, True, 10 + k) for k in range(4))
    with pytest.raises(DeviceError, match=complaint):
        run([instance_of(Problem(nodes, candidates, quantum=1))], Liar(libraries))


def test_batches_are_cut_to_the_memory() -> None:
    rng = random.Random(2)
    batch = [instance_of(random_problem(rng)) for _ in range(40)]
    words = words_of(batch)
    sizes = [device_bytes(instance, words) for instance in batch]
    limit = 3 * max(sizes)
    runs = split(batch, limit)
    assert [k for part in runs for k in part] == list(range(40))
    assert all(sum(sizes[k] for k in part) <= limit for part in runs)
    assert len(runs) > 1
    with pytest.raises(BudgetExceededError, match="GPU memory"):
        split(batch, max(sizes) - 1)


def test_every_block_of_a_batch_belongs_to_one_space() -> None:
    rng = random.Random(4)
    instances = [instance_of(random_problem(rng)) for _ in range(30)]
    batch = make_batch(instances)
    for k, instance in enumerate(instances):
        blocks = np.flatnonzero(batch.space_of_block == k)
        assert len(blocks) == -(-instance.states // 256)
        assert blocks[0] == batch.spaces[k, 8]


@pytest.mark.parametrize("words", [1, 2])
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_nvrtc_compiles_every_kernel(architecture: str, words: int) -> None:
    options = (*compile_options(words), f"-arch={architecture}")
    cubin = Nvrtc().compile(SOURCE.read_text(encoding="utf-8"), SOURCE.name, options)
    assert cubin.startswith(b"\x7fELF")
    for name in NAMES:
        assert f".text.{name}\0".encode() in cubin
