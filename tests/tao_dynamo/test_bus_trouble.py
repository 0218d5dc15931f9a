# SPDX-License-Identifier: Apache-2.0
"""Why the bus does not take us, in words."""

from __future__ import annotations

import ssl

import pytest

from tao_dynamo.bus_trouble import CERT, bus_trouble
from tao_dynamo.errors import StackError

HINT = "if it asks for a client certificate"


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError(104, "Connection reset by peer"),
        BrokenPipeError(32, "Broken pipe"),
        ssl.SSLEOFError(8, "EOF occurred in violation of protocol (_ssl.c:2406)"),
        OSError("nats: connection closed"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_tls_connection_that_ends_hints_at_the_client_certificate_unless_one_is_set(error: Exception) -> None:
    said = bus_trouble(error, "tls://bus:4222", {})
    assert isinstance(said, StackError)
    assert HINT in str(said)
    assert HINT not in str(bus_trouble(error, "tls://bus:4222", {CERT: "mine.pem"}))
    assert HINT not in str(bus_trouble(error, "nats://bus:4222", {}))


def test_a_refused_connection_is_no_question_of_certificates() -> None:
    said = bus_trouble(ConnectionRefusedError(111, "Connect call failed"), "tls://u:secret@bus:4222", {})
    assert HINT not in str(said)
    assert "secret" not in str(said)
