# SPDX-License-Identifier: Apache-2.0
"""The bus with TLS and credentials: everything of ours gets in with the right ones, and says what is wrong else."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from launch.stack import Stack
from tao_dynamo.errors import WireError
from tests.launch.secure_bus import make_certificates, make_credentials, user_key
from tests.tool_hooks.bus import Server, environment
from tool_hooks.call import ToolCall
from tool_hooks.events import encode_envelope
from tool_hooks.nats_wire import NatsConnection, NatsOptions
from tool_hooks.publisher import Publisher

pytestmark = [pytest.mark.nats, pytest.mark.timeout(400)]

TOKEN = "t0k" + "en"
BIN = Path(sys.executable).parent
USERS = """
authorization {
  users = [
    { user: dynamo, password: "d-secret" }
    { user: watcher, password: "w-secret", permissions: { publish: { deny: ">" }, subscribe: "namespace.>" } }
    { user: hooks, password: "h-secret",
      permissions: { publish: "namespace.tao.agent-tool-events", subscribe: { deny: ">" } } }
  ]
}
"""


class SecureBus:
    """A nats-server with TLS that asks for a client certificate and a user, and the variables that please it."""

    def __init__(self, folder: Path) -> None:
        make_certificates(folder)
        config = folder / "nats.conf"
        config.write_text(
            f'{USERS}\ntls {{ cert_file: "{folder}/server.pem", key_file: "{folder}/server.key",'
            f' ca_file: "{folder}/ca.pem", verify: true }}\n'
        )
        self.server = Server("-c", str(config)).start()
        self.url = self.server.url.replace("nats://", "tls://")
        self.tls = {
            "NATS_SERVER": self.url,
            "NATS_TLS_CA_CERT_PATH": f"{folder}/ca.pem",
            "NATS_TLS_CLIENT_CERT_PATH": f"{folder}/client.pem",
            "NATS_TLS_CLIENT_KEY_PATH": f"{folder}/client.key",
        }

    def env(self, user: str, password: str | None = None) -> dict[str, str]:
        return {**self.tls, "NATS_AUTH_USERNAME": user, "NATS_AUTH_PASSWORD": password or f"{user[0]}-secret"}


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBus]:
    made = SecureBus(tmp_path_factory.mktemp("bus"))
    yield made
    made.server.stop()


def run(command: list[str], env: dict[str, str]) -> tuple[int, str]:
    """Exit code and what was said, of one of our commands."""
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        env=environment(None, **env),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


TOLD = ["tao-tool", "check"]
TAIL = ["tao-events", "tail", "--seconds", "0.2"]


@pytest.mark.parametrize("command", [TOLD, TAIL], ids=["tao-tool", "tao-events"])
def test_the_right_certificates_and_credentials_get_in(bus: SecureBus, command: list[str]) -> None:
    code, said = run(command, bus.env("hooks" if command is TOLD else "watcher"))
    assert code == 0, said
    assert said == (f"tao-tool check: {bus.url} takes us\n" if command is TOLD else "")


@pytest.mark.parametrize("command", [TOLD, TAIL], ids=["tao-tool", "tao-events"])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"NATS_AUTH_PASSWORD": "no"}, "NATS_AUTH_USERNAME, NATS_AUTH_PASSWORD: got 'dynamo', want credentials that"),
        ({"NATS_AUTH_USERNAME": ""}, "NATS_AUTH_TOKEN, NATS_AUTH_NKEY or NATS_AUTH_CREDENTIALS_FILE: got None, want"),
        ({"NATS_TLS_CA_CERT_PATH": ""}, "NATS_TLS_CA_CERT_PATH: got None, want the CA that signed the certificate of"),
        ({"NATS_TLS_CA_CERT_PATH": "/no/ca.pem"}, "NATS_TLS_CA_CERT_PATH: got '/no/ca.pem', want a readable PEM file"),
        ({"NATS_TLS_CLIENT_CERT_PATH": ""}, "NATS_TLS_CLIENT_CERT_PATH"),
    ],
    ids=["wrong password", "no credentials", "no CA", "CA not there", "no client certificate"],
)
def test_the_wrong_ones_give_one_line(bus: SecureBus, command: list[str], change: dict[str, str], says: str) -> None:
    code, said = run(command, bus.env("dynamo", "d-secret") | change)
    # The alert about a client certificate can come after the end of the connection; then it is a guess, and no 2.
    assert code == 2 or "if it asks for a client certificate" in said, said
    assert said.count("\n") == 1, said
    assert said.startswith(f"{command[0]}")
    assert says in said
    assert "secret" not in said


def test_dynamo_serve_and_the_router_say_it_too(bus: SecureBus, tmp_path: Path) -> None:
    env = bus.env("dynamo", "no")
    code, said = run(["dynamo", "serve", "graphs/tao_agg:Frontend", "--http-port", "0"], env)
    assert (code, said.count("\n")) == (2, 1), said
    assert "NATS_AUTH_USERNAME, NATS_AUTH_PASSWORD: got 'dynamo', want credentials that" in said
    env |= {"DYN_DISCOVERY_BACKEND": "file", "DYN_FILE_KV": str(tmp_path), "DYN_EVENT_PLANE": "nats", "DYN_LOG": "off"}
    code, said = run(["tao-router", "--endpoint", "workers.backend.generate"], env)
    assert code == 2, said
    assert said.splitlines()[-1].startswith("tao-router: NATS_AUTH_USERNAME, NATS_AUTH_PASSWORD: got 'dynamo', want")
    assert "Traceback" not in said


RUNTIME = "import asyncio; from dynamo.runtime import DistributedRuntime as R; loop = asyncio.new_event_loop()"


@pytest.mark.parametrize("kind", ["token", "nkey", "credentials file"])
def test_every_kind_of_credentials(tmp_path: Path, kind: str) -> None:
    """The same variable gets the hooks, the reader of events and Dynamo itself in."""
    config, env = tmp_path / "nats.conf", {}
    if kind == "token":
        config.write_text(f"authorization {{ token: {TOKEN} }}")
        env["NATS_AUTH_TOKEN"] = TOKEN
    elif kind == "nkey":
        key = user_key()
        config.write_text(f"authorization {{ users = [ {{ nkey: {key.public} }} ] }}")
        env["NATS_AUTH_NKEY"] = key.seed
    else:
        config.write_text(make_credentials(tmp_path / "user.creds"))
        env["NATS_AUTH_CREDENTIALS_FILE"] = str(tmp_path / "user.creds")
    server = Server("-c", str(config)).start()
    try:
        env["NATS_SERVER"] = server.url
        assert run(TOLD, env) == (0, f"tao-tool check: {server.url} takes us\n")
        assert run(TAIL, env) == (0, "")
        planes = {"DYN_FILE_KV": str(tmp_path), "DYN_EVENT_PLANE": "nats", "DYN_LOG": "off"}
        code, said = run(["python", "-c", f"{RUNTIME}; R(loop, 'file', 'tcp')"], env | planes)
        assert code == 0, said
        code, said = run(TOLD, {"NATS_SERVER": server.url})
        assert code == 2
        assert "NATS_AUTH_TOKEN" in said
    finally:
        server.stop()


def kv_event() -> bytes:
    data = {"stored": {"parent_hash": None, "start_position": None, "blocks": [{"block_hash": 1, "tokens_hash": 1}]}}
    event = {"event_id": 1, "dp_rank": 0, "data": data}
    payload = msgspec.msgpack.encode([{"worker_id": 1, "storage_tier": "device", "event": event}])
    return encode_envelope(payload, publisher_id=1, sequence=0, published_at=1)


@pytest.mark.dynamo
def test_a_graph_over_tls_hears_its_hooks_and_no_hook_speaks_for_a_worker(
    bus: SecureBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in bus.env("dynamo").items():
        monkeypatch.setenv(name, value)
    with Stack("graphs/tao_agg:Frontend", workers=1) as stack:
        assert stack.nats_url == bus.url
        ask(stack, "known")
        hooks = bus.env("hooks") | {"DYN_NAMESPACE": "tao"}
        assert run(["tao-tool", "run", "--session", "known", "--", "echo", "hi"], hooks) == (0, "hi\n")
        heard = until(stack, lambda status: status["tool_events"].get("tool_end", 0) == 1)
        assert heard["tool_events"] == {"tool_start": 1, "tool_end": 1}
        assert heard["bus"]["connected"]

        # Whoever names a session that no turn was served of does not make one.
        publisher = Publisher(namespace="tao", options=NatsOptions.from_env(hooks))
        for number in range(50):
            with ToolCall("bash", session_id=f"stranger-{number}", publisher=publisher):
                pass
        assert publisher.close(20), publisher.last_error
        unknown = "tool_events_unknown_session"
        seen = until(stack, lambda status: status["bus"]["counters"].get(unknown, 0) == 100)
        assert sum(seen["sessions"].values()) == 1

        known = stack.status()["index"]
        forger = NatsConnection(bus.url, NatsOptions.from_env(hooks))
        with pytest.raises(WireError, match="Permissions Violation for Publish"):
            forger.publish("namespace.workers.component.backend.endpoint.generate.kv-events", [kv_event()])
        forger.close()
        assert stack.status()["index"] == known
        ask(stack, "known")


def ask(stack: Stack, session: str) -> None:
    body = {"model": stack.model_name, "prompt": "Hello", "max_tokens": 2}
    answer = httpx.post(f"{stack.url}/v1/completions", json=body, headers={"x-dynamo-session-id": session}, timeout=60)
    assert answer.status_code == 200, answer.text


def until(stack: Stack, condition: Callable[[Any], bool], timeout_s: float = 60.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while True:
        status = stack.status()
        if condition(status):
            return status
        assert time.monotonic() < deadline, status
        time.sleep(0.05)
