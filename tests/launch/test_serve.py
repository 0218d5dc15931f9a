# SPDX-License-Identifier: Apache-2.0
"""The command line: what it refuses, in one line and with which exit code, and what it would run."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from launch import cli, serve
from tests.launch.conftest import alive, wait_until
from tests.tool_hooks.bus import Server

GRAPH = "graphs/round_robin_agg:Frontend"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("DYN_")] + ["NATS_SERVER"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(signal, "signal", lambda *_: None)


def run(*words: str) -> int:
    try:
        return serve.main(words)
    except SystemExit as stopped:
        return int(str(stopped.code))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--worker", "3"], "unknown flag or argument --worker; did you mean --workers?"),
        (["--frobnicate"], "unknown flag or argument --frobnicate; see --help"),
        (["--workers", "0"], "--workers: got 0, want 1 or more"),
        (["--workers", "two"], "--workers: got 'two', want a number"),
        (["--engine", "tgi"], "--engine: got 'tgi', want one of mocker, vllm, vllm-cpu"),
        (["--model", "/no/such/model"], "--model: got '/no/such/model', want a model folder that is there"),
        (["--engine", "vllm"], "--model: got 'nothing', want a model folder for --engine vllm"),
        (["--Wroker.x=1"], "got 'Wroker', want a service of it: Frontend, Worker, or Common"),
        (["--Worker.endpoint=a.b.c"], "Worker.endpoint: got 'a.b.c', want the graph's own flag --worker-namespace"),
        (["--Worker.ServiceArgs.workers=0"], "Worker.ServiceArgs.workers: got 0, want 1 or more"),
        (["--Frontend.port=x"], "Frontend.port: got 'x', want 0 to 65535"),
        (["-f", "/no/such.yaml"], "-f: got '/no/such.yaml', want a file that can be read"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(GRAPH, "--http-port", "0", *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("dynamo serve: error: ")
    assert complaint in err
    assert err.count("\n") == 1


def test_a_port_in_use_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run(GRAPH, "--http-port", str(port)) == 2
    err = capsys.readouterr().err
    assert (
        err
        == f"dynamo serve: error: --http-port: got {port}, want a port that is free on 127.0.0.1; this one is in use\n"
    )


def test_a_dry_run_minds_no_port_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert run(GRAPH, "--http-port", str(taken.getsockname()[1]), "--dry-run") == 0
    assert "# frontend" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("--TaoRouter.tao-frobnicate=1", "TaoRouter: got '--tao-frobnicate 1 (did you mean "),
        ("--TaoRouter.tao-max-waiting=-3", "--tao-max-waiting"),
    ],
)
def test_a_wrong_option_of_the_router_is_found_before_anything_starts(
    word: str, complaint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run("graphs/tao_agg:Frontend", "--http-port", "0", "--run-dir", str(tmp_path / "run"), word) == 2
    out, err = capsys.readouterr()
    assert "healthy" not in out
    assert err.startswith("dynamo serve: error: ")
    assert complaint in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_missing_package_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    assert run(GRAPH, "--http-port", "0", "--engine-python", str(python)) == 1
    assert f"dynamo serve: error: no module dynamo.mocker in {python}: install" in capsys.readouterr().err
    assert run(GRAPH, "--http-port", "0", "--engine-python", str(tmp_path / "none")) == 2
    assert "want a Python that can be run (No such file or directory)" in capsys.readouterr().err


def commands(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, list[str]]:
    """What ``--dry-run`` says, by process."""
    assert run(*words, "--http-port", "0", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    return {name[2:]: shlex.split(line) for name, line in zip(lines[1::2], lines[2::2], strict=True)}


def test_a_dry_run_starts_nothing_and_shows_all(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shown = commands(capsys, "graphs/tao_agg:Frontend", "--run-dir", str(tmp_path / "run"))
    assert list(shown) == ["nats", "worker-0", "worker-1", "tao-router", "frontend"]
    assert not (tmp_path / "run").exists()
    assert "dyn://workers.backend.generate" in shown["worker-0"]
    assert shown["tao-router"][shown["tao-router"].index("--endpoint") + 1] == "workers.backend.generate"
    assert shown["frontend"][shown["frontend"].index("--namespace") + 1] == "tao"


def test_options_of_services_reach_their_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "Common: {speedup-ratio: 2}\n"
        "Worker: {num-gpu-blocks-override: 64, common-configs: [speedup-ratio], "
        "ServiceArgs: {workers: 1, envs: {A: b}}}\n"
        "KvRouter: {router-temperature: 0.5}\nFrontend: {router-mode: random}\n"
    )
    shown = commands(capsys, "graphs/kv_agg:Frontend", "-f", str(file), "--Worker.num-gpu-blocks-override=128")
    assert list(shown) == ["nats", "worker-0", "frontend"]
    worker, frontend = shown["worker-0"], shown["frontend"]
    assert "A=b" in worker
    assert worker[worker.index("--num-gpu-blocks-override") + 1] == "128"
    assert worker[worker.index("--speedup-ratio") + 1] == "2"
    assert frontend[frontend.index("--router-temperature") + 1] == "0.5"
    # The user's word comes last, and so wins.
    assert frontend[len(frontend) - frontend[::-1].index("--router-mode")] == "random"
    assert frontend[frontend.index("--namespace") + 1] == "workers"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--namespace", "workers"], "got 'workers', want another one than that of the workers, 'workers'"),
        (["--worker-namespace", "tao"], "got 'tao', want another one than that of the workers, 'tao'"),
        (["--namespace", "dynamo"], "got 'dynamo', want another one: in this one Dynamo's frontend sees the workers"),
    ],
)
def test_a_frontend_that_would_see_the_workers_is_refused(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("graphs/tao_agg:Frontend", "--dry-run", "--http-port", "0", *words) == 2
    assert capsys.readouterr().err.startswith(f"dynamo serve: error: --namespace: {complaint}")


def test_thunderagent_gets_the_namespaces_that_it_accepts(capsys: pytest.CaptureFixture[str]) -> None:
    shown = commands(capsys, "graphs/thunderagent_agg:Frontend")
    assert "dyn://tao-workers.backend.generate" in shown["worker-0"]
    assert {"DYN_NAMESPACE=tao", "DYN_NAMESPACE_WORKER_SUFFIX=workers"} <= set(shown["thunderagent-router"])
    assert run("graphs/thunderagent_agg:Frontend", "--worker-namespace", "elsewhere", "--http-port", "0") == 2


def test_vllm_workers_get_events_gpus_and_a_fitting_block_size(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    words = ["--model", str(tmp_path), "--engine-python", sys.executable]
    gpu = commands(capsys, GRAPH, "--engine", "vllm", *words, "--Worker.ServiceArgs.resources.gpu=2")
    assert "CUDA_VISIBLE_DEVICES=2,3" in gpu["worker-1"]
    assert '"enable_kv_cache_events": true' in gpu["worker-1"][gpu["worker-1"].index("--kv-events-config") + 1]
    cpu = commands(capsys, "graphs/kv_agg:Frontend", "--engine", "vllm-cpu", *words)
    assert cpu["worker-0"][cpu["worker-0"].index("--block-size") + 1] == "32"
    assert cpu["frontend"][cpu["frontend"].index("--kv-cache-block-size") + 1] == "32"
    assert run(GRAPH, "--engine", "vllm-cpu", *words, "--block-size", "16", "--http-port", "0") == 2
    assert "--block-size: got 16, want a multiple of 32" in capsys.readouterr().err


def test_a_running_nats_server_is_used_and_a_silent_one_is_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server().start()
    try:
        monkeypatch.setenv("NATS_SERVER", server.url)
        shown = commands(capsys, GRAPH)
    finally:
        server.stop()
    assert "nats" not in shown
    assert f"NATS_SERVER={server.url}" in shown["frontend"]
    assert "nats" in commands(capsys, GRAPH)


def test_every_option_says_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    described = [action for action in serve.parser()._actions if action.option_strings and action.dest != "help"]
    assert len(described) > 10
    assert [action.dest for action in described if not str(action.help).endswith("]")] == []


def test_other_verbs_go_to_another_dynamo(tmp_path: Path) -> None:
    ours, other = tmp_path / "ours", tmp_path / "other"
    for folder, text in ((ours, "from launch.cli import main"), (other, "echo other $@")):
        folder.mkdir()
        (folder / "dynamo").write_text(f"#!/bin/sh\n{text}\n")
        (folder / "dynamo").chmod(0o755)
    path = f"{tmp_path / 'none'}{os.pathsep}{ours}{os.pathsep}{other}"
    assert cli.other_dynamo(tmp_path / "elsewhere", {"PATH": path}) == other / "dynamo"
    assert cli.other_dynamo(other / "dynamo", {"PATH": path}) is None
    code = "import sys; from launch.cli import main; sys.exit(main(['run', 'x']))"
    with_other = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )
    assert (with_other.stdout, with_other.returncode) == ("other run x\n", 0)
    without = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PATH": str(ours)}, capture_output=True, text=True, check=False
    )
    assert without.returncode == 2
    assert (
        without.stderr == "dynamo: error: no verb 'run'; TAO-Dynamo has `serve` and `manifests`, "
        "and there is no other `dynamo` on the PATH\n"
    )


@pytest.mark.dynamo
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_and_leaves_nothing(number: int, tmp_path: Path, reaper: list[int]) -> None:
    command = [sys.executable, "-m", "launch.cli", "serve", "graphs.round_robin_agg:Frontend", "--http-port", "0"]
    with subprocess.Popen(
        [*command, "--run-dir", str(tmp_path / "run")], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as served:
        assert served.stdout is not None
        lines: list[str] = []
        for line in served.stdout:
            lines.append(line)
            if line.startswith("Ctrl-C"):
                break
        pids = [int(line.split("pid ")[1].split()[0]) for line in lines if "pid " in line]
        reaper += pids
        assert len(pids) == 4
        served.send_signal(number)
        rest = served.stdout.read()
        assert served.wait(20) == 0
    assert rest.endswith("Stopped; nothing is left running.\n")
    assert not any(alive(pid) for pid in pids)
    curl = next(line for line in lines if line.startswith("  curl"))
    assert "x-dynamo-session-id: s1" in shlex.split(curl)


@pytest.mark.dynamo
def test_an_option_that_the_worker_does_not_know_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "launch.cli", "serve", GRAPH, "--http-port", "0", "--run-dir", str(tmp_path)]
    done = subprocess.run(
        [*command, "--Worker.num-gpu-blox=3"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "worker-" in done.stderr
    assert "unrecognized arguments: --num-gpu-blox 3" in done.stderr
    assert wait_until(lambda: str(tmp_path) not in processes())


def processes() -> str:
    return subprocess.run(["ps", "axo", "args"], capture_output=True, text=True, check=True).stdout
