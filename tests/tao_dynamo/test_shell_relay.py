# SPDX-License-Identifier: Apache-2.0
"""Chunks that wait are made one, and nothing is lost, reordered or made up by it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_dynamo.shell.relay import Pace, Relay, join, plain

USAGE = {"prompt_tokens": 8, "completion_tokens": 1}


def chunk(*tokens: int, **more: Any) -> dict[str, Any]:
    """A chunk as Dynamo's workers send it, with its many empty fields."""
    return {
        "token_ids": list(tokens),
        "tokens": None,
        "text": None,
        "output_type": "text",
        "log_probs": None,
        "finish_reason": None,
        "index": None,
    } | more


@pytest.mark.parametrize("last", [[], [6]])
def test_plain_chunks_become_one_with_the_end_that_follows_them(last: list[int]) -> None:
    first = chunk(1, completion_usage=USAGE)
    end = chunk(*last, finish_reason="length", completion_usage=USAGE)
    out = join([first, chunk(2), chunk(3), chunk(4, 5), end])
    assert out == [first, end | {"token_ids": [2, 3, 4, 5, *last]}]
    assert out[0] is first
    assert join([first, end]) == [first, end], "an end alone stays what it is"


@pytest.mark.parametrize("more", [{"log_probs": [-0.1]}, {"stop_reason": "x"}, {"index": 1}, {"engine_data": {}}])
def test_an_end_that_holds_more_or_is_anothers_is_left_alone(more: dict[str, Any]) -> None:
    end = chunk(3, finish_reason="stop") | more
    assert join([chunk(1), chunk(2), end]) == [chunk(1, 2), end]


@pytest.mark.parametrize(
    "odd",
    [
        {"log_probs": [-0.1]},
        {"text": "x"},
        {"engine_data": {"a": 1}},
        {"completion_usage": USAGE},
        {"disaggregated_params": {}},
    ],
)
def test_a_chunk_that_holds_more_than_tokens_is_left_alone(odd: dict[str, Any]) -> None:
    special = chunk(9, **odd)
    assert not plain(special)
    out = join([chunk(1), special, chunk(2), chunk(3)])
    assert [c["token_ids"] for c in out] == [[1], [9], [2, 3]]
    assert out[1] is special


def test_choices_are_not_mixed() -> None:
    out = join([chunk(1, index=0), chunk(2, index=1), chunk(3, index=1), chunk(4, index=0)])
    assert [(c["index"], c["token_ids"]) for c in out] == [(0, [1]), (1, [2, 3]), (0, [4])]


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=3), st.sampled_from([0, 1]), st.booleans()), max_size=20)
)
def test_every_choice_keeps_its_tokens_in_order(parts: list[tuple[list[int], int, bool]]) -> None:
    chunks = [chunk(*tokens, index=index, **({"log_probs": [0.0]} if odd else {})) for tokens, index, odd in parts]
    want = {i: [t for tokens, index, _ in parts if index == i for t in tokens] for i in (0, 1)}
    out = join(chunks)
    assert {i: [t for c in out if c["index"] == i for t in c["token_ids"]] for i in (0, 1)} == want


async def test_the_first_is_handed_over_at_once_and_what_comes_in_the_window_goes_as_one() -> None:
    batches: list[list[list[int]]] = []
    pace = Pace()
    pace.shortest_s = pace.longest_s = 0.3
    relay = Relay(lambda batch: batches.append([c["token_ids"] for c in batch]), pace)
    assert pace.streams == 1
    relay.add([chunk(0)])
    assert batches == [[[0]]]
    for number in range(1, 10):
        relay.add([chunk(number)])
    assert batches == [[[0]]]
    await asyncio.sleep(pace.longest_s)
    assert batches == [[[0]], [list(range(1, 10))]]
    relay.close()
    assert batches == [[[0]], [list(range(1, 10))]]
    assert pace.streams == 0


async def test_what_the_receiver_raises_is_heard_by_whoever_adds() -> None:
    def put(batch: list[dict[str, Any]]) -> None:
        if batch[0]["token_ids"] != [0]:
            raise LookupError(str(batch[0]["token_ids"]))

    pace = Pace()
    pace.shortest_s = pace.longest_s = 0.01
    relay = Relay(put, pace)
    relay.add([chunk(0)])
    relay.add([chunk(1)])
    await asyncio.sleep(0.05)
    with pytest.raises(LookupError, match=r"\[1\]"):
        relay.add([chunk(2)])
    relay.close()
    assert pace.streams == 0


async def test_closing_hands_over_the_rest_at_once() -> None:
    batches: list[list[list[int]]] = []
    pace = Pace()
    pace.shortest_s = pace.longest_s = 30.0
    relay = Relay(lambda batch: batches.append([c["token_ids"] for c in batch]), pace)
    relay.add([chunk(0)])
    relay.add([chunk(1), chunk(2)])
    relay.add([chunk(finish_reason="length")])
    relay.close()
    await asyncio.sleep(0.02)
    assert batches == [[[0]], [[1, 2]]]


async def test_a_stream_that_is_slower_than_the_window_is_never_held_back() -> None:
    batches: list[list[list[int]]] = []
    relay = Relay(lambda batch: batches.append([c["token_ids"] for c in batch]), Pace())
    for number in range(3):
        relay.add([chunk(number)])
        assert len(batches) == number + 1
        await asyncio.sleep(0.01)
    relay.close()


def test_the_window_grows_with_the_streams_up_to_a_limit() -> None:
    pace = Pace()
    windows = []
    for pace.streams in (0, 1, 8, 32, 1000):
        windows.append(pace.window_s())
    assert windows == sorted(windows)
    assert windows[0] > 0
    assert windows[-1] == Pace.longest_s
