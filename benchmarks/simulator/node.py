# SPDX-License-Identifier: Apache-2.0
"""One engine: continuous batching with chunked prefill over a paged KV cache, step by step on virtual time."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from benchmarks.simulator.cache import Chain, PrefixCache

if TYPE_CHECKING:
    from benchmarks.simulator.calendar import Calendar
    from benchmarks.simulator.setups import Setup

QueueOrder = Literal["arrival", "priority", "longest-prefix"]
REPORT_EVERY = 64
"""Decode tokens between two reports to a policy that asked for them."""


@dataclass(slots=True, eq=False)
class Sequence:
    """A request on a node. Times are None until they have happened."""

    request_id: str
    chain: Chain
    prompt: int
    output: int
    arrived: float
    priority: float = 0.0
    reports: bool = False
    started: float | None = None
    first_token: float | None = None
    cached: int | None = None
    generated: int = 0
    computed: int = 0
    joined: int = 0
    order: int = 0
    ready_at: float = 0.0
    """Until then blocks are loaded from the host tier."""
    known: int = 0
    """Tokens to prefill: the prompt, and after a preemption what was generated as well."""

    def __post_init__(self) -> None:
        self.known = self.prompt

    @property
    def shared(self) -> int:
        """Tokens of the prompt that are the harness's."""
        return min(self.chain.shared_tokens, self.prompt)


class Listener(Protocol):
    """Who hears what happens on a node."""

    def first_token(self, node: int, sequence: Sequence) -> None:
        """The prompt is computed."""

    def progress(self, node: int, sequence: Sequence, tokens: int) -> None:
        """``tokens`` have been generated; only for sequences that ``reports``."""

    def finished(self, node: int, sequence: Sequence) -> None:
        """The last token is out."""

    def cache_changed(self, node: int, keys: set[str]) -> None:
        """What is resident of these sessions or shared prompts has changed."""


