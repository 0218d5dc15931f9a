# SPDX-License-Identifier: Apache-2.0
"""The page's server: what it serves, to whom, and that it reads only."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import socket
from collections.abc import Iterator

import httpx
import msgspec
import pytest

from tao_dynamo.errors import StackError
from tao_dynamo.page.document import Document
from tao_dynamo.page.server import PageServer, is_loopback
from tao_dynamo.page.shared import Shared
from tao_dynamo.page.wire import Snapshot, short_names
from tests.tao_dynamo.page_world import FakeRouter, serving

SITE = FakeRouter(sessions=200)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(SITE) as at:
        yield at


def test_the_page_is_one_document_that_loads_nothing_from_elsewhere(url: str) -> None:
    answer = httpx.get(url)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    page = answer.text.replace("http://www.w3.org/2000/svg", "")
    assert "http://" not in page
    assert "https://" not in page
    assert not re.search(r"<(script|link|img)[^>]*\bsrc=", page)
    assert "innerHTML" not in page
    assert len(answer.content) < 100_000


def test_its_policy_allows_just_its_own_style_and_script(url: str) -> None:
    answer = httpx.get(url)
    policy = answer.headers["content-security-policy"]
    for part in (
        "default-src 'none'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ):
        assert part in policy
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    for name, value in {
        "x-content-type-options": "nosniff",
        "cache-control": "no-store",
        "x-frame-options": "DENY",
    }.items():
        assert answer.headers[name] == value


def test_the_snapshot_is_packed_for_those_who_can_unpack_it_and_comes_back_whole(url: str) -> None:
    packed = httpx.get(f"{url}snapshot.json", headers={"accept-encoding": "gzip"})
    plain = httpx.get(f"{url}snapshot.json", headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 3
    told = msgspec.json.decode(plain.content, type=Snapshot)
    assert told == SITE.snapshot()
    assert [row.place for row in told.sessions if row.state == "waiting"] == list(
        range(1, told.by_state["waiting"] + 1)
    )
    assert "default-src 'none'" in plain.headers["content-security-policy"]


def test_a_session_is_explained_and_an_unknown_one_is_not_found(url: str) -> None:
    known = SITE.rows[0].id
    assert httpx.get(f"{url}explain.json", params={"session": known}).json()["session_id"] == known
    unknown = httpx.get(f"{url}explain.json", params={"session": "<b>"})
    assert unknown.status_code == 404
    assert unknown.json()["error"].startswith("session <b> is not known")
    assert unknown.headers["content-type"].startswith("application/json")
    assert httpx.get(f"{url}explain.json").status_code == 400
    assert httpx.get(f"{url}explain.json", params={"session": "x" * 2000}).status_code == 400


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", ["", "snapshot.json", "explain.json?session=a"])
def test_there_is_nothing_to_write(url: str, method: str, path: str) -> None:
    answer = httpx.request(method, f"{url}{path}")
    assert answer.status_code == 405
    assert "GET" in answer.headers["allow"]


def test_what_is_not_there_is_told_in_json(url: str) -> None:
    answer = httpx.get(f"{url}../../etc/passwd")
    assert answer.status_code == 404
    assert answer.json() == {"error": "404 Not Found"}


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("localhost:8260", True),
        ("127.0.0.1", True),
        ("[::1]:80", True),
        ("tao.localhost", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example:8260", False),
        ("10.0.0.1", False),
    ],
)
def test_a_name_of_another_site_that_leads_to_loopback_is_refused(url: str, host: str, allowed: bool) -> None:
    answer = httpx.get(f"{url}snapshot.json", headers={"host": host})
    assert answer.status_code == (200 if allowed else 403)
    assert is_loopback(host.rpartition(":")[0] if re.search(r":\d+$", host) else host) is allowed


async def test_many_who_look_at_once_cost_one_look() -> None:
    router = FakeRouter()
    gate = asyncio.Event()
    looks = 0

    async def make() -> Snapshot:
        nonlocal looks
        looks += 1
        await gate.wait()
        return router.snapshot()

    now = 0.0
    shared = Shared(make, clock=lambda: now)
    waiting = [asyncio.create_task(shared.get()) for _ in range(50)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # one who leaves does not take it from the others
    gate.set()
    shots = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(shots[0], asyncio.CancelledError)
    assert len({id(shot) for shot in shots[1:]}) == 1
    now = 0.4
    assert await shared.get() is shots[1]
    now = 0.6
    assert await shared.get() is not shots[1]
    assert looks == 2


async def test_a_look_that_takes_long_is_taken_less_often() -> None:
    slow = msgspec.structs.replace(FakeRouter(sessions=1).snapshot(), took_ms=100.0)

    async def make() -> Snapshot:
        return slow

    now = 0.0
    shared = Shared(make, clock=lambda: now)
    for then, made in ((0.0, 1), (0.6, 1), (1.9, 1), (2.1, 2)):
        now = then
        await shared.get()
        assert shared.made == made


async def test_a_look_that_fails_is_told_and_the_next_one_works() -> None:
    router = FakeRouter()
    fail = True

    async def make() -> Snapshot:
        if fail:
            raise ValueError("broken")
        return router.snapshot()

    server = PageServer(Shared(make), router.explain, port=0)
    url = await server.start()
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"{url}snapshot.json")
        assert answer.status_code == 500
        assert answer.json() == {"error": "the router could not be looked at: ValueError: broken"}
        fail = False
        assert (await client.get(f"{url}snapshot.json")).status_code == 200
    await server.close()


async def test_a_port_that_is_taken_costs_the_page_its_usual_port_only() -> None:
    router = FakeRouter()

    async def make() -> Snapshot:
        return router.snapshot()

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = PageServer(Shared(make), router.explain, port=port)
        url = await server.start()
        assert not url.endswith(f":{port}/")
        async with httpx.AsyncClient() as client:
            assert (await client.get(url)).status_code == 200
        await server.close()
    nowhere = PageServer(Shared(make), router.explain, host="203.0.113.7", port=0)
    with pytest.raises(StackError, match=r"cannot be served on 203\.0\.113\.7"):
        await nowhere.start()
    await nowhere.close()


def test_short_names_are_as_short_as_can_be_told_apart() -> None:
    assert short_names(["11112222/0", "33334444/0"]) == {"11112222/0": "2222/0", "33334444/0": "4444/0"}
    assert short_names(["19992222/0", "18882222/1"]) == {"19992222/0": "92222/0", "18882222/1": "82222/1"}
    assert short_names(["12345678/0", "12345678/1"]) == {"12345678/0": "5678/0", "12345678/1": "5678/1"}
    assert short_names(["7/0", "12/0"]) == {"7/0": "7/0", "12/0": "12/0"}
    assert short_names([]) == {}


def test_the_document_is_the_same_each_time() -> None:
    assert Document.load() == Document.load()
