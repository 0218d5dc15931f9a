# SPDX-License-Identifier: Apache-2.0
"""``tao-bench live``: the arms, what it refuses, and one small run of real graphs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from benchmarks import arms, cli
from tao_dynamo.core.policy import DEFAULT
from tao_dynamo.errors import ConfigError
from tao_dynamo.shell.options import policy_options

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ["--sessions", "4", "--concurrency", "4", "--max-turns", "2", "--speed", "50", "--repetitions", "1"]


def test_an_ablation_changes_one_thing_by_the_routers_own_flags() -> None:
    assert arms.named("tao").router == {}
    assert arms.named("tao-paper").router == {"tao-policy": "paper"}
    assert arms.named("tao-bfd").router == {"tao-solver": "bfd"}
    assert arms.named("tao-no-balance").router == {"tao-balance": False}
    assert arms.named("tao-no-bound").router == {"tao-waiting-bound": 1e12}
    assert set(arms.named("tao-no-credit").router) == {"tao-credit-half-life"}
    assert not arms.named("tao-no-readiness").tool_events
    # The router that pauses sessions answers a marked turn without asking a worker.
    assert arms.named("thunderagent").closing == "request"
    for name in ("cache-aware", "tao-oracle-tools", "tao-demote"):
        with pytest.raises(ConfigError, match="--policy"):
            arms.named(name)


@pytest.mark.parametrize("name", list(arms.LIVE_ABLATIONS))
def test_the_router_reads_every_flag_of_every_ablation(name: str) -> None:
    known = {option.flag: option for option in policy_options()}
    for key, value in arms.named(name).router.items():
        if key != "tao-policy":
            assert known[f"--{key}"].read(str(value), key) == value


def test_router_times_are_quickened_with_everything_else() -> None:
    plain = arms.named("tao")
    assert arms.at_speed(plain, 1, 20.0) is plain
    quick = arms.at_speed(plain, 4, 20.0).router
    assert quick["tao-credit-half-life"] == DEFAULT.credit_half_life_s / 4
    assert quick["tao-long-tool-factor"] == DEFAULT.long_tool_part(20.0)
    assert set(quick) <= {option.flag.removeprefix("--") for option in policy_options()}
    assert arms.at_speed(arms.named("tao-no-bound"), 4, 20.0).router["tao-waiting-bound"] == 1e12 / 4
    assert arms.at_speed(arms.named("thunderagent"), 4, 20.0).router["scheduler-interval-seconds"] == 1.25
    assert arms.at_speed(arms.named("dynamo-kv"), 4, 20.0).router == {}


def test_bad_input_is_refused_before_a_graph_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refusal(*more: str) -> str:
        assert cli.main(["live", *SMALL, *more]) == 2
        return capsys.readouterr().err

    assert "--policy: got 'nobody'" in refusal("--policy", "nobody")
    assert "--max-prompt-tokens" in refusal("--engine", "vllm-cpu", "--model", str(tmp_path))
    assert "--blocks: got 8" in refusal("--blocks", "8")
    out = tmp_path / "runs.jsonl"
    out.write_text(json.dumps({"policy": "tao", "repetition": 0, "engine": "vllm-cpu"}) + "\n")
    assert "runs.jsonl:1: engine: got 'vllm-cpu'" in refusal("--out", str(out))


@pytest.mark.dynamo
@pytest.mark.timeout(180)
def test_arms_run_the_same_sessions_and_a_stopped_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs.jsonl"
    args = ["live", *SMALL, "--keep-workers", "--out", str(out), "--json"]
    assert cli.main([*args, "--policy", "thunderagent"]) == 0
    capsys.readouterr()
    first = out.read_text()
    assert cli.main([*args, "--policy", "thunderagent", "--policy", "tao"]) == 0
    assert out.read_text().startswith(first)
    runs = json.loads(capsys.readouterr().out)
    assert list(runs) == ["thunderagent", "tao"]
    for (run,) in runs.values():
        assert (run["turns_done"], run["turns_failed"], run["sessions_done"]) == (8, 0, 4)
        assert run["kv_event_workers"] == run["workers"] == 2
        assert run["tool_events_sent"] > 0
    (tao,) = runs["tao"]
    assert tao["tool_events_received"] == tao["tool_events_sent"]
