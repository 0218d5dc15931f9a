# SPDX-License-Identifier: Apache-2.0
"""Agent-like traffic for comparing indexes: sessions whose turns are pinned to workers drawn at random."""

from __future__ import annotations

import asyncio
import random
from typing import Any


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
