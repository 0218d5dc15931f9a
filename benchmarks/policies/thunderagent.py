# SPDX-License-Identifier: Apache-2.0
"""ThunderAgent: pause and resume of whole programs at tool boundaries.

Rule: every 5 s, first resume paused sessions, then pause. A node over 0.95 of its room is brought to 0.80 by pausing
sessions in a tool call, smallest first; if that is not enough its running ones are marked and pause when their
turn ends. Resuming fills nodes up to 0.85, best fit decreasing of a set picked by group (waiting with a turn, new,
in a tool) and then smallest first. A new session goes to the least used node with room for it, and queues behind
paused ones. Sessions without room for 1,800 s are let through.
Source: ``dynamo.thunderagent_router`` of ai-dynamo 1.6.1 (``router.py``, ``program_state.py``), its defaults.
Parameters: pause 0.95, target 0.80, hysteresis 0.10, tick 5 s, 100 tokens a program beside its context.
Not modelled: its priority jumps (soft demotion, resume boost), which reach the engine's queue only under priority
scheduling.
Good when: there are far more sessions than room and rebuilding a cache is dear. It pauses and resumes only at its
ticks and by size, so a big session may wait until it is forced through.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.policies.base import Action, Plain, Request, Send, Site, Wake

if TYPE_CHECKING:
    from benchmarks.metrics import Figures

PAUSE, TARGET, HYSTERESIS = 0.95, 0.80, 0.10
TICK_S = 5.0
BUFFER = 100
FORCED_S = 1800.0


@dataclass(slots=True, eq=False)
class _Program:
    name: str
    tokens: int = 0
    acting: bool = False
    paused_since: float | None = None
    node: int | None = None
    steps: int = 0
    marked: bool = False
    waiting: list[tuple[Request, float]] = field(default_factory=list)


class ThunderAgent(Plain):
    """See the module."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.reports = True
        self._programs: dict[str, _Program] = {}
        self._paused: OrderedDict[str, _Program] = OrderedDict()
        self._live: dict[str, tuple[_Program | None, Request]] = {}
        self._ticking = False
        self._pauses = 0
        self._paused_s: list[float] = []

    def turn_arrived(self, request: Request, t: float) -> list[Action]:
        """Admit, or queue until a tick resumes it."""
        tick: list[Action] = []
        if not self._ticking:
            self._ticking = True
            tick = [Wake(t + TICK_S)]
        if request.session is None:
            self._live[request.request_id] = (None, request)
            return [Send(request.request_id, min(self.nodes, key=self.site.load)), *tick]
        new = request.session not in self._programs
        program = self._programs.setdefault(request.session, _Program(request.session))
        self._live[request.request_id] = (program, request)
        program.steps += 1
        program.tokens = request.prompt
        program.acting = False
        if program.paused_since is not None:
            program.waiting.append((request, t))
            return tick
        if program.node is None:
            program.node = self._place(program, behind_paused=new)
            if program.node is None and new:
                program.waiting.append((request, t))
                self._pause(program, t)
                return tick
        node = program.node
        if node is None:
            node = min(self.nodes, key=self.site.load)
        return [Send(request.request_id, node), *tick]

    def progress(self, request_id: str, tokens: int, t: float) -> list[Action]:
        """The program grows while it answers."""
        program, request = self._live[request_id]
        if program is not None:
            program.tokens = request.prompt + tokens
        return []

    def turn_ended(self, request_id: str, *, cached: int, output: int, t: float) -> list[Action]:
        """It acts now; a marked one pauses."""
        program, request = self._live.pop(request_id)
        if program is None:
            return []
        program.tokens = request.prompt + output
        program.acting = True
        if program.marked:
            program.marked = False
            self._pause(program, t)
        return []

    def session_ended(self, session: str, t: float) -> list[Action]:
        """Forget."""
        self._programs.pop(session, None)
        self._paused.pop(session, None)
        return []

    def time_passes(self, t: float) -> list[Action]:
        """The tick: resume, then pause."""
        used = self._used()
        out = self._resume(used, t)
        for node in self.nodes:
            self._relieve(node, used, t)
        self._ticking = bool(self._programs)
        return [*out, Wake(t + TICK_S)] if self._ticking else out

    def figures(self) -> Figures:
        """Pauses and their waits."""
        waits = self._paused_s
        return super().figures() | {
            "pauses": self._pauses,
            "restarts": len(waits),
            "pause_wait_mean_s": sum(waits) / len(waits) if waits else None,
        }

    def _used(self) -> list[int]:
        used = [0] * len(self.nodes)
        for program in self._programs.values():
            if program.node is not None and program.paused_since is None:
                used[program.node] += program.tokens + BUFFER
        return used

    def _place(self, program: _Program, *, behind_paused: bool) -> int | None:
        if behind_paused and self._paused:
            return None
        used = self._used()
        room = self.site.setup.capacity_tokens
        fitting = [n for n in self.nodes if room - used[n] >= program.tokens + BUFFER]
        return min(fitting, key=lambda n: used[n]) if fitting else None

    def _pause(self, program: _Program, t: float) -> None:
        program.paused_since = t
        program.node = None
        self._paused[program.name] = program
        self._pauses += 1

    def _relieve(self, node: int, used: list[int], t: float) -> None:
        room = self.site.setup.capacity_tokens
        if used[node] <= room * PAUSE:
            return
        here = [p for p in self._programs.values() if p.node == node and p.paused_since is None]
        here.sort(key=lambda p: p.tokens)
        for program in [p for p in here if p.acting]:
            if used[node] <= room * TARGET:
                return
            used[node] -= program.tokens + BUFFER
            self._pause(program, t)
        if used[node] > room * TARGET:
            for program in here:
                if not program.acting:
                    program.marked = True

    def _resume(self, used: list[int], t: float) -> list[Action]:
        out: list[Action] = []
        for program in [p for p in self._paused.values() if p.waiting and t - p.waiting[0][1] >= FORCED_S]:
            out += self._let_go(program, min(self.nodes, key=lambda n: used[n]), used, t)
        room = self.site.setup.capacity_tokens * (PAUSE - HYSTERESIS)
        left = {n: int(room) - used[n] for n in self.nodes if room - used[n] > BUFFER}
        budget = sum(left.values())
        chosen: list[_Program] = []
        for program in sorted(self._paused.values(), key=lambda p: (_group(p), p.tokens)):
            if program.tokens + BUFFER <= budget:
                budget -= program.tokens + BUFFER
                chosen.append(program)
        chosen.sort(key=lambda p: -p.tokens)
        for program in chosen:
            if not left:
                break
            node = max(left, key=lambda n: left[n])
            if program.tokens + BUFFER > left[node]:
                continue
            left[node] -= program.tokens + BUFFER
            if left[node] <= BUFFER:
                del left[node]
            out += self._let_go(program, node, used, t)
        return out

    def _let_go(self, program: _Program, node: int, used: list[int], t: float) -> list[Action]:
        if program.paused_since is not None:
            self._paused_s.append(t - program.paused_since)
        program.paused_since = None
        program.node = node
        self._paused.pop(program.name, None)
        used[node] += program.tokens + BUFFER
        sends: list[Action] = [Send(request.request_id, node) for request, _ in program.waiting]
        program.waiting.clear()
        return sends


def _group(program: _Program) -> int:
    if program.steps <= 1:
        return 1
    return 2 if program.acting else 0
