# SPDX-License-Identifier: Apache-2.0
"""Every policy through the whole simulated world, and the rules of each by themselves."""

from __future__ import annotations

import pytest

from benchmarks.policies import named, names
from benchmarks.policies.base import Pin, Request, Send
from benchmarks.policies.cache_aware import CacheAware
from benchmarks.policies.continuum import Continuum
from benchmarks.policies.dynamo_kv import DynamoKv
from benchmarks.policies.longest_prefix import LongestPrefix
from benchmarks.policies.tao import Credit
from benchmarks.policies.tao_signals import Oracle
from benchmarks.policies.thunderagent import ThunderAgent
from benchmarks.simulator.cache import Chain
from benchmarks.simulator.setups import mocker
from benchmarks.simulator.world import World
from benchmarks.traces import EXTRACT, load
from benchmarks.workload import choose
from kv_events.types import NodeId
from tao_dynamo.errors import ConfigError

LOAD = choose(load(EXTRACT), count=24, seed=0, max_turns=8)


class Given:
    """A site with the overlap and the loads that a test gives it."""

    def __init__(self, overlap: dict[int, int] | None = None, loads: tuple[int, ...] = (0, 0)) -> None:
        self.setup = mocker(len(loads), 4096)
        self._overlap = overlap or {}
        self._loads = loads

    def overlap(self, chain: Chain) -> dict[int, int]:
        return self._overlap

    def load(self, node: int) -> int:
        return self._loads[node]

    def tool(self, session: str) -> tuple[float, float] | None:
        return {"a": (10.0, 14.0)}.get(session)


def test_the_oracle_knows_when_tools_return() -> None:
    oracle = Oracle(Given(), horizon_s=1.0)
    assert (oracle.running("a"), oracle.running("b")) == (True, False)
    assert [oracle.ready("a", t) for t in (12.0, 13.0)] == [False, True]
    assert oracle.ready("b", 12.0)
    assert oracle.next_change("a", 12.0) == 13.0
    assert oracle.next_change("a", 13.5) is oracle.next_change("b", 12.0) is None
    left = oracle.remaining("a", 12.0)
    assert left is not None
    assert (left.seconds, left.elapsed_s) == (2.0, 2.0)
    assert oracle.remaining("b", 12.0) is None


def request(name: str = "s", prompt: int = 1600, number: int = 0) -> Request:
    return Request(f"{name}/{number}", name, Chain(name, "shared/", 0), prompt, False)


def sent(actions: object) -> list[int]:
    assert isinstance(actions, list)
    return [action.node for action in actions if isinstance(action, Send)]


@pytest.mark.parametrize("name", names())
def test_every_policy_serves_every_turn_and_repeats_itself(name: str) -> None:
    # Room for about half of the sessions at once.
    def run() -> World:
        world = World(mocker(2, 3072, speedup=4), named(name), LOAD.sessions, concurrency=16, seed=3)
        world.run()
        return world

    one, two = run(), run()
    assert len(one.sessions) == 24
    assert all(session.done for session in one.sessions)
    assert len(one.turns) == LOAD.turns
    assert {turn.error for turn in one.turns} == {None}
    assert all(node.load == 0 and node.cache.in_use == 0 for node in one.nodes)
    assert one.turns == two.turns


def test_tao_pauses_and_restarts_everybody() -> None:
    world = World(mocker(2, 3072, speedup=4), named("tao"), LOAD.sessions, concurrency=16, seed=3)
    result = world.run()
    assert isinstance(result["pauses"], int)
    assert result["pauses"] > 0
    assert result["solves"]
    assert world.run()["sessions_left"] == 0


def test_dynamo_kv_weighs_cached_blocks_against_load() -> None:
    policy = DynamoKv(Given({1: 800}))
    assert sent(policy.turn_arrived(request("a"), 0.0)) == [1]
    # Node 1 now holds 100 blocks and prefills 50: for b, without overlap, node 0 is cheaper.
    policy.site = Given()
    assert sent(policy.turn_arrived(request("b"), 0.0)) == [0]
    policy.first_token("a/0", 1.0)
    policy.turn_ended("b/0", cached=0, output=1, t=1.0)
    assert sent(policy.turn_arrived(request("c"), 1.0)) == [0]


