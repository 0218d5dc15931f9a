# SPDX-License-Identifier: Apache-2.0
"""Flags, their twins in the environment, and what is said when one is wrong."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from solver.front import METHODS
from tao_dynamo.core.policy import DEFAULT, PAPER, Policy
from tao_dynamo.errors import ConfigError
from tao_dynamo.shell.config import Config, check_model_folder, parse
from tao_dynamo.shell.options import policy_options

WORKERS = ["--endpoint", "workers.backend.generate"]


def read(*flags: str, **env: str) -> Config:
    return parse([*WORKERS, *flags], env)


def test_without_flags_the_policy_is_the_default_one() -> None:
    config = read()
    assert config.policy == DEFAULT
    assert config.block_size is None
    assert config.path("generate") == "tao.router.generate"


def test_the_paper_mode_is_taken_whole_and_single_flags_change_it() -> None:
    assert read("--tao-policy", "paper").policy == PAPER
    changed = read("--tao-policy", "paper", "--tao-balance", "--tao-waiting-bound", "7").policy
    assert changed == dataclasses.replace(PAPER, balance=True, waiting_bound_s=7.0)


def test_every_constant_of_the_policy_is_a_flag_with_a_twin() -> None:
    options = {option.field: option for option in policy_options()}
    assert set(options) == {item.name for item in dataclasses.fields(Policy)}
    assert options["credit_half_life_s"].flag == "--tao-credit-half-life"
    assert options["credit_half_life_s"].env == "DYN_TAO_CREDIT_HALF_LIFE"


def test_the_environment_speaks_where_no_flag_does() -> None:
    env = {"DYN_TAO_PAUSE_MARK": "0.9", "DYN_TAO_SHARED_PREFIXES": "off", "DYN_TAO_QUANTUM": "512"}
    policy = read(**env).policy
    assert (policy.pause_mark, policy.shared_prefixes, policy.quantum) == (0.9, False, 512)
    assert read("--tao-pause-mark", "0.97", **env).policy.pause_mark == 0.97


@pytest.mark.parametrize(
    ("flags", "env", "named", "got"),
    [
        (["--tao-pause-mark", "1.5"], {}, "--tao-pause-mark", "1.5"),
        (["--tao-pause-mark", "nan"], {}, "--tao-pause-mark", "nan"),
        (["--tao-quantum", "0"], {}, "--tao-quantum", "0"),
        (["--tao-policy", "papper"], {}, "--tao-policy", "papper"),
        (["--tao-pause-order", "random"], {}, "--tao-pause-order", "random"),
        ([], {"DYN_TAO_HORIZON": "soon"}, "DYN_TAO_HORIZON", "soon"),
        ([], {"DYN_TAO_BALANCE": "maybe"}, "DYN_TAO_BALANCE", "maybe"),
        (["--tao-target-mark", "0.97"], {}, "--tao-target-mark", "0.97"),
        (["--tao-pause-mark", "0.7"], {}, "--tao-pause-mark", "--tao-target-mark, which is 0.8"),
        (["--tao-admission-mark", "0.99"], {}, "--tao-admission-mark", "0.99"),
        (["--router-block-size", "0"], {}, "--router-block-size", "0"),
        (["--model-path", "/not/there"], {}, "--model-path", "/not/there"),
        (["--endpoint", "a.b"], {}, "--endpoint", "a.b"),
        (["--tao-solver", "nonsense"], {}, "--tao-solver", "nonsense"),
        ([], {"DYN_TAO_SOLVER": "nonsense"}, "DYN_TAO_SOLVER", "nonsense"),
        (["--tao-page-host", "999.1.1.1"], {}, "--tao-page-host", "999.1.1.1"),
        (["--tao-page-host", "192.0.2.1"], {}, "--tao-page-host", "192.0.2.1"),
    ],
)
def test_a_wrong_value_is_refused_by_name(flags: list[str], env: dict[str, str], named: str, got: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(*flags, **env)
    assert named in str(caught.value)
    assert got in str(caught.value)
    assert "\n" not in str(caught.value)


def test_each_solver_method_can_be_asked_for() -> None:
    assert [read("--tao-solver", method).policy.solver for method in METHODS] == list(METHODS)


def test_where_there_is_no_page_its_address_does_not_matter() -> None:
    assert read("--tao-page-port", "none", "--tao-page-host", "192.0.2.1").page_port is None
    assert read("--tao-page-host", "localhost").page_host == "localhost"


def test_dynamos_own_flags_reach_dynamos_router() -> None:
    config = read("--no-router-kv-events", "--router-ttl-secs", "33")
    assert config.use_kv_events is False
    assert config.kv_router["router_ttl_secs"] == 33
    assert config.kv_router["use_kv_events"] is False


def test_the_rolling_update_suffix_is_put_on_the_workers_namespace_once() -> None:
    assert read(DYN_NAMESPACE_WORKER_SUFFIX="v2").endpoint == "workers-v2.backend.generate"
    twice = parse(["--endpoint", "workers-v2.backend.generate"], {"DYN_NAMESPACE_WORKER_SUFFIX": "v2"})
    assert twice.endpoint == "workers-v2.backend.generate"


def test_a_folder_without_a_model_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json"):
        check_model_folder(str(tmp_path), offline=False)
    (tmp_path / "config.json").write_text("{}")
    check_model_folder(str(tmp_path), offline=True)
    check_model_folder("Qwen/Qwen3-0.6B", offline=False)
    with pytest.raises(ConfigError, match="existing model folder"):
        check_model_folder("Qwen/Qwen3-0.6B", offline=True)


def run(*flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it; no discovery is there, so a runtime would hang."""
    return subprocess.run(
        [sys.executable, "-m", "tao_dynamo", *flags],
        capture_output=True,
        text=True,
        timeout=30,
        env=os.environ | {"DYN_DISCOVERY_BACKEND": "etcd"} | env,
        check=False,
    )


def test_help_needs_no_runtime_and_every_option_ends_with_its_default() -> None:
    done = run("--help", COLUMNS="10000")
    assert done.returncode == 0
    entries = re.split(r"\n  (?=-)", done.stdout.partition("Place in the graph:")[2])[1:]
    assert len(entries) > 80
    for entry in entries:
        last = entry.split("\n\n")[0].rstrip().splitlines()[-1]
        assert re.search(r"default: \S.*$", last), entry


@pytest.mark.parametrize(
    ("flags", "env", "words"),
    [
        ([*WORKERS, "--tao-horizonn", "1"], {}, ["--tao-horizonn", "did you mean --tao-horizon?"]),
        ([*WORKERS, "--tao-horizon", "x"], {}, ["--tao-horizon", "'x'"]),
        ([*WORKERS], {"DYN_ROUTER_TTL_SECS": "soon"}, ["DYN_ROUTER_TTL_SECS", "soon"]),
        ([], {}, ["--endpoint"]),
    ],
)
def test_the_command_answers_bad_input_by_one_line(flags: list[str], env: dict[str, str], words: list[str]) -> None:
    done = run(*flags, **env)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr
