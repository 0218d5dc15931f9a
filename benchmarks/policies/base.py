# SPDX-License-Identifier: Apache-2.0
"""The seam between the simulated world and a policy: a policy hears events and answers with actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.metrics import Figures
    from benchmarks.simulator.cache import Chain
    from benchmarks.simulator.node import QueueOrder
    from benchmarks.simulator.setups import Setup


@dataclass(frozen=True, slots=True)
class Request:
    """A turn as the router sees it. ``session`` is None for a request without a session."""

    request_id: str
    session: str | None
    chain: Chain
    prompt: int
    final: bool


@dataclass(frozen=True, slots=True)
class Send:
    """Pass the request to a node, now. A smaller ``priority`` is served first where the engine heeds it."""

    request_id: str
    node: int
    priority: float = 0.0


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer the request with an error."""

    request_id: str
    why: str


@dataclass(frozen=True, slots=True)
class Wake:
    """Call :meth:`Router.time_passes` at this time."""

    at: float


@dataclass(frozen=True, slots=True)
class Pin:
    """Ask the engine to keep a session's idle blocks until this time. Stock engines have no such call."""

    session: str
    node: int
    until: float


@dataclass(frozen=True, slots=True)
class Demote:
    """Ask the engine to evict a session's idle blocks before all others. Stock engines have no such call."""

    session: str
    node: int


Action: TypeAlias = Send | Refuse | Wake | Pin | Demote


class Site(Protocol):
    """What a policy may look at: the cluster's sizes and, as old as the KV events' lag, its caches."""

    setup: Setup

    def overlap(self, chain: Chain) -> Mapping[int, int]:
        """Tokens of the chain on each node's device; nodes without any are absent."""

    def load(self, node: int) -> int:
        """Requests sent to the node and not yet ended."""

    def tool(self, session: str) -> tuple[float, float] | None:
        """When the session's tool began and when it will return; None while none runs. For oracles only."""


class Router(Protocol):
    """A policy. Every method gets the time in seconds and returns what is to be done."""

    queue_order: QueueOrder
    """How engines order their waiting requests under this policy."""

    reports: bool
    """Whether :meth:`progress` is wanted."""

    def turn_arrived(self, request: Request, t: float) -> list[Action]:
        """A turn has come in."""

    def first_token(self, request_id: str, t: float) -> list[Action]:
        """A turn's prompt is computed."""

    def progress(self, request_id: str, tokens: int, t: float) -> list[Action]:
        """``tokens`` of the answer are out."""

    def turn_ended(self, request_id: str, *, cached: int, output: int, t: float) -> list[Action]:
        """A turn is over."""

    def tool_started(self, session: str, call_id: str, key: str | None, t: float) -> list[Action]:
        """The session's tool runs."""

    def tool_ended(self, session: str, call_id: str, duration_s: float, t: float) -> list[Action]:
        """The session's tool has returned; its next turn follows."""

    def session_ended(self, session: str, t: float) -> list[Action]:
        """The session is over."""

    def cache_changed(self, node: int, changes: Mapping[str, int], t: float) -> list[Action]:
        """Tokens of their own that sessions and shared prompts (by key) have on a node now."""

    def host_changed(self, node: int, changes: Mapping[str, int]) -> None:
        """Likewise with those in the node's host tier; 0 where it adds nothing. Comes before the other."""

    def time_passes(self, t: float) -> list[Action]:
        """A time that was asked for has come."""

    def figures(self) -> Figures:
        """The router's own figures: the keys of ``router_status``."""


class Plain:
    """Hears everything and does nothing: the base of policies that only choose a node for each turn."""

    queue_order: QueueOrder = "arrival"
    reports = False

    def __init__(self, site: Site) -> None:
        self.site = site
        self.nodes = range(site.setup.nodes)

    def turn_arrived(self, request: Request, t: float) -> list[Action]:
        """Send it where :meth:`choose` says."""
        return [Send(request.request_id, self.choose(request, t))]

    def choose(self, request: Request, t: float) -> int:
        """The node for a turn: the one with the fewest requests."""
        return min(self.nodes, key=self.site.load)

    def first_token(self, request_id: str, t: float) -> list[Action]:
        """Nothing."""
        return []

    def progress(self, request_id: str, tokens: int, t: float) -> list[Action]:
        """Nothing."""
        return []

    def turn_ended(self, request_id: str, *, cached: int, output: int, t: float) -> list[Action]:
        """Nothing."""
        return []

    def tool_started(self, session: str, call_id: str, key: str | None, t: float) -> list[Action]:
        """Nothing."""
        return []

    def tool_ended(self, session: str, call_id: str, duration_s: float, t: float) -> list[Action]:
        """Nothing."""
        return []

    def session_ended(self, session: str, t: float) -> list[Action]:
        """Nothing."""
        return []

    def cache_changed(self, node: int, changes: Mapping[str, int], t: float) -> list[Action]:
        """Nothing."""
        return []

    def host_changed(self, node: int, changes: Mapping[str, int]) -> None:
        """Nothing."""

    def time_passes(self, t: float) -> list[Action]:
        """Nothing."""
        return []

    def figures(self) -> Figures:
        """Nobody is paused and nothing is solved."""
        return {
            "pauses": 0,
            "restarts": 0,
            "pause_wait_mean_s": None,
            "solves": 0,
            "solve_mean_ms": None,
            "optimal_share": None,
        }
