# SPDX-License-Identifier: Apache-2.0
"""One recorded session, replayed as its agent would: ask, run the tool, ask again."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from benchmarks.conversation import Conversation
from benchmarks.http_stream import Target, events
from benchmarks.metrics import SessionRecord, TurnRecord
from tao_dynamo.errors import StackError, TaoError
from tool_hooks.call import EventSink, tool_call

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.traces import RecordedTurn, Session, ToolCall

Closing: TypeAlias = Literal["mark", "request", "never"]
"""How a session's end is told: its last turn bears the mark, a request of its own does, or nothing does."""

_TOOL_EVENTS_A_CALL = 2
"""A start and an end; a replayed tool reports no progress."""


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Extra(msgspec.Struct):
    completion_token_ids: list[int] = []


class _Choice(msgspec.Struct):
    text: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    nvext: _Extra | None = None
    error: msgspec.Raw | None = None


_decode = msgspec.json.Decoder(_Chunk).decode


@dataclass(frozen=True, slots=True)
class Ask:
    """How to ask the frontend: where, for which model, how long to wait for one turn (seconds)."""

    target: Target
    model: str
    timeout_s: float
    vocabulary: tuple[int, int]


@dataclass(slots=True)
class Tally:
    """What all agents of a replay have done so far; the progress display reads it."""

    turns: list[TurnRecord]
    sessions: list[SessionRecord]
    asking: int = 0
    in_tools: int = 0
    tool_events: int = 0
    tool_seconds: float = 0.0
    inexact: int = 0


class Agent:
    """Replays sessions, one at a time.

    Args:
        ask: how to reach the frontend.
        tally: where results go.
        time_scale: recorded tool and think times are multiplied by this.
        run_id: put before every session id, so that runs against one graph do not meet.
        sink: where tool events go; None for no events.
        heard: called after each turn.
        closing: how a session's end is told.
    """

    def __init__(
        self,
        ask: Ask,
        tally: Tally,
        *,
        time_scale: float,
        run_id: str,
        sink: EventSink | None,
        heard: Callable[[], None] = lambda: None,
        closing: Closing = "mark",
    ) -> None:
        self._ask = ask
        self._tally = tally
        self._time_scale = time_scale
        self._run_id = run_id
        self._sink = sink
        self._heard = heard
        self._closing = closing

    async def run(self, session: Session) -> None:
        """Replay a session; a failed turn ends it, as it would end an agent's run."""
        name = f"{self._run_id}-{session.session_id}"
        talk = Conversation(session, self._ask.vocabulary, salt=self._run_id)
        last = len(session.turns) - 1
        started = time.perf_counter()
        done = False
        try:
            for i, turn in enumerate(session.turns):
                await asyncio.sleep(turn.think_s * self._time_scale)
                if i == 0:
                    started = time.perf_counter()
                record = await self._turn(name, talk, i, turn, final=i == last and self._closing == "mark")
                self._tally.turns.append(record)
                self._heard()
                if record.error is not None:
                    return
                if i < last and turn.tool is not None:
                    await self._tool(name, turn.tool)
            done = True
        finally:
            self._tally.sessions.append(SessionRecord(name, started, time.perf_counter(), done))
            if self._closing == "request":
                await self._close(name)

    async def _close(self, name: str) -> None:
        """Tell the session's end by a request that asks for nothing and is not counted."""
        body = self._body(b"[%d]" % self._ask.vocabulary[0], 1)
        headers = {"x-dynamo-session-id": name, "x-dynamo-session-final": "true"}
        with contextlib.suppress(TaoError, asyncio.TimeoutError):
            await asyncio.wait_for(self._read(body, headers, [], []), self._ask.timeout_s)

    async def _turn(self, name: str, talk: Conversation, index: int, turn: RecordedTurn, *, final: bool) -> TurnRecord:
        body = self._body(talk.prompt(index), turn.output_tokens)
        headers = {"x-dynamo-session-id": name}
        if final:
            headers["x-dynamo-session-final"] = "true"
        answer: list[int] = []
        usage: list[_Usage] = []
        sent = first = time.perf_counter()
        error: str | None = None
        self._tally.asking += 1
        try:
            reading = self._read(body, headers, answer, usage)
            first = await asyncio.wait_for(reading, self._ask.timeout_s)
        except asyncio.TimeoutError:
            error = f"no complete answer within {self._ask.timeout_s:g} s"
        except TaoError as problem:
            error = str(problem)
        finally:
            self._tally.asking -= 1
        ended = time.perf_counter()
        count = usage[-1].completion_tokens if usage else len(answer)
        if error is None and count < 1:
            error = "an answer without tokens"
        if error is None and not talk.answered(index, answer, count):
            self._tally.inexact += 1
        details = usage[-1].prompt_tokens_details if usage else None
        return TurnRecord(
            session_id=name,
            index=index,
            sent_s=sent,
            first_s=first,
            ended_s=ended,
            prompt_tokens=usage[-1].prompt_tokens if usage else turn.prompt_tokens,
            output_tokens=count,
            cached_tokens=details.cached_tokens if details else None,
            error=error,
        )

    async def _read(self, body: bytes, headers: dict[str, str], answer: list[int], usage: list[_Usage]) -> float:
        """Read one answer; returns the time of its first token."""
        first: float | None = None
        async with contextlib.aclosing(events(self._ask.target, body, headers)) as stream:
            async for payload in stream:
                if payload == b"[DONE]":
                    break
                try:
                    chunk = _decode(payload)
                except msgspec.MsgspecError as error:
                    raise StackError(f"unreadable event {payload[:80]!r}: {error}") from error
                if chunk.error is not None:
                    raise StackError(f"the stream ended in an error: {bytes(chunk.error)[:300].decode()}")
                ids = chunk.nvext.completion_token_ids if chunk.nvext else []
                answer.extend(ids)
                if first is None and (ids or any(choice.text for choice in chunk.choices)):
                    first = time.perf_counter()
                if chunk.usage is not None:
                    usage.append(chunk.usage)
        return time.perf_counter() if first is None else first

    def _body(self, prompt: bytes, output_tokens: int) -> bytes:
        rest = msgspec.json.encode(
            {
                "model": self._ask.model,
                "max_tokens": output_tokens,
                "min_tokens": output_tokens,
                "ignore_eos": True,
                "temperature": 0.0,
                "stream": True,
                "stream_options": {"include_usage": True},
                "nvext": {"extra_fields": ["completion_token_ids"]},
            }
        )
        return rest[:-1] + b',"prompt":' + prompt + b"}"

    async def _tool(self, name: str, tool: ToolCall) -> None:
        seconds = tool.duration_s * self._time_scale
        self._tally.in_tools += 1
        self._tally.tool_seconds += seconds
        try:
            if self._sink is None:
                await asyncio.sleep(seconds)
                return
            self._tally.tool_events += _TOOL_EVENTS_A_CALL
            # A command's text may tell its time (`sleep 5`), which a scaled call does not take.
            command = tool.command if self._time_scale == 1 else None
            key = _key(tool) if command is None else None
            async with tool_call(tool.name, session_id=name, tool_key=key, command=command, publisher=self._sink):
                await asyncio.sleep(seconds)
        finally:
            self._tally.in_tools -= 1


def _key(tool: ToolCall) -> str | None:
    """What calls of like duration share, where there is no command to read it from."""
    programs = [name for name in tool.programs if name not in ("cd", "echo")]
    return "+".join(programs[:3]) or None
