# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser: what it shows, how it is worked, what it does not obey, and how much it keeps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tao_dynamo.page.wire import SessionRow
from tests.tao_dynamo.page_world import FakeRouter, browser, node_row, serving

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

EVIL = '<img src=x onerror="window.hacked=1">'
REASON = "</span><script>window.hacked=2</script>needs 9 tokens"

# Every text that is seen, and the nearest ground that is not transparent.
LOW_CONTRAST = """() => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !e.checkVisibility() || e.closest(".skip")) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(ground(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(`${e.tagName}.${e.className} ${e.textContent.slice(0, 20)} ${ratio.toFixed(2)}`);
  }
  return low;
}"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


class Page:
    """A page of a router, and what went wrong on it."""

    def __init__(self, chromium: Any, url: str, **context: Any) -> None:
        self.context = chromium.new_context(**{"viewport": {"width": 1440, "height": 900}} | context)
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda line: self.errors.append(line.text) if line.type == "error" else None)
        self.page.goto(url)
        self.until("#link", "live")

    def ids(self) -> list[str]:
        """Ids of the sessions in the document, from top to bottom."""
        rows = self.page.eval_on_selector_all(
            ".row:not([hidden])", "rows => rows.map(r => [Number(r.dataset.index), r.querySelector('.id').textContent])"
        )
        return [name for _, name in sorted(rows)]

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).inner_text())

    def until(self, selector: str, words: str) -> None:
        """Wait for the words. Not by a function of the page's: its policy forbids to evaluate text."""
        from playwright.sync_api import expect

        expect(self.page.locator(selector).first).to_contain_text(words, timeout=20_000, use_inner_text=True)


@pytest.fixture
def router() -> FakeRouter:
    return FakeRouter(sessions=80)


@pytest.fixture
def shown(chromium: Any, router: FakeRouter) -> Iterator[Page]:
    with serving(router) as url:
        page = Page(chromium, url)
        yield page
        assert not page.errors
        page.context.close()


def test_the_waiting_pool_is_shown_in_its_order_with_reasons(shown: Page, router: FakeRouter) -> None:
    shot = router.snapshot()
    waiting = [row for row in shot.sessions if row.state == "waiting"]
    assert shown.ids()[: len(waiting)] == [row.id for row in waiting]
    first = shown.page.locator("#row-0")
    assert first.locator(".state").inner_text().split() == ["waiting", "#1"]
    name = router.names[re.findall(r"\d+/0", waiting[0].reason)[0]]
    assert first.locator(".why").inner_text().endswith(f"can be had, on {name}")
    for state, count in shot.by_state.items():
        assert shown.text(f"#states .is-{state} b") == str(count)
    assert shown.page.locator("#node-list li").count() == len(shot.nodes)
    shown.until("#plans", "1 refused: its tool was about to return")
    shown.until("#plans", "at most 2.5k context short of the optimum")
    assert shown.text("#bus-sum") == "connected"


def test_a_click_explains_a_session_and_escape_closes_it(shown: Page, router: FakeRouter) -> None:
    shown.page.locator("#row-2").click()
    wanted = router.snapshot().sessions[2]
    shown.until("#explain h2", wanted.id)
    assert "Needs" in shown.text("#explain .says")
    assert shown.page.locator("#explain table tr").count() == 1 + len(router.nodes_shown())
    shown.page.keyboard.press("j")
    shown.until("#explain h2", router.snapshot().sessions[3].id)
    shown.page.keyboard.press("Escape")
    shown.page.wait_for_selector("#explain", state="hidden")


def test_it_is_worked_by_keys_alone(shown: Page, router: FakeRouter) -> None:
    keys = shown.page.keyboard
    keys.press("2")
    paused = [row.id for row in router.snapshot().sessions if row.state == "paused"]
    assert shown.ids()[:5] == paused[:5]
    shown.until("#shown", f"{len(paused)} of 80")
    keys.press("0")
    keys.press("/")
    keys.type("cargo")
    cargo = [row.id for row in router.snapshot().sessions if row.tool == "cargo build"]
    assert shown.ids() == cargo
    keys.press("Enter")  # to the list, on its first session
    keys.press("ArrowDown")
    keys.press("Enter")
    shown.until("#explain h2", cargo[1])
    active = shown.page.get_attribute("#grid", "aria-activedescendant")
    assert shown.page.locator(f"#{active}").get_attribute("aria-selected") == "true"
    keys.press("Escape")
    keys.press("Escape")
    shown.until("#shown", "80; the waiting pool first")
    keys.press("?")
    assert shown.page.locator("#help").is_visible()
    keys.press("Escape")


