# SPDX-License-Identifier: Apache-2.0
"""The page of a router that works: a session is found waiting, with its reason, and followed until it runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from launch.stack import Stack
from tao_dynamo.top import cli
from tests.tao_dynamo.page_world import browser

pytestmark = [pytest.mark.browser, pytest.mark.dynamo, pytest.mark.timeout(240)]

AGENTS = 10
ROOM = 16 * 256


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    # Each session takes half of the room: the followed one would wait long for the overdue to pay that back.
    config = {
        "Worker": {"num-gpu-blocks-override": ROOM // 16, "speedup-ratio": 6},
        "TaoRouter": {"tao-overdue-share": 1.0},
    }
    with Stack("graphs/tao_agg:Frontend", workers=2, config=config) as running:
        yield running


@contextmanager
def load(stack: Stack) -> Iterator[list[int]]:
    """Sessions of one turn each, more than the nodes hold, as long as it lasts; gives the answers' status codes."""
    codes: list[int] = []
    enough = threading.Event()

    def agent(number: int) -> None:
        for again in range(100):
            if enough.is_set():
                return
            body = {
                "model": stack.model_name,
                "prompt": [100 + (number * 131 + i * 7) % 3000 for i in range(1500)],
                "max_tokens": 700,
                "ignore_eos": True,
                "nvext": {"agent_hints": {"osl": 700}},
            }
            headers = {"x-dynamo-session-id": f"agent-{number}-{again}", "x-dynamo-session-final": "true"}
            answer = httpx.post(f"{stack.url}/v1/completions", json=body, headers=headers, timeout=120)
            codes.append(answer.status_code)

    threads = [threading.Thread(target=agent, args=(number,)) for number in range(AGENTS)]
    for thread in threads:
        thread.start()
    try:
        yield codes
    finally:
        enough.set()
        for thread in threads:
            thread.join(120)


def test_a_waiting_session_is_found_with_its_reason_and_followed_until_it_runs(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    from playwright.sync_api import expect

    errors: list[str] = []
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(30_000)
        expect.set_options(timeout=30_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(stack.page_url)
        with load(stack) as codes:
            page.keyboard.press("1")  # only those that wait
            page.locator("#row-5.is-waiting").wait_for()
            for _ in range(6):
                page.keyboard.press("j")
            page.keyboard.press("Enter")
            explain = page.locator("#explain")
            expect(explain.locator(".pill")).to_contain_text("waiting for")
            session = explain.locator("h2").inner_text()
            assert session.startswith("agent-")
            expect(explain.locator(".says")).to_contain_text("Needs 2,2")
            assert explain.locator("table", has_text="May get").locator("tr").count() == 3
            assert page.locator("#node-list li").count() == 2

            # The same snapshot in the terminal.
            assert cli.main(["top", "--url", stack.page_url, "--once", "--state", "waiting"]) == 0
            printed = capsys.readouterr().out
            assert "◆ waiting #1" in printed
            assert "needs 2,2" in printed

            expect(explain.locator(".pill")).to_contain_text("running for", timeout=60_000)
            expect(explain.locator("h2")).to_have_text(session)
            page.keyboard.press("0")
            expect(page.locator("#plans li").first).to_contain_text("placed")
            expect(page.locator("#bus-sum")).to_have_text("connected")
        assert set(codes) == {200}
        assert not errors
