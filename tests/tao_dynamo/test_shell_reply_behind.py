# SPDX-License-Identifier: Apache-2.0
"""Answers to a frontend made by hand that does not read as fast as they come, or is slow to be connected to."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tao_dynamo.errors import SlowClientError
from tao_dynamo.shell import ingress_wire, outlet
from tao_dynamo.shell.reply import FAREWELL_S, STUCK_S
from tests.tao_dynamo.ingress_world import LAST_CHUNK, Frontend, Heard, chunk, eventually, nothing_left
from tests.tao_dynamo.reply_world import LARGE, answering, crowded, left, look, made, tokens

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
async def frontend() -> AsyncIterator[Frontend]:
    with nothing_left():
        made = Frontend(buffer=1 << 16)
        yield made
        made.close()


async def test_what_comes_while_it_connects_is_kept_in_order() -> None:
    with nothing_left(), crowded() as (server, place):
        one = made(place)
        for number in range(100):
            one.put([chunk(number)])
        one.put([LAST_CHUNK])
        one.end()
        look(one)
        assert not one.closed
        assert not one.said
        server.accept()[0].close()
        with server.accept()[0] as connection:
            connection.setblocking(False)
            chunks = await Heard(connection).whole()
        assert tokens(chunks) == [*range(100), 9]
        assert len(chunks) == 2
        await left(one)


async def test_one_that_never_lets_it_connect_is_given_up() -> None:
    with nothing_left(), crowded() as (_, place):
        one = made(place)
        one.put([chunk(1)])
        look(one, 10 * STUCK_S)
        assert not one.closed  # The turn runs.
        one.end()
        look(one, STUCK_S - 5.0)
        assert not one.closed
        look(one, STUCK_S + 5.0)
        assert one.closed


async def test_what_a_client_does_not_read_is_joined_and_all_comes_once_it_reads(frontend: Frontend) -> None:
    one = answering(frontend)
    one.put([LARGE])
    for number in range(3 * outlet.MOST_BEHIND):
        one.put([chunk(number)])
    one.put([LAST_CHUNK])
    one.end()
    assert not one.said
    look(one, FAREWELL_S + 1.0)
    assert not one.closed
    heard = await frontend.accept()
    chunks = await heard.whole()
    assert chunks[0] == LARGE
    assert tokens(chunks) == [*range(3 * outlet.MOST_BEHIND), 9]
    assert len(chunks) <= 3
    assert chunks[-1]["finish_reason"] == "stop"
    assert heard.answer.over
    assert one.said
    look(one, FAREWELL_S + 1.0)
    assert one.closed


async def test_it_reads_on_in_mid_answer_and_falls_behind_again(frontend: Frontend) -> None:
    one = answering(frontend)
    heard = None
    for round_ in range(3):
        one.put([LARGE])
        one.put([chunk(round_)])
        one.put([chunk(10 + round_)])
        heard = heard or await frontend.accept()
        chunks = await heard.until(2 * (round_ + 1))
    assert tokens(chunks) == [0, 10, 1, 11, 2, 12]
    one.end()
    assert heard is not None
    await heard.whole()
    assert heard.answer.over
    one.close()


async def test_too_much_that_cannot_be_joined_ends_the_turn_and_what_was_kept_still_comes(
    frontend: Frontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlet, "MOST_BEHIND", 8)
    one = answering(frontend)
    one.put([LARGE])
    likely = [{"token_ids": [number], "log_probs": [0.5]} for number in range(9)]
    for each in likely[:8]:
        one.put([each])
    with pytest.raises(SlowClientError, match="more than 8 chunks"):
        one.put(likely[8:])
    one.end(ingress_wire.fault({"message": "you do not read"}))
    heard = await frontend.accept()
    chunks = await heard.whole()
    assert chunks == [LARGE, *likely[:8]]
    assert heard.answer.fault is not None
    assert heard.answer.over
    one.close()


async def test_the_end_itself_may_have_to_wait(frontend: Frontend) -> None:
    one = answering(frontend)
    one.end(ingress_wire.fault({"message": LARGE["text"]}))
    assert not one.said
    heard = await frontend.accept()
    await heard.whole()
    assert heard.answer.fault is not None
    assert heard.answer.over
    await eventually(lambda: one.said)
    look(one, FAREWELL_S - 1.0)
    assert not one.closed
    look(one, FAREWELL_S + 1.0)
    assert one.closed


async def test_a_client_that_never_reads_is_broken_off_in_the_end(frontend: Frontend) -> None:
    one = answering(frontend)
    one.put([LARGE])
    look(one, STUCK_S * 10)
    assert not one.closed
    one.put([LAST_CHUNK])
    one.end()
    look(one, STUCK_S - 5.0)
    assert not one.closed
    look(one, STUCK_S + 5.0)
    assert one.closed
    assert one.is_killed()


async def test_a_client_that_leaves_while_it_is_behind(frontend: Frontend) -> None:
    one = answering(frontend)
    one.put([LARGE])
    one.put([chunk(1)])
    heard = await frontend.accept()
    await heard.piece(1)
    heard.say("kill")
    await eventually(lambda: look(one) or one.is_killed())  # type: ignore[func-returns-value]
    one.put([chunk(2)])
    one.end()
    assert one.closed


async def test_a_connection_that_is_lost_while_it_is_behind(frontend: Frontend) -> None:
    one = answering(frontend)
    one.put([LARGE])
    one.put([chunk(1)])
    one.end()
    (await frontend.accept()).reset()
    await left(one)


@pytest.mark.parametrize("seed", range(3))
async def test_nothing_is_lost_or_turned_about_however_it_is_read(frontend: Frontend, seed: int) -> None:
    rng = random.Random(seed)
    one = answering(frontend)
    sent: list[int] = []
    heard = None
    for number in range(400):
        size = rng.choice((1, 1, 1, 5, 60_000))
        extra: dict[str, Any] = rng.choice(({}, {}, {"log_probs": [0.5]}, {"finish_reason": "stop"}))
        one.put([chunk(*range(number, number + size)) | extra])
        sent += range(number, number + size)
        if number and number % 20 == 0:
            await asyncio.sleep(rng.choice((0.0, 0.003)))
            heard = heard or await frontend.accept()
            for _ in range(rng.randrange(4)):
                heard.now()
    assert heard is not None
    one.end()
    chunks = await heard.whole()
    assert tokens(chunks) == sent
    assert heard.answer.over
    heard.socket.close()
    await left(one)