class Node:
    """One engine.

    Args:
        index: its number.
        setup: sizes and step times.
        calendar: virtual time.
        listener: hears what happens.
        order: which waiting request is admitted first.
    """

    def __init__(
        self, index: int, setup: Setup, calendar: Calendar, listener: Listener, order: QueueOrder = "arrival"
    ) -> None:
        self.index = index
        self.cache = PrefixCache(setup.capacity_tokens, setup.block_size, setup.host_tokens)
        self.preemptions = 0
        self.busy_s = 0.0
        self.prefilled = 0
        self._setup = setup
        self._calendar = calendar
        self._listener = listener
        self._order: QueueOrder = order
        self._waiting: list[Sequence] = []
        self._filling: list[Sequence] = []
        self._decoding: dict[str, Sequence] = {}
        self._marks: list[tuple[int, int, int, Sequence]] = []
        self._clock = 0
        self._context = 0
        self._count = 0
        self._step: _Step | None = None
        self._ending = False

    @property
    def load(self) -> int:
        """Requests on the node, waiting ones included."""
        return len(self._waiting) + len(self._filling) + len(self._decoding)

    def submit(self, sequence: Sequence) -> None:
        """Take a request."""
        self._count += 1
        sequence.order = self._count
        self._waiting.append(sequence)
        self.poke()

    def poke(self) -> None:
        """Something changed: start a step, or end a long run of decode steps at the next step's end."""
        if self._ending:
            return
        if self._step is None:
            self._begin()
        elif self._step.steps > 1:
            self._shorten(self._step)

    # --- steps ------------------------------------------------------------------------------------

    def _begin(self) -> None:
        now = self._calendar.now
        if not self._filling and not self._waiting and not self._decoding:
            return
        chunks = self._schedule(now)
        if not chunks and not self._decoding and not self._filling and self.cache.unpin_all():
            # Nothing runs and what waits has no room: what is pinned must not block the engine for ever.
            chunks = self._schedule(now)
        decodes = len(self._decoding)
        while decodes and not self.cache.grow(decodes, now):
            self._preempt()
            chunks = [(s, n) for s, n in chunks if s in self._filling]
            decodes = len(self._decoding)
        if chunks:
            steps, seconds = 1, self._mixed_s(chunks, decodes)
        elif decodes:
            steps = self._run_length(decodes)
            if steps > 1 and not self.cache.grow((steps - 1) * decodes, now):
                steps = 1
            seconds = self._setup.timing.decode_s(decodes, self._context, steps)
        else:
            return
        step = _Step(now, steps, decodes, chunks)
        self._step = step
        self._calendar.at(now + seconds, lambda: self._end(step))

    def _end(self, step: _Step) -> None:
        if step is not self._step:
            return
        self._step = None
        self._ending = True
        now = self._calendar.now
        self.busy_s += now - step.started
        self._clock += step.steps
        self._context += step.steps * step.decodes
        done: list[Sequence] = []
        while self._marks and self._marks[0][0] <= self._clock:
            _, _, joined, sequence = heapq.heappop(self._marks)
            if sequence.request_id not in self._decoding or sequence.joined != joined:
                continue  # it was preempted meanwhile
            generated = sequence.generated + self._clock - sequence.joined
            if generated >= sequence.output:
                done.append(sequence)
            else:
                self._listener.progress(self.index, sequence, generated)
                self._mark(sequence, generated)
        first: list[Sequence] = []
        for sequence, tokens in step.chunks:
            sequence.computed += tokens
            self.prefilled += tokens
            if sequence.computed >= sequence.known and sequence in self._filling:
                self._filling.remove(sequence)
                self.cache.touched.add(sequence.chain.session)
                first.append(sequence)
        for sequence in first:
            self._join(sequence, now, done)
        for sequence in done:
            self._leave(sequence)
        self._tell_changes()
        for sequence in done:
            self._listener.finished(self.index, sequence)
        self._ending = False
        self._begin()

    def _shorten(self, step: _Step) -> None:
        """End a run of decode steps after the one that is under way now."""
        timing, now = self._setup.timing, self._calendar.now
        low, high = 1, step.steps
        while low < high:
            middle = (low + high) // 2
            if step.started + timing.decode_s(step.decodes, self._context, middle) >= now:
                high = middle
            else:
                low = middle + 1
        if low == step.steps:
            return
        self.cache.in_use -= (step.steps - low) * step.decodes
        shorter = _Step(step.started, low, step.decodes, [])
        self._step = shorter
        end = step.started + timing.decode_s(step.decodes, self._context, low)
        self._calendar.at(end, lambda: self._end(shorter))

    def _run_length(self, decodes: int) -> int:
        """Decode steps until the next finish or report, as far as there is room."""
        ahead = self._marks[0][0] - self._clock
        return max(1, min(ahead, 1 + self.cache.available // decodes))

    # --- batch ------------------------------------------------------------------------------------

    def _schedule(self, now: float) -> list[tuple[Sequence, int]]:
        """Prompt tokens of this step: running prefills first, then waiting requests while there is room."""
        budget = self._setup.max_batched_tokens - len(self._decoding)
        chunks: list[tuple[Sequence, int]] = []
        for sequence in self._filling:
            tokens = min(budget, sequence.known - sequence.computed)
            if tokens > 0 and sequence.ready_at <= now:
                chunks.append((sequence, tokens))
                budget -= tokens
        while self._waiting and budget > 0 and len(self._filling) + len(self._decoding) < self._setup.max_sequences:
            sequence = self._next()
            grant = self.cache.take(sequence.chain, sequence.known, now)
            if grant is None:
                break
            self._waiting.remove(sequence)
            if sequence.cached is None:
                sequence.cached = grant.cached + grant.loaded
            if sequence.started is None:
                sequence.started = now
            sequence.computed = grant.cached + grant.loaded
            sequence.ready_at = now + grant.loaded / self._setup.host_tokens_per_s
            self._filling.append(sequence)
            if grant.loaded:
                # Blocks come in beside the steps; the prompt goes on when they are there.
                self._calendar.at(sequence.ready_at, self.poke)
                continue
            tokens = min(budget, sequence.known - sequence.computed)
            chunks.append((sequence, tokens))
            budget -= tokens
        return chunks

    def _next(self) -> Sequence:
        if self._order == "arrival" or len(self._waiting) == 1:
            return self._waiting[0]
        if self._order == "priority":
            return min(self._waiting, key=lambda s: (s.priority, s.order))
        return max(self._waiting, key=lambda s: (self.cache.resident(s.chain), -s.order))

    def _mixed_s(self, chunks: list[tuple[Sequence, int]], decodes: int) -> float:
        prefill = sum(tokens for _, tokens in chunks)
        attended = sum(tokens * (s.computed + tokens / 2) for s, tokens in chunks) / prefill
        return self._setup.timing.mixed_s(prefill, int(attended), decodes, self._context)

    def _join(self, sequence: Sequence, now: float, done: list[Sequence]) -> None:
        """A prompt is computed: its next token is out."""
        sequence.generated += 1
        sequence.joined = self._clock
        if sequence.first_token is None:
            sequence.first_token = now
            self._listener.first_token(self.index, sequence)
        self._decoding[sequence.request_id] = sequence
        self._context += sequence.known
        if sequence.generated >= sequence.output:
            done.append(sequence)
        else:
            self._mark(sequence, sequence.generated)

    def _mark(self, sequence: Sequence, generated: int) -> None:
        ahead = sequence.output - generated
        if sequence.reports:
            ahead = min(ahead, REPORT_EVERY)
        heapq.heappush(self._marks, (self._clock + ahead, sequence.order, sequence.joined, sequence))

    def _leave(self, sequence: Sequence) -> None:
        del self._decoding[sequence.request_id]
        grown = self._clock - sequence.joined
        held = sequence.known + grown
        self._context -= held
        sequence.generated += grown
        self.cache.give(sequence.chain, held, held - sequence.shared)

    def _preempt(self) -> None:
        """Throw out the youngest sequence; it will be computed anew, and comes first when there is room again."""
        self.preemptions += 1
        pool = [*self._decoding.values(), *self._filling]
        victim = max(pool, key=lambda s: s.order)
        if victim in self._filling:
            self._filling.remove(victim)
            self.cache.give(victim.chain, victim.computed, victim.known - victim.shared)
        else:
            self._leave(victim)
        victim.computed = 0
        victim.known = victim.prompt + victim.generated
        self._waiting.insert(0, victim)

    def _tell_changes(self) -> None:
        if self.cache.touched:
            keys, self.cache.touched = self.cache.touched, set()
            self._listener.cache_changed(self.index, keys)


@dataclass(slots=True, eq=False)
class _Step:
    """One engine step with prompt tokens, or a run of decode steps."""

    started: float
    steps: int
    decodes: int
    chunks: list[tuple[Sequence, int]]
