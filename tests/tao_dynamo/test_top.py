# SPDX-License-Identifier: Apache-2.0
"""``tao top``: in words, printed once, as JSON, live, and where something is wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console

from tao_dynamo.errors import StackError, WireError
from tao_dynamo.page.wire import SessionRow, Snapshot
from tao_dynamo.top import cli, columns, drawing, printed, words
from tao_dynamo.top.app import Top
from tao_dynamo.top.client import Client
from tao_dynamo.top.sessions import Sessions
from tests.tao_dynamo.page_world import FakeRouter, serving

ESCAPES = "\x1b]0;owned\x07\x1b[31m\u202eevil"


@pytest.fixture(scope="module")
def router() -> FakeRouter:
    return FakeRouter(sessions=90, problems=["Node 1/0: events had a gap; their blocks are being fetched anew."])


@pytest.fixture(scope="module")
def url(router: FakeRouter) -> Iterator[str]:
    with serving(router) as at:
        yield at


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (99.6, "1:40"),
        (3599.6, "1 h 00"),
        (7500, "2 h 05"),
        (200_000, "2 d 7 h"),
    ],
)
def test_times_are_short(value: float | None, text: str) -> None:
    assert words.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (999, "999"), (1000, "1.0k"), (9960, "10k"), (131_072, "131k"), (2_100_000, "2.1M")]
)
def test_tokens_are_short(value: int, text: str) -> None:
    assert words.tokens(value) == text


@pytest.mark.parametrize("width", [60, 80, 100, 132, 200])
def test_a_line_is_as_wide_as_the_screen_whatever_is_in_it(router: FakeRouter, width: int) -> None:
    shot = router.snapshot()
    known = drawing.names(shot)
    wide = columns.widths(width)
    odd = SessionRow(id="会話" * 30, state="waiting", for_s=1.0, reason="長い" * 50)
    for row in [*shot.sessions, odd]:
        line = drawing.session(row, known, wide)
        assert cell_len(line.plain) == width
        assert "\n" not in line.plain
    assert cell_len(drawing.head(wide, "for", down=True).plain) == width


def test_rows_are_filtered_searched_and_sorted(router: FakeRouter) -> None:
    shot = router.snapshot()
    known = drawing.names(shot)

    def ids(**more: Any) -> list[SessionRow]:
        wanted: dict[str, Any] = {"states": frozenset(), "query": "", "names": known, "sort": None, "down": False}
        return columns.arrange(shot.sessions, **wanted | more)

    assert ids() == shot.sessions
    assert {row.state for row in ids(states=frozenset({"paused", "idle"}))} == {"paused", "idle"}
    assert {row.tool for row in ids(query="CARGO ")} == {"cargo build"}
    back = [row.returns_in_s for row in ids(sort="back", down=True)]
    known_first = [value for value in back if value is not None]
    assert known_first == sorted(known_first, reverse=True)
    assert back[len(known_first) :] == [None] * (len(back) - len(known_first))
    for key in columns.KEYS:
        assert len(ids(sort=key)) == len(shot.sessions)


def test_a_terminal_is_shown_no_escapes_of_a_client(router: FakeRouter) -> None:
    shot = msgspec.structs.replace(
        router.snapshot(),
        problems=[ESCAPES],
        sessions=[SessionRow(id=ESCAPES, state="waiting", for_s=1.0, reason=ESCAPES, tool=ESCAPES, parent=ESCAPES)],
    )
    console = Console(width=140, force_terminal=True, color_system=None, record=True)
    with console.capture() as captured:
        printed.show(console, shot, shot.sessions, limit=5, sort=None)
        for line in drawing.explained(router.explain(ESCAPES), {}):
            console.print(line)
    text = captured.get()
    assert "evil" in text
    assert not set(text) & {"\x1b", "\x07", "\u202e"}


def test_a_nodes_bar_is_to_scale_and_marked(router: FakeRouter) -> None:
    node = router.nodes_shown()[0]
    node = msgspec.structs.replace(node, capacity=1000, reserved=600, running=200, foreign=100, claimed=0)
    bar = drawing.bar(node, 0.85, 20)
    assert bar.plain == "▇" * 12 + "▒▒" + "···┃··"
    full = msgspec.structs.replace(node, reserved=1200, claimed=500)
    assert cell_len(drawing.bar(full, 1.0, 20).plain) == 20
    empty = msgspec.structs.replace(node, capacity=0, reserved=0, running=0, foreign=0)
    assert cell_len(drawing.bar(empty, 0.85, 20).plain) == 20


def test_it_is_printed_once_where_there_is_no_terminal(
    url: str, router: FakeRouter, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    assert cli.main(["top", "--url", url, "--limit", "3"]) == 0
    out = capsys.readouterr().out
    shot = router.snapshot()
    assert f"{shot.by_state['waiting']} waiting" in out
    assert "! Node 1/0: events had a gap" in out
    assert all(name in out for name in router.names.values())
    assert sum("needs" in line for line in out.splitlines()) == 3
    assert "… 87 more (--limit)" in out
    assert "1 refused: its tool was about to return, and now is not" in out
    assert cli.main(["top", "--url", url, "--once", "--state", "paused", "--sort", "back", "--limit", "500"]) == 0
    assert capsys.readouterr().out.count("■ paused") == shot.by_state["paused"]


def test_scripts_get_the_snapshot_itself(url: str, router: FakeRouter, capfdbinary: Any) -> None:
    assert cli.main(["top", "--url", url, "--json"]) == 0
    out = capfdbinary.readouterr().out
    assert out.count(b"\n") == 1
    assert msgspec.json.decode(out, type=Snapshot) == router.snapshot()


@pytest.mark.parametrize(
    ("arguments", "env", "code", "says"),
    [
        (["--url", "ftp://x"], {}, 2, "--url: got 'ftp://x', want the address of a router's page"),
        (["--every", "soon"], {}, 2, "--every: got 'soon', want a number from 0.2 to 3600"),
        (["--limit", "-1"], {}, 2, "--limit: got '-1'"),
        (["--state", "sleeping"], {}, 2, "--state: got 'sleeping', want one of waiting, paused"),
        (["--sort", "age", "--url", "http://127.0.0.1:9"], {}, 2, "--sort: got 'age', want one of state, session"),
        ([], {"DYN_TAO_PAGE_PORT": "none"}, 2, "DYN_TAO_PAGE_PORT: got 'none', want a port"),
        (["--once"], {"DYN_TAO_PAGE_URL": "http://127.0.0.1:9/"}, 1, "no router answers at http://127.0.0.1:9/ ("),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    arguments: list[str],
    env: dict[str, str],
    code: int,
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert cli.main(["top", *arguments]) == code
    told = capsys.readouterr().err
    assert told.startswith(f"tao top: {says}")
    assert told.count("\n") == 1


class SystemPort(BaseHTTPRequestHandler):
    """Dynamo's system server: the engine routes only."""

    snapshot = b""

    def do_GET(self) -> None:
        found = self.path == "/engine/tao/snapshot"
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(self.snapshot if found else b"nothing here")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"error": f"session {asked['session']} is not known"}).encode())

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def test_the_system_port_serves_as_well_and_what_is_no_router_is_told(router: FakeRouter) -> None:
    with HTTPServer(("127.0.0.1", 0), SystemPort) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        client = Client(f"127.0.0.1:{server.server_port}")
        SystemPort.snapshot = msgspec.json.encode(router.snapshot())
        assert client.snapshot() == router.snapshot()
        assert client.explain("x y") == {"error": "session x y is not known"}
        SystemPort.snapshot = b'{"version": 7}'
        with pytest.raises(WireError, match="no router of this version"):
            client.snapshot()
        server.shutdown()
    with pytest.raises(StackError, match="no router answers"):
        client.snapshot()


