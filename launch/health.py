# SPDX-License-Identifier: Apache-2.0
"""Probes: small questions that tell whether a child is healthy yet.

A probe answers ``""`` for yes, and else says in a few words what is still missing. Each answers within two seconds.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable
from typing import Any

Probe = Callable[[], str]

_TIMEOUT_S = 2.0


def get_json(port: int, path: str, *, host: str = "127.0.0.1", timeout_s: float = _TIMEOUT_S) -> Any:
    """The JSON that a local server answers to GET, whatever the status code.

    Raises:
        OSError: nobody answers, or not in time.
        ValueError: the answer is no JSON.
    """
    return _ask(host, port, "GET", path, None, timeout_s)[1]


def post_json(
    port: int, path: str, body: object, *, host: str = "127.0.0.1", timeout_s: float = 10.0
) -> tuple[int, Any]:
    """POST a JSON body; returns the status code and the JSON answered.

    Raises:
        OSError: nobody answers, or not in time.
        ValueError: the answer is no JSON.
    """
    return _ask(host, port, "POST", path, body, timeout_s)


def _ask(host: str, port: int, verb: str, path: str, body: object, timeout_s: float) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        headers = {} if body is None else {"Content-Type": "application/json"}
        connection.request(verb, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    except http.client.HTTPException as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
    finally:
        connection.close()


def nats_answers(host: str, port: int) -> bool:
    """Whether a NATS server greets on that address (it sends INFO first)."""
    try:
        with socket.create_connection((host, port), timeout=_TIMEOUT_S) as connection:
            return connection.recv(4) == b"INFO"
    except OSError:
        return False


def nats_ready(host: str, port: int) -> Probe:
    """Ready once the NATS server greets."""
    return lambda: "" if nats_answers(host, port) else "no greeting yet"


def endpoint_ready(port: int, endpoint: str) -> Probe:
    """Ready once a Dynamo process says on its system port that it serves the endpoint of that name."""

    def probe() -> str:
        try:
            answer = get_json(port, "/health")
        except (OSError, ValueError):
            return "its system port does not answer yet"
        endpoints = answer.get("endpoints", {}) if isinstance(answer, dict) else {}
        return "" if endpoints.get(endpoint) == "ready" else f"endpoint {endpoint} is not served yet"

    return probe


def frontend_ready(port: int, host: str, model: str, namespace: str, instances: int) -> Probe:
    """Ready once the frontend lists the model and sees that many ``generate`` instances in the namespace."""

    def probe() -> str:
        try:
            models = get_json(port, "/v1/models", host=host)
            seen = get_json(port, "/health", host=host)
        except (OSError, ValueError):
            return "its HTTP port does not answer yet"
        names = [entry.get("id") for entry in models.get("data", [])]
        if model not in names:
            return f"model {model} is not listed yet"
        count = sum(
            1
            for instance in seen.get("instances", [])
            if instance.get("namespace") == namespace and instance.get("endpoint") == "generate"
        )
        return "" if count >= instances else f"{count} of {instances} instances seen"

    return probe
