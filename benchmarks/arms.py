# SPDX-License-Identifier: Apache-2.0
"""The arms of a live comparison: which graph, which options, and how agents end a session there."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
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

    ``router``: options of its router's service. ``tool_events``: whether agents send any. ``closing``: how a
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
_TAO_TIMES = (
    *("credit_half_life_s", "horizon_s", "refresh_s", "default_tool_s", "early_grace_s"),
    *("waiting_bound_s", "idle_release_s"),
)
_THUNDERAGENT_TIMES = {
    "scheduler-interval-seconds": 5.0,
    "resume-timeout-seconds": 1800.0,
    "acting-decay-tau-seconds": 1.0,
}
"""Its defaults in ai-dynamo 1.6.1."""

LIVE_ABLATIONS = {name: variant for name, variant in ABLATIONS.items() if not (variant.oracle or variant.demote)}
"""No router knows the future, and no stock engine can be told what to evict."""

DEFAULT_ARMS = ("tao", *_BASELINES)


def named(name: str) -> Arm:
    """The arm of this policy.

    Raises:
        ConfigError: no graph runs it.
    """
    if name in _BASELINES:
        return _BASELINES[name]
    if name in LIVE_ABLATIONS:
        return _tao(name, ABLATIONS[name])
    raise ConfigError("--policy", name, f"one of {', '.join((*LIVE_ABLATIONS, *_BASELINES))}")


def at_speed(arm: Arm, speed: float, refill_s: float) -> Arm:
    """The arm with its router's time constants divided by ``speed``, as those of tools and engines are.

    Args:
        refill_s: T* of a node at the recorded speed; what TAO makes of it must not change with the speed.
    """
    if speed == 1:
        return arm
    if arm.policy == "thunderagent":
        return replace(arm, router={key: value / speed for key, value in _THUNDERAGENT_TIMES.items()})
    if arm.policy not in ABLATIONS:
        return arm
    policy = ABLATIONS[arm.policy].policy
    times = {_flag(name): getattr(policy, name) / speed for name in _TAO_TIMES}
    part = policy.long_tool_part(refill_s)
    return replace(arm, router={**times, _flag("long_tool_factor"): part, **_quickened(arm.router, speed)})


def _quickened(router: Mapping[str, Any], speed: float) -> dict[str, Any]:
    times = {_flag(name) for name in _TAO_TIMES}
    return {key: value / speed if key in times else value for key, value in router.items()}


def _flag(name: str) -> str:
    return "tao-" + name.removesuffix("_s").replace("_", "-")


def _tao(name: str, variant: Variant) -> Arm:
    mode = MODES.get(variant.policy.name, DEFAULT)
    flags: dict[str, Any] = {} if mode is DEFAULT else {"tao-policy": mode.name}
    for item in fields(mode):
        value = getattr(variant.policy, item.name)
        if value != getattr(mode, item.name):
            flags[_flag(item.name)] = value
    if not variant.credit:
        flags["tao-credit-half-life"] = _NO_CREDIT_S
    return Arm(name, "graphs/tao_agg:Frontend", flags, tool_events=variant.readiness)