async def test_the_live_screen_is_worked_by_keys(router: FakeRouter) -> None:
    class Source:
        url = "http://here/"
        down = False

        def snapshot(self) -> Snapshot:
            if self.down:
                raise StackError("no router answers")
            return router.snapshot()

        def explain(self, session: str) -> dict[str, Any]:
            return router.explain(session)

    source = Source()
    app = Top(source, every_s=0.05)
    shot = router.snapshot()

    def screen() -> str:
        return "\n".join(strip.text for strip in app.screen._compositor.render_strips())

    async with app.run_test(size=(132, 44)) as pilot:

        async def until(text: str, there: bool = True) -> None:
            for _ in range(200):
                await pilot.pause(0.02)
                if (text in screen()) is there:
                    return
            raise AssertionError(f"{text!r} {'never came' if there else 'stayed'}:\n{screen()}")

        await until(f"{shot.by_state['waiting']} waiting")
        await until(shot.sessions[0].id)
        await pilot.press("j", "j", "enter")
        second = shot.sessions[1].id
        await until(f"waiting for {words.seconds(shot.sessions[1].for_s)}  {second}")
        await until("May get".lower())
        await pilot.press("down")
        await until(f"for {words.seconds(shot.sessions[2].for_s)}  {shot.sessions[2].id}")
        await pilot.press("escape")
        await until("last plans")
        await pilot.press("2")
        await until(f"{shot.by_state['paused']} of 90 sessions shown")
        await pilot.press("0", "slash", *"cargo", "enter")
        cargo = sum(row.tool == "cargo build" for row in shot.sessions)
        await until(f"{cargo} of 90 sessions shown · search 'cargo'")
        await pilot.press("escape")
        await until("sessions shown", there=False)
        for _ in range(1 + columns.KEYS.index("tokens")):
            await pilot.press("s")
        sessions = app.query_one(Sessions)
        await pilot.pause()
        assert sessions.sort == "tokens"
        costs = [row.cost for row in sessions.rows]
        assert costs == sorted(costs, reverse=True)
        await pilot.press("end")
        assert sessions.cursor == 89
        assert sessions.scroll_offset.y > 0
        await pilot.press("r", "p")
        await until("frozen")
        source.down = True
        app._heard_at -= 1000.0
        await pilot.press("p")
        await until("no answer for")


async def test_a_router_that_is_not_there_is_said_on_the_screen() -> None:
    app = Top(Client("http://127.0.0.1:9/"), every_s=0.1)
    async with app.run_test(size=(100, 20)) as pilot:
        for _ in range(200):
            await pilot.pause(0.02)
            text = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
            if "no router answers at http://127.0.0.1:9/" in text:
                return
            await asyncio.sleep(0)
        raise AssertionError(text)
