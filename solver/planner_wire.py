# SPDX-License-Identifier: Apache-2.0
"""What crosses between the router and its planner process: length-prefixed msgpack frames.

A snapshot crosses by columns, its numbers as bytes, which is what keeps 1,024 candidates on 64 nodes under a
millisecond both ways: the sender has to read it by columns anyway to check it, and the solver wants nothing else.
"""

from __future__ import annotations

import struct

import msgspec
import numpy as np

from solver.columns import Columns
from solver.problem import Plan
from tao_dynamo.errors import WireError

LENGTH = struct.Struct("<I")
MAX_FRAME = 256 * 1024 * 1024


class Request(msgspec.Struct, frozen=True, array_like=True):
    """One snapshot, as in :class:`solver.columns.Columns`, to solve within ``budget_ms`` milliseconds."""

    node_ids: list[str]
    candidate_ids: list[str]
    # Not `bytes`: the arrays made from it must be writable, or every compiled loop would be compiled once more.
    numbers: bytearray
    quantum: int
    seed: int
    balance: bool
    tiered: bool
    budget_ms: float
    method: str

    def columns(self) -> Columns:
        """The snapshot.

        Raises:
            WireError: the numbers do not make up the columns.
        """
        given = self.quantum, self.seed, self.balance, self.tiered
        if len(self.numbers) % 8 == 0:
            columns = Columns(self.node_ids, self.candidate_ids, np.frombuffer(self.numbers, np.int64), *given)
            if columns.coherent():
                return columns
        raise WireError(
            f"{len(self.numbers)} bytes are no columns of {len(self.candidate_ids)} candidates"
            f" and {len(self.node_ids)} nodes"
        )


def request(columns: Columns, budget_ms: float, method: str) -> Request:
    """The request to solve a snapshot."""
    given = columns.quantum, columns.seed, columns.balance, columns.tiered
    numbers = bytearray(columns.numbers)
    return Request(list(columns.node_ids), list(columns.candidate_ids), numbers, *given, budget_ms, method)


class Ready(msgspec.Struct, frozen=True, tag="ready", array_like=True):
    """The child is warm; ``device`` names its GPU, empty without one."""

    device: str


class Solved(msgspec.Struct, frozen=True, tag="solved", array_like=True):
    """A plan; ``busy_s`` is the solve alone, ``device_faults`` counts the CUDA errors that this solve has survived."""

    plan: Plan
    busy_s: float
    device_faults: int


class Failed(msgspec.Struct, frozen=True, tag="failed", array_like=True):
    """The solve raised; the child lives on."""

    error: str


Reply = Ready | Solved | Failed

_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(Request)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def frame(message: Request | Reply) -> bytes:
    """Pack one message with its length before it.

    Raises:
        WireError: it holds something msgpack cannot carry, such as an integer beyond 64 bits.
    """
    try:
        body = _encoder.encode(message)
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(f"cannot pack {type(message).__name__}: {error}") from error
    return LENGTH.pack(len(body)) + body


def length_of(head: bytes) -> int:
    """Read a frame's length from its first four bytes.

    Raises:
        WireError: the length is beyond what any snapshot has.
    """
    (length,) = LENGTH.unpack(head)
    if length > MAX_FRAME:
        raise WireError(f"frame of {length} bytes; at most {MAX_FRAME} are taken")
    return int(length)


def read_request(body: bytes) -> Request:
    """Unpack what the child gets.

    Raises:
        WireError: it is no request, or a field has the wrong type; the message names the field.
    """
    try:
        return _requests.decode(body)
    except msgspec.MsgspecError as error:
        raise WireError(str(error)) from error


def read_reply(body: bytes) -> Reply:
    """Unpack what the parent gets.

    Raises:
        WireError: it is no reply.
    """
    try:
        return _replies.decode(body)
    except msgspec.MsgspecError as error:
        raise WireError(str(error)) from error
