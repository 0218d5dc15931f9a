# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import json
from pathlib import Path

import msgspec
import pytest

from kv_events import cli, recording
from kv_events.chain import block_hashes, sequence_hashes
from kv_events.inspection.describe import describe

SUBJECT = "namespace.w.component.backend.endpoint.generate.kv-events"
TOKENS = list(range(64))


def stored(worker: int, blocks: int, sequence: int = 0) -> recording.Message:
    tokens = block_hashes(TOKENS, 16)
    names = sequence_hashes(tokens)
    run = [{"block_hash": n, "tokens_hash": t} for n, t in list(zip(names, tokens, strict=True))[:blocks]]
    data = {"stored": {"parent_hash": None, "start_position": None, "blocks": run}}
    event = {"event_id": sequence + 1, "dp_rank": 0, "data": data}
    payload = msgspec.msgpack.encode([{"worker_id": worker, "storage_tier": "device", "event": event}])
    envelope = {"publisher_id": worker, "sequence": sequence, "published_at": 0, "topic": "kv-events"}
    return recording.Message(float(sequence), SUBJECT, msgspec.msgpack.encode(envelope | {"payload": payload}))


@pytest.mark.parametrize("name", ["bus.jsonl", "bus.jsonl.gz"])
def test_overlap_answers_from_a_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    file, tokens = tmp_path / name, tmp_path / "tokens.json"
    with recording.open_text(file, "wt") as out:
        for message in (stored(2**63 + 5, 3), stored(9, 1)):
            recording.write(out, message)
    tokens.write_text(json.dumps({"block_size": 16, "sessions": {"s": TOKENS, "other": [9] * 32}}))
    asked = ["overlap", str(file), "--tokens", str(tokens), "--json"]
    assert cli.main(asked) == 0
    node = f"{2**63 + 5}/0"
    assert json.loads(capsys.readouterr().out) == {"s": {node: 3, "9/0": 1}, "other": {node: 0, "9/0": 0}}
    assert cli.main([*asked, "--upto", "1"]) == 0
    assert json.loads(capsys.readouterr().out) == {"s": {node: 3}, "other": {node: 0}}


@pytest.mark.parametrize(
    ("line", "says"),
    [("not json", "bus.jsonl:1"), ('{"t": 1, "subject": "x", "data": "***"}', "base64"), (None, "readable recording")],
)
def test_a_bad_recording_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str | None, says: str
) -> None:
    file, tokens = tmp_path / "bus.jsonl", tmp_path / "tokens.json"
    tokens.write_text('{"block_size": 16, "sessions": {}}')
    if line is not None:
        file.write_text(line + "\n")
    assert cli.main(["overlap", str(file), "--tokens", str(tokens)]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_events_become_one_record_each_and_garbage_says_so() -> None:
    (record,) = describe(stored(7, 2))
    assert (record["kind"], record["node"], record["event_id"], len(record["blocks"])) == ("stored", "7/0", 1, 2)
    tool = {
        "event_type": "tool_start",
        "agent_context": {"session_id": "s1"},
        "tool": {"tool_call_id": "c", "tool_class": "bash"},
    }
    envelope = {"publisher_id": 1, "sequence": 0, "payload": msgspec.msgpack.encode(tool)}
    message = recording.Message(0.5, "namespace.tao.agent-tool-events", msgspec.msgpack.encode(envelope))
    (record,) = describe(message)
    assert (record["kind"], record["session"], record["tool_class"]) == ("tool_start", "s1", "bash")
    (record,) = describe(recording.Message(0.0, SUBJECT, base64.b64decode("/////w==")))
    assert record["kind"] == "unreadable"


def test_no_bus_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tail", "--nats", "nats://127.0.0.1:9", "--seconds", "1"]) == 1
    assert "no NATS at nats://127.0.0.1:9" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["tail", "top", "check"])
def test_an_address_of_another_kind_is_refused_by_name(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main([command, "--nats", "nats://a:1,http://127.0.0.1:4222"]) == 2
    assert "--nats: got 'http://127.0.0.1:4222', want an address such as nats://localhost:4222" in (
        capsys.readouterr().err
    )
    monkeypatch.setenv("NATS_SERVER", "https://b")
    assert cli.main([command]) == 2
    assert "NATS_SERVER: got 'https://b'" in capsys.readouterr().err
