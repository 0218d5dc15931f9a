# SPDX-License-Identifier: Apache-2.0
"""Every constant of the policy, in one frozen value. Times in seconds, room in tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

PauseOrder = Literal["value", "oldest-first", "smallest-first"]
Candidates = Literal["ready", "all"]
NeverFits = Literal["refuse", "alone"]
HostTier = Literal["auto", "on", "off"]

REFERENCE_REFILL_S = 26.0
"""T* of the machine on which 3 s was found to be the right threshold: a dense 32B on two H100s (DESIGN §4.5)."""
PART_HALF_S = 14.0
"""T* at which a session in a long tool call counts with half its footprint."""
UNKNOWN_PART = 0.7
"""That part while T* is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The policy in force. The defaults are the mode that measures best; see :data:`PAPER` for the paper's."""

    name: str = "default"

    # Value (DESIGN §4.1, §4.2)
    credit_half_life_s: float = 10.0
    stale_discount: float = 0.5
    horizon_s: float = 1.0
    refresh_s: float = 30.0
    default_tool_s: float = 5.0
    predictor: Literal["default", "paper"] = "default"

    # Which paused sessions may be placed before their next turn arrives: those about to return, or all.
    candidates: Candidates = "ready"
    early_grace_s: float = 5.0

    # Marks, as shares of a node's capacity (DESIGN §4.5)
    admission_mark: float = 0.85
    pause_mark: float = 0.95
    target_mark: float = 0.80
    pause_order: PauseOrder = "value"
    long_tool_factor: float | None = None
    long_tool_s: float = 3.0
    prefill_rate: float | None = None
    host_tier: HostTier = "auto"
    host_credit: float = 1.0
    crowded_at: float = 1.0
    work_conserving: bool = True

    # Nobody starves (DESIGN §4.6)
    waiting_bound_s: float = 60.0
    overdue_share: float = 0.05
    never_fits: NeverFits = "refuse"

    # Shared prefixes (DESIGN §4.7) and balance between equal nodes (DESIGN §4.3)
    shared_prefixes: bool = True
    balance: bool = True

    # Solving
    solver: str = "auto"
    quantum: int | None = None
    solve_interval_s: float = 0.005
    solve_budget_ms: float = 50.0
    solve_timeout_s: float = 5.0
    max_candidates: int = 1024

    # Bounds of the tables
    max_sessions: int = 100_000
    max_waiting: int = 10_000
    session_expiry_s: float = 1800.0
    idle_release_s: float = 30.0
    default_output_tokens: int = 256

    def long_tool_part(self, refill_s: float | None) -> float:
        """Part of its footprint that a session in a long tool call counts with.

        The sooner a node rebuilds its cache, the less it costs to give the room of such a session away: T*/(T* + 14 s)
        fits what measured best on three machines (docs/scheduler.md).

        Args:
            refill_s: T* of the node, None while nobody knows it.
        """
        if self.long_tool_factor is not None:
            return self.long_tool_factor
        return UNKNOWN_PART if refill_s is None else refill_s / (refill_s + PART_HALF_S)

    def long_tool_threshold_s(self, refill_s: float | None) -> float:
        """Remaining time, in seconds, from which a tool counts as long: :attr:`long_tool_s`, scaled by T* to 26 s.

        Args:
            refill_s: T* of the node (DESIGN §4.5), None while nobody knows it.
        """
        return self.long_tool_s if refill_s is None else self.long_tool_s * refill_s / REFERENCE_REFILL_S


DEFAULT = Policy()

PAPER = replace(
    DEFAULT,
    name="paper",
    predictor="paper",
    candidates="all",
    admission_mark=0.95,
    long_tool_factor=1.0,
    host_tier="off",
    host_credit=0.0,
    crowded_at=0.0,
    work_conserving=False,
    overdue_share=1.0,
    shared_prefixes=False,
    balance=False,
    idle_release_s=1800.0,
)
"""The paper's own policy: the triplet alone, one mark, a strict bound, the simple sum (DESIGN §4.8)."""

MODES: dict[str, Policy] = {mode.name: mode for mode in (DEFAULT, PAPER)}