def test_longest_prefix_takes_the_prefix_then_the_idle_node() -> None:
    assert sent(LongestPrefix(Given({1: 16}, (0, 9))).turn_arrived(request(), 0.0)) == [1]
    assert sent(LongestPrefix(Given({}, (3, 2))).turn_arrived(request(), 0.0)) == [1]


def test_cache_aware_follows_its_tree_until_loads_are_uneven() -> None:
    policy = CacheAware(Given())
    first = sent(policy.turn_arrived(request("a"), 0.0))
    assert sent(policy.turn_arrived(request("b"), 0.0)) != first
    assert sent(policy.turn_arrived(request("a", number=1), 0.0)) == first
    uneven = (200, 10) if first == [0] else (10, 200)
    policy.site = Given(loads=uneven)
    assert sent(policy.turn_arrived(request("a", number=2), 0.0)) != first


def test_continuum_keeps_short_tools_and_not_long_ones() -> None:
    policy = Continuum(Given())
    for key, seconds in (("quick", 0.2), ("slow", 90.0)):
        for i in range(5):
            policy._tools.started(f"{key}{i}", key)
            policy.tool_ended("s", f"{key}{i}", seconds, 0.0)
    policy.turn_arrived(request("s", prompt=60_000), 0.0)
    policy.turn_ended("s/0", cached=0, output=100, t=10.0)
    assert policy.tool_started("s", "q", "quick", 10.0) == [Pin("s", 0, 10.2)]
    assert policy.tool_started("s", "l", "slow", 10.0) == []


def test_thunderagent_pauses_small_acting_programs_and_resumes_them() -> None:
    site = Given(loads=(0,))  # one node of 65,536 tokens
    policy = ThunderAgent(site)
    sizes = {"big": 40_000, "small": 20_000}
    for name, size in sizes.items():
        assert sent(policy.turn_arrived(request(name, size), 0.0)) == [0]
    policy.turn_ended("small/0", cached=0, output=4000, t=1.0)
    assert sent(policy.turn_arrived(request("new", 10_000), 2.0)) == []  # no room: it queues
    policy.time_passes(5.0)  # over 0.95: small, which is acting, is paused
    assert policy.figures()["pauses"] == 2
    assert sent(policy.turn_arrived(request("small", 24_000, 1), 6.0)) == []
    policy.turn_ended("big/0", cached=0, output=10, t=7.0)
    policy.session_ended("big", 7.0)
    assert sent(policy.time_passes(10.0)) == [0, 0]
    assert policy.figures()["pause_wait_mean_s"] == pytest.approx((10 - 2 + 10 - 5) / 2)


def test_credit_decays_and_follows_evictions() -> None:
    node = NodeId(1, 0)
    credit = Credit(10.0, on=True)
    credit.shared_by("s", "shared/h", 100)
    credit.changed(node, {"shared/h": 100, "s": 300}, 0.0)
    assert credit.resident("s") == {node: 400}
    assert credit.credits("s", 10.0) == {node: 200}
    credit.changed(node, {"s": 100}, 10.0)  # an eviction is no confirmation
    assert credit.credits("s", 10.0) == {node: 100}
    credit.ran_on("s", node, 0, 10.0)
    assert credit.credits("s", 10.0) == {node: 200}
    credit.forget("s")
    assert credit.credits("s", 10.0) == {}
    assert Credit(10.0, on=False).credits("s", 0.0) == {}


def test_the_host_tier_counts_where_it_goes_on() -> None:
    one, two = NodeId(1, 0), NodeId(2, 0)
    credit = Credit(10.0, on=True, host_worth=0.5)
    credit.shared_by("s", "shared/h", 100)
    credit.changed(one, {"shared/h": 100, "s": 200}, 0.0)
    credit.host_changed(one, {"s": 300})
    credit.host_changed(two, {"s": 300})
    assert credit.resident("s") == {one: 350, two: 200}
    credit.host_changed(two, {"s": 0})
    assert credit.resident("s") == {one: 350}


def test_an_unknown_policy() -> None:
    with pytest.raises(ConfigError, match="--policy"):
        named("best")
