# SPDX-License-Identifier: Apache-2.0
"""Agents that never stop: each grows its prompt turn by turn, runs tools in between, and begins anew.

What breaks a turn is kept with the time at which it broke; the agent tries that turn again, as a harness would.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass, field

import msgspec

from benchmarks.http_stream import Target, events
from tao_dynamo.errors import StackError
from tool_hooks.call import EventSink, tool_call

_AGAIN_AFTER_S = 0.3


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn that ended. Times in seconds on the monotonic clock; ``error`` is None where it was served."""

    session: str
    sent_s: float
    ended_s: float
    tokens: int
    error: str | None = None
    left: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the agents do; they begin within ``start_s`` seconds."""

    agents: int = 64
    turns: int = 8
    first_prompt: int = 320
    growth: int = 160
    output: int = 64
    tool_s: float = 0.4
    start_s: float = 0.4
    timeout_s: float = 120.0
    seed: int = 0


@dataclass
class Fleet:
    """The agents, and what became of their turns."""

    target: Target
    model: str
    shape: Shape
    sink: EventSink | None = None
    name: str = "f"
    turns: list[Turn] = field(default_factory=list)
    in_flight: dict[str, float] = field(default_factory=dict)
    _asking: dict[str, asyncio.Task[int]] = field(default_factory=dict)
    _leaving: set[str] = field(default_factory=set)
    _stopping: bool = False

    async def run(self, rounds: int | None = None) -> None:
        """Run all agents until :meth:`stop`, or for so many sessions each."""
        await asyncio.gather(*(self._agent(number, rounds) for number in range(self.shape.agents)))

    def stop(self) -> None:
        """Let every agent end after its present session's present turn."""
        self._stopping = True

    def leave(self, random_: random.Random) -> bool:
        """One client, any that is being served, hangs up. False if there is none."""
        if not self._asking:
            return False
        session = random_.choice(sorted(self._asking))
        self._leaving.add(session)
        self._asking[session].cancel()
        return True

    def since(self, began_s: float) -> list[Turn]:
        """Turns that ended after that time."""
        return [turn for turn in self.turns if turn.ended_s >= began_s]

    async def _agent(self, number: int, rounds: int | None) -> None:
        random_ = random.Random(self.shape.seed * 1000 + number)
        await asyncio.sleep(random_.random() * self.shape.start_s)
        done = 0
        while not self._stopping and (rounds is None or done < rounds):
            await self._session(f"{self.name}-{number}-{done}", random_)
            done += 1

    async def _session(self, session: str, random_: random.Random) -> None:
        salt = random_.randrange(3000)
        for step in range(self.shape.turns):
            final = step == self.shape.turns - 1 or self._stopping
            prompt = [300 + (salt + i * 7) % 2000 for i in range(self.shape.first_prompt + step * self.shape.growth)]
            while not await self._turn(session, prompt, final=final):
                if self._stopping:
                    return
                await asyncio.sleep(_AGAIN_AFTER_S)
            if final:
                return
            seconds = self.shape.tool_s * (0.5 + random_.random())
            if self.sink is None:
                await asyncio.sleep(seconds)
                continue
            async with tool_call("bash", session_id=session, tool_key="build", publisher=self.sink):
                await asyncio.sleep(seconds)

    async def _turn(self, session: str, prompt: list[int], *, final: bool) -> bool:
        headers = {"x-dynamo-session-id": session} | ({"x-dynamo-session-final": "true"} if final else {})
        sent = self.in_flight[session] = time.monotonic()
        asking = self._asking[session] = asyncio.create_task(self._read(prompt, headers))
        asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        tokens, error, left = 0, None, False
        try:
            # Not wait_for, which before Python 3.12 may swallow a cancellation.
            done, _ = await asyncio.wait((asking,), timeout=self.shape.timeout_s)
            if done:
                tokens = asking.result()
            else:
                error = f"no complete answer within {self.shape.timeout_s:g} s"
        except StackError as problem:
            error = str(problem)
        except asyncio.CancelledError:
            if session not in self._leaving:
                raise
            left = True
        finally:
            asking.cancel()
            del self.in_flight[session], self._asking[session]
            self._leaving.discard(session)
        if not error and not left and tokens != self.shape.output:
            error = f"{tokens} tokens came instead of {self.shape.output}"
        self.turns.append(Turn(session, sent, time.monotonic(), tokens, error, left))
        return error is None

    async def _read(self, prompt: list[int], headers: dict[str, str]) -> int:
        body = msgspec.json.encode(
            {
                "model": self.model,
                "prompt": prompt,
                "max_tokens": self.shape.output,
                "min_tokens": self.shape.output,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )
        tokens = 0
        async with contextlib.aclosing(events(self.target, body, headers)) as stream:
            async for payload in stream:
                if payload == b"[DONE]":
                    break
                chunk = msgspec.json.decode(payload)
                if chunk.get("error"):
                    raise StackError(f"the stream ended in an error: {payload[:200].decode(errors='replace')}")
                usage = chunk.get("usage")
                tokens = usage["completion_tokens"] if usage else tokens
        return tokens
