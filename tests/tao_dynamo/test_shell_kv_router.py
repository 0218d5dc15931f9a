# SPDX-License-Identifier: Apache-2.0
"""Dynamo's own KV router is there while it is asked."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any, ClassVar

import pytest

from tao_dynamo.shell import kv_router
from tao_dynamo.shell.kv_router import OnCall


class FakeRouter:
    """Knows everything some time after it was made."""

    made: ClassVar[list[weakref.ref[FakeRouter]]] = []

    def __init__(self) -> None:
        self.made.append(weakref.ref(self))
        self.born = asyncio.get_running_loop().time()

    async def dump_events(self) -> str:
        return str(asyncio.get_running_loop().time() - self.born >= kv_router.WARM_S)

    async def best_worker(self, *_: Any, **__: Any) -> tuple[int, int, int]:
        return 7, 0, 3

    async def get_overlap_scores(self, *_: Any) -> Any:
        return {}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeRouter.made.clear()
    monkeypatch.setattr(kv_router, "WARM_S", 0.05)
    monkeypatch.setattr(kv_router, "IDLE_S", 0.2)


async def test_it_is_asked_only_once_it_knows_what_the_workers_hold() -> None:
    on_call = OnCall(FakeRouter)
    assert await asyncio.gather(on_call.dump_events(), on_call.dump_events()) == ["True", "True"]
    assert await (await on_call.get()).best_worker([1], None, cache_namespace=None) == (7, 0, 3)
    assert len(FakeRouter.made) == 1
    on_call.let_go()


async def test_it_is_let_go_when_nobody_asks_and_made_again_when_somebody_does() -> None:
    on_call = OnCall(FakeRouter)
    await on_call.get()
    for _ in range(400):
        gc.collect()
        if FakeRouter.made[0]() is None:
            break
        await asyncio.sleep(0.01)
    assert FakeRouter.made[0]() is None
    assert await on_call.dump_events() == "True"
    assert len(FakeRouter.made) == 2
    on_call.let_go()
