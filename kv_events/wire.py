# SPDX-License-Identifier: Apache-2.0
"""Dynamo's messages as they lie on the bus, and how to read them.

A message is a msgpack envelope whose payload is msgpack again. Reading is tolerant: fields that we do not know
are skipped, event kinds that we do not know are counted, and one event that breaks the format does not cost the
others of its batch. Only a message that is no envelope, or whose payload is no list, raises ``WireError``.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec

from kv_events.types import NodeId
from tao_dynamo.errors import WireError

DEVICE: Final = "device"
"""The tier whose blocks a turn can use at once."""

KV_EVENTS: Final = "kv-events"
KV_METRICS: Final = "kv_metrics"
FORWARD_METRICS: Final = "forward-pass-metrics"
TOOL_EVENTS: Final = "agent-tool-events"

S = TypeVar("S")
U64 = Annotated[int, msgspec.Meta(ge=0)]
Rank = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF_FFFF)]
Blocks = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF_FFFF)]


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """What every publisher wraps around a payload.

    ``sequence`` counts the messages of one publisher from 0; ``published_at`` is the publisher's clock in ms.
    """

    publisher_id: U64
    sequence: U64
    payload: bytes
    published_at: int = 0
    topic: str = ""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A run of blocks, each the child of the one before.

    ``block_hashes`` are the engine's own names (opaque), ``tokens_hashes`` Dynamo's hashes of the blocks' tokens, as
    many; ``parent_hash`` names the parent of the first.
    """

    block_hashes: list[int]
    tokens_hashes: list[int]
    parent_hash: int | None = None
    start_position: int | None = None


class Removed(msgspec.Struct, frozen=True, gc=False):
    """Blocks that left the tier, by the engine's names."""

    block_hashes: list[U64]


class Cleared(msgspec.Struct, frozen=True, gc=False):
    """Every block left the tier."""


class Unknown(msgspec.Struct, frozen=True, gc=False):
    """A kind of event that we do not know, or a cache that belongs to no single worker; ``kind`` says which."""

    kind: str


class KvEvent(msgspec.Struct, frozen=True, gc=False):
    """One change of one node's cache. ``event_id`` counts per node from 1; dumps number theirs otherwise."""

    node: NodeId
    event_id: int
    data: Stored | Removed | Cleared | Unknown
    tier: str = DEVICE


class KvBatch(msgspec.Struct, frozen=True, gc=False):
    """The events of one message.

    ``unknown`` counts those of a kind that we do not know (they stay in ``events``: their ids count), ``malformed``
    those that break the format and are not among them.
    """

    events: list[KvEvent]
    unknown: int = 0
    malformed: int = 0


class KvMetrics(msgspec.Struct, frozen=True, gc=False):
    """Topic ``kv_metrics``: what a node's engine says of its load; ``kv_used_blocks`` are in use now."""

    worker_id: U64
    dp_rank: Rank = 0
    active_decode_blocks: int | None = None
    active_prefill_tokens: int | None = None
    kv_used_blocks: Blocks | None = None

    @property
    def node(self) -> NodeId:
        """The node that it speaks of."""
        return NodeId(self.worker_id, self.dp_rank)


class Scheduled(msgspec.Struct, frozen=True, gc=False):
    """The requests of one forward pass; sums are in tokens."""

    num_prefill_requests: int = 0
    sum_prefill_tokens: int = 0
    sum_prefill_kv_tokens: int = 0
    num_decode_requests: int = 0
    sum_decode_kv_tokens: int = 0


class Queued(msgspec.Struct, frozen=True, gc=False):
    """The requests that wait inside the engine; sums are in tokens."""

    num_prefill_requests: int = 0
    sum_prefill_tokens: int = 0
    num_decode_requests: int = 0
    sum_decode_kv_tokens: int = 0


class ForwardPass(msgspec.Struct, frozen=True, gc=False):
    """Topic ``forward-pass-metrics``: one pass of one node. ``worker_id`` is a string on the wire, ``wall_time`` s."""

    worker_id: str | int
    dp_rank: Rank = 0
    version: int = 0
    counter_id: int = 0
    wall_time: float = 0.0
    scheduled_requests: Scheduled = Scheduled()
    queued_requests: Queued = Queued()

    @property
    def node(self) -> NodeId:
        """The node that it speaks of."""
        return NodeId(int(self.worker_id), self.dp_rank)


class _Block(msgspec.Struct, frozen=True, gc=False):
    block_hash: U64
    tokens_hash: U64


class _Stored(msgspec.Struct, frozen=True, gc=False):
    blocks: list[_Block]
    parent_hash: U64 | None = None
    start_position: int | None = None


class _RawStored(msgspec.Struct, frozen=True, gc=False):
    blocks: msgspec.Raw
    parent_hash: U64 | None = None
    start_position: int | None = None


class _Data(msgspec.Struct, Generic[S], frozen=True, gc=False):
    stored: S | None = None
    removed: Removed | None = None
    cleared: Any = msgspec.UNSET


class _Event(msgspec.Struct, Generic[S], frozen=True, gc=False):
    event_id: U64
    data: _Data[S] | str
    dp_rank: Rank = 0


class _RouterEvent(msgspec.Struct, Generic[S], frozen=True, gc=False):
    worker_id: U64
    event: _Event[S]
    storage_tier: str = DEVICE
    residency_domain: str = "worker"


