# SPDX-License-Identifier: Apache-2.0
"""The arms of a live comparison: which graph, which options, and how agents end a session there."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from benchmarks.policies.tao import ABLATIONS, Variant
from tao_dynamo.core.policy import DEFAULT, MODES
from tao_dynamo.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.agent import Closing

_NO_CREDIT_S = 0.001
"""A half-life that leaves no credit: the live router has no switch for that ablation."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One policy as a running graph.

    ``router``: options of the ``TaoRouter`` service. ``tool_events``: whether agents send any. ``closing``: how a
    session's end is told; ``dynamo.thunderagent_router`` answers a request that is marked final without asking a
    worker, so there the mark goes on a request of its own after the last turn.
    """

    policy: str
    graph: str
    router: Mapping[str, Any] = field(default_factory=dict)
    tool_events: bool = True
    closing: Closing = "mark"


_BASELINES: dict[str, Arm] = {
    "dynamo-kv": Arm("dynamo-kv", "graphs/kv_agg:Frontend"),
    "round-robin": Arm("round-robin", "graphs/round_robin_agg:Frontend"),
    "thunderagent": Arm("thunderagent", "graphs/thunderagent_agg:Frontend", closing="request"),
}
DEFAULT_ARMS = ("tao", *_BASELINES)


def named(name: str) -> Arm:
    """The arm of this policy.

    Raises:
        ConfigError: no graph runs it.
    """
    if name in _BASELINES:
        return _BASELINES[name]
    if name in ABLATIONS:
        return _tao(name, ABLATIONS[name])
    raise ConfigError("--policy", name, f"one of {', '.join((*ABLATIONS, *_BASELINES))}")


def _tao(name: str, variant: Variant) -> Arm:
    mode = MODES.get(variant.policy.name, DEFAULT)
    flags: dict[str, Any] = {} if mode is DEFAULT else {"tao-policy": mode.name}
    for item in fields(mode):
        value = getattr(variant.policy, item.name)
        if value != getattr(mode, item.name):
            flags["tao-" + item.name.removesuffix("_s").replace("_", "-")] = value
    if not variant.credit:
        flags["tao-credit-half-life"] = _NO_CREDIT_S
    return Arm(name, "graphs/tao_agg:Frontend", flags, tool_events=variant.readiness)
