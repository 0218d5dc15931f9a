# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import pytest

from tool_hooks.estimators import CallFacts, ConditionalEstimator
from tool_hooks.predictor import MODES, Mode, Predictor, Remaining


def taught(mode: Mode, *durations: float, key: str = "k", tenant: str | None = None) -> Predictor:
    predictor = Predictor(mode)
    teach(predictor, *durations, key=key, tenant=tenant)
    return predictor


def teach(predictor: Predictor, *durations: float, key: str = "k", tenant: str | None = None) -> None:
    for i, duration in enumerate(durations):
        predictor.started(f"teacher-{key}-{i}", "c", key, 0.0, tenant=tenant)
        predictor.ended(f"teacher-{key}-{i}", "c", 0.0, duration_s=duration)
        predictor.forget(f"teacher-{key}-{i}")


def left(predictor: Predictor, t: float, session: str = "s") -> Remaining:
    remaining = predictor.remaining(session, t)
    assert remaining is not None
    return remaining


@pytest.mark.parametrize("mode", MODES)
def test_a_session_without_a_tool_is_ready(mode: Mode) -> None:
    predictor = Predictor(mode)
    assert predictor.ready("s", 0.0)
    assert not predictor.running("s")
    assert predictor.remaining("s", 0.0) is None
    assert predictor.next_change("s", 0.0) is None
    assert predictor.calls("s", 0.0) == []


@pytest.mark.parametrize("mode", MODES)
def test_knowing_nothing_it_expects_five_seconds(mode: Mode) -> None:
    predictor = Predictor(mode)
    predictor.started("s", "c", "k", 100.0)
    assert left(predictor, 100.0).source == "default"
    assert left(predictor, 100.0).seconds == pytest.approx(5.0, rel=0.01)
    assert not predictor.ready("s", 100.0)
    predictor.ended("s", "c", 101.0)
    assert predictor.ready("s", 101.0)
    assert not predictor.running("s")


def test_an_unknown_mode_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="mode: got 'best', want one of default, paper"):
        Predictor("best")  # type: ignore[arg-type]


# -- the sources, in their order


def test_paper_takes_the_best_source_there_is() -> None:
    predictor = taught("paper", 3.0, 3.0)
    teach(predictor, 7.0, 7.0, key="other")
    start = {
        "declared": {"declared_s": 20.0, "timeout_s": 60.0, "command": "sleep 9"},
        "timeout": {"timeout_s": 60.0, "command": "sleep 9"},
        "sleep": {"command": "sleep 9"},
        "history": {},
    }
    expected = {"declared": 20.0, "timeout": 60.0, "sleep": 9.0, "history": 3.0}
    for source, given in start.items():
        predictor.started(source, "c", "k", 0.0, **given)  # type: ignore[arg-type]
        assert left(predictor, 1.0, source).source == source
        assert left(predictor, 1.0, source).seconds == pytest.approx(expected[source] - 1.0)
    predictor.started("new", "c", "unheard of", 0.0)
    assert left(predictor, 0.0, "new").source == "global"
    assert left(predictor, 0.0, "new").seconds > 5.0
    predictor.progressed("declared", "c", 2.0, remaining_s=4.0)
    assert left(predictor, 3.0, "declared") == Remaining(3.0, "progress", 2.0, 3.0)


