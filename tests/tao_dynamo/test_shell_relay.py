# SPDX-License-Identifier: Apache-2.0
"""Chunks that wait are made one, and nothing is lost, reordered or made up by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
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


def test_plain_chunks_become_one_and_the_end_stays_whole() -> None:
    first = chunk(1, completion_usage=USAGE)
    end = chunk(finish_reason="length", completion_usage=USAGE)
    out = join([first, chunk(2), chunk(3), chunk(4, 5), end])
    assert [c["token_ids"] for c in out] == [[1], [2, 3, 4, 5], []]
    assert out[0] is first
    assert out[2] is end


@pytest.mark.parametrize(
    "odd",
    [
        {"log_probs": [-0.1]},
        {"text": "x"},
        {"engine_data": {"a": 1}},
        {"finish_reason": "stop"},
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


async def stream(*chunks: dict[str, Any], error: Exception | None = None) -> AsyncIterator[dict[str, Any]]:
    for item in chunks:
        yield item
    if error is not None:
        raise error


async def test_what_is_there_already_comes_in_one_batch() -> None:
    relay = Relay(stream(chunk(1), chunk(2), chunk(3)), Pace())
    await asyncio.sleep(0.01)
    assert [[c["token_ids"] for c in batch] async for batch in relay.batches()] == [[[1, 2, 3]]]


async def test_an_error_comes_after_everything_that_came_before_it() -> None:
    relay = Relay(stream(chunk(1), chunk(2), error=ConnectionError("gone")), Pace())
    await asyncio.sleep(0.01)
    batches = relay.batches()
    assert [c["token_ids"] for c in await anext(batches)] == [[1, 2]]
    with pytest.raises(ConnectionError, match="gone"):
        await anext(batches)


async def test_a_slow_stream_is_handed_over_as_it_comes() -> None:
    gate = asyncio.Event()

    async def slow() -> AsyncIterator[dict[str, Any]]:
        yield chunk(1)
        await gate.wait()
        yield chunk(2)

    batches = Relay(slow(), Pace()).batches()
    assert (await anext(batches))[0]["token_ids"] == [1]
    gate.set()
    assert (await anext(batches))[0]["token_ids"] == [2]
    with pytest.raises(StopAsyncIteration):
        await anext(batches)


async def test_among_many_streams_chunks_are_gathered_for_a_window_and_the_end_is_not_held_back() -> None:
    pace = Pace()
    pace.streams = 1000

    async def fast() -> AsyncIterator[dict[str, Any]]:
        for number in range(10):
            yield chunk(number)
            await asyncio.sleep(0)

    batches = [[c["token_ids"] for c in batch] async for batch in Relay(fast(), pace).batches()]
    assert batches == [[[0]], [list(range(1, 10))]]
    assert pace.streams == 1000
    assert Pace().window_s() == 0.0
