# SPDX-License-Identifier: Apache-2.0
"""Policies behind one interface, by name. Each says in its docstring: rule, source, parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.policies.agentix import LeastAttainedService
from benchmarks.policies.cache_aware import CacheAware
from benchmarks.policies.continuum import Continuum
from benchmarks.policies.dynamo_kv import DynamoKv
from benchmarks.policies.longest_prefix import LongestPrefix
from benchmarks.policies.round_robin import RoundRobin
from benchmarks.policies.tao import ABLATIONS, Tao
from benchmarks.policies.thunderagent import ThunderAgent
from benchmarks.policies.tokencake import TokenCake
from tao_dynamo.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.policies.base import Router, Site

POLICIES: dict[str, Callable[[Site, int], Router]] = {
    "dynamo-kv": lambda site, _: DynamoKv(site),
    "round-robin": lambda site, _: RoundRobin(site),
    "cache-aware": lambda site, _: CacheAware(site),
    "longest-prefix": lambda site, _: LongestPrefix(site),
    "thunderagent": lambda site, _: ThunderAgent(site),
    "continuum": lambda site, _: Continuum(site),
    "agentix-las": lambda site, _: LeastAttainedService(site),
    "tokencake": lambda site, _: TokenCake(site),
}
"""Baselines. TAO and its ablations are made by name in :func:`named`."""


def names() -> list[str]:
    """Every policy there is, TAO first."""
    return [*ABLATIONS, *POLICIES]


def named(name: str) -> Callable[[Site, int], Router]:
    """What makes the policy of this name for a site and a seed.

    Raises:
        ConfigError: there is none.
    """
    if name in ABLATIONS:
        return lambda site, seed: Tao(site, ABLATIONS[name], seed)
    if name in POLICIES:
        return POLICIES[name]
    raise ConfigError("--policy", name, f"one of {', '.join(names())}")