_CLEARED: Final = Cleared()
_READ_ENVELOPE: Final = msgspec.msgpack.Decoder(Envelope)
_read_short: Final = msgspec.msgpack.Decoder(list[_RouterEvent[_Stored]]).decode
_read_long: Final = msgspec.msgpack.Decoder(list[_RouterEvent[_RawStored]]).decode
_READ_RAWS: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_READ_ONE: Final = msgspec.msgpack.Decoder(_RouterEvent[_Stored])
_READ_DUMP: Final = msgspec.json.Decoder(list[_RouterEvent[_Stored]])
_READ_BLOCKS: Final = msgspec.msgpack.Decoder(list[_Block])
_READ_METRICS: Final = msgspec.msgpack.Decoder(KvMetrics)
_READ_PASS: Final = msgspec.msgpack.Decoder(ForwardPass)
_BAD: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError, ValueError)


def decode_envelope(data: bytes) -> Envelope:
    """Read one message of the bus.

    Raises:
        WireError: it is no envelope.
    """
    try:
        return _READ_ENVELOPE.decode(data)
    except _BAD as error:
        raise WireError(f"no envelope in a message of {len(data)} bytes: {error}") from error


def decode_kv_events(payload: bytes) -> KvBatch:
    """Read the payload of topic ``kv-events``.

    Raises:
        WireError: it is no list of anything.
    """
    malformed = 0
    try:
        items = (_read_short if len(payload) < _SHORT else _read_long)(payload)
        if len(items) == 1:
            event = _plain(items[0])
            return KvBatch([event], 1 if type(event.data) is Unknown else 0)
        events = [_plain(item) for item in items]
    except _BAD:
        events, malformed = _one_by_one(payload)
    return KvBatch(events, sum(type(event.data) is Unknown for event in events), malformed)


def decode_kv_metrics(payload: bytes) -> KvMetrics:
    """Read the payload of topic ``kv_metrics``.

    Raises:
        WireError: it cannot be read.
    """
    try:
        return _READ_METRICS.decode(payload)
    except _BAD as error:
        raise WireError(f"unreadable kv_metrics: {error}") from error


def decode_forward_pass(payload: bytes) -> ForwardPass:
    """Read the payload of topic ``forward-pass-metrics``.

    Raises:
        WireError: it cannot be read, or its worker id is no number.
    """
    try:
        read = _READ_PASS.decode(payload)
        int(read.worker_id)
    except _BAD as error:
        raise WireError(f"unreadable forward-pass-metrics: {error}") from error
    return read


def decode_dump(text: str | bytes) -> list[KvEvent]:
    """Read what ``KvRouter.dump_events()`` returns: JSON, the stored events of every node; other kinds are left out.

    Raises:
        WireError: it is no JSON list of events.
    """
    try:
        events = [_plain(item) for item in _READ_DUMP.decode(text)]
    except _BAD as error:
        raise WireError(f"unreadable dump: {error}") from error
    return [event for event in events if type(event.data) is Stored]


def _one_by_one(payload: bytes) -> tuple[list[KvEvent], int]:
    try:
        raws = _READ_RAWS.decode(payload)
    except _BAD as error:
        raise WireError(f"no list of events in a payload of {len(payload)} bytes: {error}") from error
    good: list[KvEvent] = []
    for raw in raws:
        try:
            good.append(_plain(_READ_ONE.decode(raw)))
        except _BAD:  # noqa: PERF203 - one bad event must not cost the others
            continue
    return good, len(raws) - len(good)


def _plain(item: _RouterEvent[Any]) -> KvEvent:
    """Return the event without its wrapping."""
    wired = item.event
    data = wired.data
    kind: Stored | Removed | Cleared | Unknown
    if item.residency_domain != "worker":
        kind = Unknown(f"residency_domain {item.residency_domain}")
    elif isinstance(data, str):
        kind = _CLEARED if data == "cleared" else Unknown(data)
    elif (stored := data.stored) is not None:
        if type(stored) is _Stored:
            names, tokens = [], []
            for block in stored.blocks:
                names.append(block.block_hash)
                tokens.append(block.tokens_hash)
        else:
            names, tokens = _read_blocks(stored.blocks)
        kind = Stored(names, tokens, stored.parent_hash, stored.start_position)
    elif data.removed is not None:
        kind = data.removed
    else:
        kind = Unknown("map") if data.cleared is msgspec.UNSET else _CLEARED
    return KvEvent(_new_tuple(NodeId, (item.worker_id, wired.dp_rank)), wired.event_id, kind, item.storage_tier)


def _read_blocks(raw: msgspec.Raw) -> tuple[list[int], list[int]]:
    """Read the blocks of a stored event; those that Dynamo wrote without a detour.

    There every block takes the same 57 bytes. Whether a list has that form is told by its length, by its first
    block and by the marks between the numbers of all; if it has not, it is read the ordinary way.
    """
    data = bytes(raw)
    head = 1 if data[0] < 0xDC else 3 if data[0] == 0xDC else 5
    count, rest = divmod(len(data) - head, _WIDTH)
    if (
        not rest
        and data.startswith(_KEY, head)
        and all(data[head + at :: _WIDTH] == mark * count for at, mark in _MARKS)
    ):
        flat: list[int] = []
        whole, rest = divmod(count, _AT_ONCE)
        for _ in range(whole):
            flat += _UNPACK.unpack_from(data, head)
            head += _UNPACK.size
        flat += _unpack(rest).unpack_from(data, head)
        return flat[::2], flat[1::2]
    blocks = _READ_BLOCKS.decode(raw)
    return [block.block_hash for block in blocks], [block.tokens_hash for block in blocks]


@lru_cache(maxsize=64)
def _unpack(blocks: int) -> Struct:
    return Struct(">" + "13xQ13xQ15x" * blocks)


_new_tuple = tuple.__new__
_SHORT: Final = 1500
_WIDTH: Final = 57
_KEY: Final = b"\x83\xaablock_hash\xcf"
_MARKS: Final = ((12, b"\xcf"), (33, b"\xcf"), (56, b"\xc0"))
_AT_ONCE: Final = 64
_UNPACK: Final = _unpack(_AT_ONCE)
