# SPDX-License-Identifier: Apache-2.0
"""What crosses between the router and its planner process: length-prefixed msgpack frames.

msgspec packs the plain dataclasses of ``solver.problem`` as they are, in C, which is what keeps 1,024
candidates on 64 nodes under a millisecond both ways; it also checks every type on the way in, so a
broken snapshot is refused by field instead of reaching a kernel.
"""

from __future__ import annotations

import struct

import msgspec

from solver.problem import Plan, Problem
from tao_dynamo.errors import WireError

LENGTH = struct.Struct("<I")
MAX_FRAME = 256 * 1024 * 1024


class Request(msgspec.Struct, frozen=True, array_like=True):
    """One snapshot to solve within ``budget_ms`` milliseconds."""

    problem: Problem
    budget_ms: float
    method: str


class Ready(msgspec.Struct, frozen=True, tag="ready", array_like=True):
    """The child is warm; ``device`` names its GPU, empty without one."""

    device: str


class Solved(msgspec.Struct, frozen=True, tag="solved", array_like=True):
    """A plan; ``busy_s`` is the solve alone, ``device_faults`` counts the CUDA errors that this solve has survived."""

    plan: Plan
    busy_s: float
    device_faults: int


class Refused(msgspec.Struct, frozen=True, tag="refused", array_like=True):
    """The snapshot breaks a rule: the three fields of a ``ProblemError``, the value as its repr."""

    where: str
    got: str
    want: str


class Failed(msgspec.Struct, frozen=True, tag="failed", array_like=True):
    """The solve raised; the child lives on."""

    error: str


Reply = Ready | Solved | Refused | Failed

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
