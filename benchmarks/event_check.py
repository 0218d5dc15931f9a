# SPDX-License-Identifier: Apache-2.0
"""Whether KV events come from every worker of a running graph, looked at before anything is measured."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

import msgspec
import nats

from benchmarks.http_stream import Target, events
from kv_events.wire import KV_EVENTS, Stored, decode_envelope, decode_kv_events
from tao_dynamo.errors import StackError

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from launch.stack import Stack

_PROBES = 2
"""Requests at once for each worker."""
_PROBE_TOKENS = 256


async def kv_events_flow(stack: Stack, workers: int, *, vocabulary: tuple[int, int], timeout_s: float = 90.0) -> int:
    """Ask until every worker has announced blocks that it stored; returns how many did.

    This warms the engines up as well: each has then computed a prompt and sampled a token.

    Raises:
        StackError: some worker stayed silent.
    """
    heard: set[int] = set()

    async def take(message: Msg) -> None:
        for event in decode_kv_events(decode_envelope(message.data).payload).events:
            if isinstance(event.data, Stored):
                heard.add(event.node.worker_id)

    bus = await nats.connect(stack.nats_url)
    try:
        subject = f"namespace.{stack.worker_namespace}.component.backend.endpoint.generate.{KV_EVENTS}"
        await bus.subscribe(subject, cb=take)
        await bus.flush()
        target = Target(stack.url, "/v1/completions")
        deadline = time.monotonic() + timeout_s
        while len(heard) < workers:
            if time.monotonic() > deadline:
                raise StackError(
                    f"KV events of {len(heard)} of {workers} workers within {timeout_s:g} s; nothing measured"
                )
            await asyncio.gather(*(_probe(target, stack.model_name, vocabulary) for _ in range(_PROBES * workers)))
            await asyncio.sleep(0.2)
    finally:
        await bus.close()
    return len(heard)


async def _probe(target: Target, model: str, vocabulary: tuple[int, int]) -> None:
    prompt = random.choices(range(*vocabulary), k=_PROBE_TOKENS)
    body = msgspec.json.encode({"model": model, "prompt": prompt, "max_tokens": 2, "stream": True})
    async for _ in events(target, body, {}):
        pass
