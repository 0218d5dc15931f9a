# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.conversation import Conversation
from benchmarks.traces import EXTRACT, RecordedTurn, Session, load
from benchmarks.workload import choose
from tao_dynamo.errors import TraceError

RECORDED = load(EXTRACT)


def test_the_seed_decides() -> None:
    ids = [[s.session_id for s in choose(RECORDED, count=10, seed=seed).sessions] for seed in (1, 1, 2)]
    assert ids[0] == ids[1] != ids[2]


def test_more_sessions_than_recorded_get_ids_of_their_own() -> None:
    sessions = choose(RECORDED, count=100, seed=0).sessions
    assert len({s.session_id for s in sessions}) == 100


def test_sessions_are_cut_to_size() -> None:
    load = choose(RECORDED, count=20, seed=0, max_turns=4, max_prompt_tokens=2000, max_pause_s=0.25)
    assert load.turns == 80
    assert 0 < load.context_scale < 1
    assert max(s.longest_prompt for s in load.sessions) == 2000
    assert all(t.tool is None or t.tool.duration_s <= 0.25 for s in load.sessions for t in s.turns)


def test_nothing_to_choose_from() -> None:
    with pytest.raises(TraceError):
        choose([], count=1, seed=0)
    with pytest.raises(TraceError, match="--sessions"):
        choose(RECORDED, count=0, seed=0)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 47), st.integers(40, 40_000))
def test_prompts_have_the_recorded_sizes_and_common_prefixes(which: int, longest: int) -> None:
    session = choose([RECORDED[which]], count=1, seed=0, max_turns=12, max_prompt_tokens=longest).sessions[0]
    talk = Conversation(session, (300, 2300), salt="r")
    before: list[int] = []
    for i, turn in enumerate(session.turns):
        prompt = json.loads(talk.prompt(i))
        assert prompt == list(talk.tokens)
        assert len(prompt) == turn.prompt_tokens
        assert prompt[: turn.kept_tokens] == before[: turn.kept_tokens]
        assert talk.answered(i, list(range(turn.output_tokens)), turn.output_tokens)
        before = list(talk.tokens)


def test_sessions_of_one_harness_share_the_system_prompt_and_nothing_else() -> None:
    def first(name: str, salt: str = "") -> list[int]:
        turns = (RecordedTurn(100, 5, 0, 0.0, None),)
        talk = Conversation(Session(name, "x", "harness", turns, shared_tokens=60), (0, 50_000), salt)
        return list(json.loads(talk.prompt(0)))

    one, two, again, salted = first("one"), first("two"), first("one"), first("one", "other")
    assert one[:60] == two[:60] == salted[:60]
    assert one == again
    assert not set(one[60:]) & set(two[60:])
    assert one[60:] != salted[60:]


def test_an_answer_without_ids_is_made_up_and_said_so() -> None:
    turns = (RecordedTurn(10, 4, 0, 0.0, None), RecordedTurn(20, 1, 14, 0.0, None))
    talk = Conversation(Session("s", "x", "a", turns, shared_tokens=0), (300, 400))
    talk.prompt(0)
    assert not talk.answered(0, [], 4)
    assert len(talk.tokens) == 14
    assert len(json.loads(talk.prompt(1))) == 20