def test_the_columns_sort_and_the_third_click_brings_back_the_routers_order(shown: Page, router: FakeRouter) -> None:
    title = shown.page.locator("#head .context button")
    sizes = {row.id: row.cost for row in router.snapshot().sessions}
    title.click()
    down = [sizes[name] for name in shown.ids()]
    assert down == sorted(down, reverse=True)
    assert shown.page.get_attribute("#head .context", "aria-sort") == "descending"
    title.click()
    up = [sizes[name] for name in shown.ids()]
    assert up == sorted(up)
    title.click()
    assert shown.ids()[0] == router.snapshot().sessions[0].id


def test_what_clients_call_themselves_is_shown_and_not_obeyed(shown: Page, router: FakeRouter) -> None:
    router.extra.append(
        SessionRow(id=EVIL, state="waiting", for_s=1.0, waited_s=1.0, reason=REASON, tool="<b>bold</b>")
    )
    router.problems.append(f"Worker 7 is left out: {EVIL}.")
    shown.until("#problems", EVIL)
    shown.page.locator("#search").fill("onerror")
    assert shown.ids() == [EVIL]
    assert shown.page.locator("#row-0 .why").inner_text() == REASON
    shown.page.locator("#row-0").click()
    shown.until("#explain h2", EVIL)
    shown.until("#explain .says", "<script>")
    assert shown.page.evaluate("window.hacked") is None
    assert shown.page.locator("#rows img, #rows script, #explain img, #explain script, #problems img").count() == 0
    # Nor would it be, if the page forgot itself: markup and inline scripts are refused.
    refused = "try { document.body.innerHTML = '<p>'; false } catch (error) { error instanceof TypeError }"
    assert shown.page.evaluate(refused) is True
    assert "TrustedHTML" in shown.errors.pop()


def test_of_two_thousand_sessions_only_what_can_be_seen_is_in_the_document(chromium: Any) -> None:
    router = FakeRouter(sessions=2000, nodes=64)
    with serving(router, moving=True) as url:
        page = Page(chromium, url)
        limit = 900 // 34 + 20
        assert page.page.locator(".row").count() <= limit
        assert page.page.locator("*").count() < 3000
        for fraction in (0.3, 0.7, 1.0):
            page.page.evaluate(f"scrollTo(0, document.documentElement.scrollHeight * {fraction})")
            assert page.page.locator(".row").count() <= limit
        page.page.wait_for_selector("#row-1999")
        row = page.page.locator("#row-1999").bounding_box()
        assert row is not None
        assert 0 <= row["y"] <= 900
        assert page.page.get_attribute("#grid", "aria-rowcount") == "2001"
        assert not page.errors
        page.context.close()


def test_trouble_is_told_and_a_router_that_is_gone_is_not_shown_as_live(chromium: Any) -> None:
    router = FakeRouter(problems=["No worker is registered: every turn waits or is refused."])
    with serving(router) as url:
        page = Page(chromium, url)
        page.until("#problems", "No worker is registered")
        assert page.page.locator("#problems").get_attribute("role") == "alert"
        router.problems.clear()
        page.page.wait_for_selector("#problems", state="hidden")
        page.page.locator("#hold").click()
        page.until("#link", "frozen")
        router.sessions = 0
        router.rows.clear()
        page.page.locator("#hold").click()
        page.until("#empty", "No session yet")
        page.errors.clear()
    page.until("#link", "no answer for")
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(chromium: Any, scheme: str) -> None:
    """WCAG's contrast of at least 4.5 for every kind of text."""
    router = FakeRouter(problems=["something"])
    with serving(router) as url:
        page = Page(chromium, url, color_scheme=scheme)
        page.page.locator("#row-1").click()
        page.page.wait_for_selector("#explain table")
        assert page.page.evaluate(LOW_CONTRAST) == []
        page.context.close()


def test_a_telephone_shows_it_without_scrolling_sideways(chromium: Any) -> None:
    router = FakeRouter(sessions=80, nodes=20)
    with serving(router) as url:
        page = Page(chromium, url, viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 390
        page.page.locator("#sessions").scroll_into_view_if_needed()
        page.page.evaluate("document.querySelector('#sessions').scrollIntoView()")
        first = page.page.locator("#row-0")
        first.wait_for()
        assert first.locator(".sum").inner_text().startswith("needs ")
        first.tap()
        page.page.wait_for_selector("#explain table")
        box = page.page.locator("#explain").bounding_box()
        assert box is not None
        assert box["width"] == 390
        assert box["y"] + box["height"] == pytest.approx(844, abs=1)
        assert not page.errors
        page.context.close()


def test_a_node_in_trouble_is_marked(shown: Page, router: FakeRouter) -> None:
    node, name = next(iter(router.names.items()))
    sick = msgspec.structs.replace(node_row(node, name, 0.9), stale=True)
    router.sick[node] = sick
    shown.until("#node-list li .badge", "stale")
