# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from launch.config import ServiceConfig, as_flags, load_config
from launch.options import Options, from_environment
from tao_dynamo.errors import ConfigError, GraphError

FILE = """
Common:
  block-size: 64
  model: m
Worker:
  num-gpu-blocks-override: 1024
  enforce_eager: true
  common-configs: [block-size]
  ServiceArgs:
    workers: 1
    envs: {RUST_LOG: info, A: b}
TaoRouter:
  tao-policy: paper
Frontend:
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(FILE)
    return path


def test_a_service_takes_from_common_what_it_lists(file: Path) -> None:
    config = load_config(file, [])
    assert config.options("Worker") == {"num-gpu-blocks-override": 1024, "enforce-eager": True, "block-size": 64}
    assert config.options("TaoRouter") == {"tao-policy": "paper"}
    assert config.options("Frontend") == {}
    assert config.service_args("Worker") == {"workers": 1, "envs": {"RUST_LOG": "info", "A": "b"}}


def test_the_command_line_wins_and_goes_as_deep_as_it_likes(file: Path) -> None:
    config = load_config(
        file,
        [
            "--Worker.ServiceArgs.workers=3",
            "--Worker.ServiceArgs.envs.A=7",
            "--TaoRouter.tao-policy",
            "default",
            "--Worker.block_size=32",
            "--Worker.speedup-ratio=0.5",
            "--Worker.x=a=b",
            "--Worker.y=False",
        ],
    )
    assert config.service_args("Worker") == {"workers": 3, "envs": {"RUST_LOG": "info", "A": "7"}}
    assert config.options("TaoRouter") == {"tao-policy": "default"}
    worker = config.options("Worker")
    assert (worker["block-size"], worker["speedup-ratio"], worker["x"], worker["y"]) == (32, 0.5, "a=b", False)


def test_an_own_value_comes_before_the_common_one() -> None:
    config = ServiceConfig({"Common": {"a": 1}, "Worker": {"a": 2, "common-configs": ["a"]}})
    assert config.options("Worker") == {"a": 2}


def test_options_become_words_of_a_command_line() -> None:
    options = {"a": 1, "b": True, "c": False, "d": None, "e": {"x": [1]}, "f": ["p", 2], "g": "two words"}
    assert as_flags(options) == ["--a", "1", "--b", "--no-c", "--e", '{"x": [1]}', "--f", "p", "2", "--g", "two words"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--workers.=3"], "--workers.=3"),
        (["stray"], "got 'stray', want a known flag"),
        (["--Worker.x"], "--Worker.x: got 'nothing', want a value"),
        (["--Worker.x", "--Worker.y=1"], "--Worker.x: got 'nothing', want a value"),
    ],
)
def test_words_that_say_nothing_are_refused(words: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, words)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[1, 2]", "want a mapping of services"),
        ("Worker: 3", "service Worker: got 3, want a mapping of options"),
        ("a: b: c", "want YAML"),
    ],
)
def test_a_file_of_another_shape_is_refused_in_one_line(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path, [])
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_common_value_that_is_not_there_is_named() -> None:
    config = ServiceConfig({"Common": {"a": 1}, "Worker": {"common-configs": ["b"]}})
    with pytest.raises(ConfigError, match=r"Worker.common-configs: got 'b', want a key of Common: a"):
        config.options("Worker")


def test_unknown_service_args_are_named() -> None:
    with pytest.raises(ConfigError, match=r"got 'replicas', want one of workers, envs, resources"):
        ServiceConfig({"Worker": {"ServiceArgs": {"replicas": 2}}}).service_args("Worker")


def test_services_of_other_graphs_are_reported_and_unknown_ones_refused() -> None:
    config = ServiceConfig({"Common": {}, "Worker": {}, "TaoRouter": {}})
    assert config.require_known("g", ["Frontend", "Worker"], ["TaoRouter"]) == ["TaoRouter"]
    with pytest.raises(GraphError, match=r"options of g: got 'TaoRouter', want a service of it: Frontend, Worker"):
        config.require_known("g", ["Frontend", "Worker"], [])


def test_the_environment_gives_defaults() -> None:
    options = from_environment(
        {"DYN_TAO_WORKERS": "3", "DYN_HTTP_PORT": "0", "DYN_TAO_RUN_DIR": "/x", "DYN_TAO_GRACE": "2.5"}
    )
    assert options == Options(workers=3, http_port=0, run_dir=Path("/x"), grace_s=2.5)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"workers": 0}, "--workers: got 0, want 1 or more"),
        ({"block_size": -1}, "--block-size: got -1, want 1 or more"),
        ({"http_port": 65536}, "--http-port: got 65536, want 0 to 65535"),
        ({"engine": "tgi"}, "--engine: got 'tgi', want one of mocker, vllm, vllm-cpu"),
        ({"grace_s": 0.0}, "--grace: got 0.0, want more than 0 seconds"),
        ({"namespace": "a.b"}, "--namespace: got 'a.b', want letters, digits, - and _"),
    ],
)
def test_options_out_of_range_are_refused(given: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Options(**given)  # type: ignore[arg-type]
    assert str(caught.value) == complaint


def test_an_environment_variable_that_is_no_number_is_named() -> None:
    with pytest.raises(ConfigError, match="DYN_TAO_WORKERS: got 'two', want a number"):
        from_environment({"DYN_TAO_WORKERS": "two"})