def test_default_names_the_best_source_not_yet_outlived() -> None:
    predictor = taught("default", 3.0, 3.0, 3.0)
    teach(predictor, 20.0, 20.0, key="other")
    predictor.started("s", "c", "k", 0.0, declared_s=2.0)
    assert [left(predictor, t).source for t in (0.0, 2.5, 10.0, 30.0)] == ["declared", "history", "global", "default"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("claim", [{"declared_s": 12.0}, {"command": "sleep 12"}])
def test_a_claim_is_kept_until_it_proves_wrong(mode: Mode, claim: dict[str, float]) -> None:
    predictor = taught(mode, *[0.2] * 20)
    predictor.started("s", "c", "k", 0.0, **claim)  # type: ignore[arg-type]
    assert left(predictor, 0.0).seconds == pytest.approx(12.0, abs=0.2)
    assert not predictor.ready("s", 10.0)
    assert predictor.ready("s", 11.5)


def test_a_sleep_that_may_not_run_is_doubted_sooner() -> None:
    expected = {"sleep 12; k": [12.0, 12.0, 12.0], "k && sleep 12": [12.0, 12.0, 0.2]}
    for command, totals in expected.items():
        predictor = taught("default", *[0.2] * 20)
        for i, total in enumerate(totals):
            predictor.started("s", str(i), "k", 0.0, command=command)
            assert left(predictor, 0.0).seconds == pytest.approx(total, abs=0.2)
            predictor.ended("s", str(i), 0.0, duration_s=0.2)
            predictor.forget("s")
        predictor.started("s", "last", "k", 0.0, command=command)
        # Once the call has outlived all it does without the sleep, the sleep is what it must be in.
        assert left(predictor, 2.0).seconds == pytest.approx(10.0, abs=0.2)


def test_default_learns_how_far_claims_can_be_trusted() -> None:
    predictor = Predictor()
    for i in range(40):
        predictor.started(f"s{i}", "c", "k", 0.0, declared_s=10.0)
        predictor.ended(f"s{i}", "c", 0.0, duration_s=4.0)
    predictor.started("s", "c", "k", 0.0, declared_s=10.0)
    assert left(predictor, 0.0).seconds == pytest.approx(4.0, abs=0.1)


@pytest.mark.parametrize("mode", MODES)
def test_a_timeout_bounds_every_prediction(mode: Mode) -> None:
    predictor = taught(mode, *[40.0] * 20)
    predictor.started("s", "c", "k", 0.0, timeout_s=30.0)
    assert left(predictor, 10.0) == Remaining(20.0, "timeout", 10.0, 10.0)
    assert predictor.ready("s", 29.5)
    assert left(predictor, 100.0).seconds == 0.0


# -- given how long it has run


def test_default_gives_up_the_short_call_it_might_have_been() -> None:
    predictor = taught("default", *[0.1] * 60, *[30.0] * 30)
    predictor.started("s", "c", "k", 0.0)
    assert predictor.ready("s", 0.0)
    assert left(predictor, 0.0).seconds == pytest.approx(0.1, abs=0.01)
    assert left(predictor, 3.0).seconds == pytest.approx(27.0, abs=0.3)
    assert not predictor.ready("s", 3.0)
    assert predictor.ready("s", 29.2)


def test_default_expects_an_unheard_of_call_to_last_as_long_again() -> None:
    predictor = taught("default", *[0.1] * 30)
    predictor.started("s", "c", "k", 0.0)
    assert left(predictor, 100.0).seconds == pytest.approx(105.0, rel=0.01)


def test_default_prefers_what_the_same_session_saw() -> None:
    predictor = taught("default", *[1.0] * 30)
    for i in range(8):
        predictor.started("mine", str(i), "k", 0.0)
        predictor.ended("mine", str(i), 0.0, duration_s=9.0)
    predictor.started("mine", "c", "k", 50.0)
    predictor.started("other", "c", "k", 50.0)
    assert left(predictor, 50.0, "mine").seconds == pytest.approx(9.0, abs=0.1)
    assert left(predictor, 50.0, "other").seconds == pytest.approx(1.0, abs=0.1)


def test_ready_cannot_turn_true_before_the_timer() -> None:
    predictor = taught("default", 0.5, 2.0, 2.1, 6.0, 6.2, 6.3, 14.0)
    predictor.started("s", "c", "k", 0.0)
    t = 3.0
    assert not predictor.ready("s", t)
    timer = predictor.next_change("s", t)
    assert timer is not None
    while t < timer - 0.02:
        assert not predictor.ready("s", t)
        t += 0.02
    for _ in range(10):
        if predictor.ready("s", timer):
            break
        timer = predictor.next_change("s", timer) or math.inf
    assert predictor.ready("s", timer)
    assert timer == pytest.approx(5.2, abs=0.4)


# -- overdue


@pytest.mark.parametrize("mode", MODES)
def test_an_overdue_call_gets_probes_further_and_further_apart(mode: Mode) -> None:
    predictor = Predictor(mode)
    predictor.started("s", "c", "k", 0.0, declared_s=10.0)
    late = 0.0 if mode == "paper" else 0.1
    windows = [k for k in range(1, 40) if predictor.ready("s", 10.0 + late + k + 0.5)]
    assert windows == [1, 3, 7, 15, 31]


@pytest.mark.parametrize("mode", MODES)
def test_the_timers_meet_every_probe(mode: Mode) -> None:
    predictor = Predictor(mode)
    predictor.started("s", "c", "k", 0.0, declared_s=10.0)
    t: float | None = 0.0
    seen: list[float] = []
    was = False
    for _ in range(200):
        if t is None or t > 100.0:
            break
        now = predictor.ready("s", t)
        if now and not was:
            seen.append(t)
        was = now
        t = predictor.next_change("s", t)
    assert seen == pytest.approx([9.0, 11.0, 13.0, 17.0, 25.0, 41.0, 73.0], abs=0.2)


@pytest.mark.parametrize("mode", MODES)
def test_a_lost_end_does_not_keep_a_session_warm(mode: Mode) -> None:
    predictor = Predictor(mode, expire_s=100.0)
    predictor.started("s", "c", "k", 0.0)
    warm = sum(predictor.ready("s", 0.1 * k) for k in range(3_000)) * 0.1
    assert warm < 10.0
    assert not any(predictor.ready("s", 100.0 + 10.0 * k) for k in range(1000))
    assert predictor.next_change("s", 101.0) is None
    assert predictor.running("s")
    assert predictor.calls("s", 101.0)[0].expired
    predictor.resumed("s", 200.0)
    assert predictor.ready("s", 200.0)
    assert not predictor.running("s")


def test_a_long_claim_is_waited_for() -> None:
    predictor = Predictor(expire_s=100.0)
    predictor.started("s", "c", "k", 0.0, declared_s=3600.0)
    assert predictor.ready("s", 3599.5)


# -- parallel calls


@pytest.mark.parametrize("mode", MODES)
def test_parallel_calls_are_ready_when_the_last_is(mode: Mode) -> None:
    predictor = Predictor(mode)
    predictor.started("s", "short", "a", 0.0, declared_s=2.0)
    predictor.started("s", "long", "b", 0.0, declared_s=20.0)
    assert left(predictor, 0.0).seconds == pytest.approx(20.0, abs=0.2)
    assert not predictor.ready("s", 1.5)
    predictor.ended("s", "short", 2.0)
    assert predictor.running("s")
    assert not predictor.ready("s", 2.0)
    assert predictor.ready("s", 19.5)


def test_a_lost_call_does_not_hold_up_a_living_one() -> None:
    predictor = Predictor(expire_s=100.0)
    predictor.started("s", "lost", "a", 0.0)
    predictor.started("s", "alive", "b", 200.0, declared_s=2.0)
    assert predictor.ready("s", 201.5)
    assert [view.call_id for view in predictor.calls("s", 201.0)] == ["lost", "alive"]


# -- tenants


@pytest.mark.parametrize("mode", MODES)
def test_a_tenant_learns_only_from_its_own(mode: Mode) -> None:
    predictor = taught(mode, *[60.0] * 20, tenant="a")
    for tenant, seconds in (("a", 60.0), ("b", 5.0), (None, 5.0)):
        predictor.started(f"s{tenant}", "c", "k", 0.0, tenant=tenant)
        assert left(predictor, 0.0, f"s{tenant}").seconds == pytest.approx(seconds, rel=0.02)


# -- keys


def test_a_command_gives_its_key() -> None:
    predictor = taught("default", *[8.0] * 20, key="pytest")
    predictor.started("s", "c", None, 0.0, command="cd a && python -m pytest -x | tail")
    assert left(predictor, 0.0).seconds == pytest.approx(8.0, abs=0.1)
    assert predictor.calls("s", 1.0)[0].key == "pytest"


def test_the_estimator_shrinks_a_key_to_its_first_program() -> None:
    estimator = ConditionalEstimator()

    def facts(key: str) -> CallFacts:
        return CallFacts("s", key, "", None, None, None)

    for _ in range(20):
        estimator.learn(facts("pip install"), 12.0)
        estimator.learn(facts("ls"), 0.1)
    assert estimator.estimate(facts("pip install+pytest"), 0.0).remaining_s == pytest.approx(12.0, abs=0.1)
