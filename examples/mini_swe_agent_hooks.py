# SPDX-License-Identifier: Apache-2.0
"""mini-swe-agent with a scripted model and real shell commands; its tools are told to the bus.

pip install mini-swe-agent tao-dynamo
NATS_SERVER=nats://127.0.0.1:4222 python examples/mini_swe_agent_hooks.py
"""

from __future__ import annotations

from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.models.test_models import DeterministicModel, make_output

BAR = "for n in 20 40 60 80 100; do printf 'step [%3d%%]\\n' $n; sleep 0.2; done"
COMMANDS = [
    "ls / | head -3",
    "sleep 0.3 && echo slept",
    BAR,
    "false",
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo ok",
]


def main() -> None:
    """Run the script to its end."""
    model = DeterministicModel(outputs=[make_output(f"I run: {line}", [{"command": line}]) for line in COMMANDS])
    environment = get_environment(
        {
            "environment_class": "tool_hooks.harness.mini_swe_agent.TaoEnvironment",
            "session_id": "mini-1",
            "watch": True,
            "timeout": 20,
        }
    )
    agent = DefaultAgent(
        model, environment, system_template="You are an agent.", instance_template="{{task}}", cost_limit=0.0
    )
    print(agent.run("Look around."))


if __name__ == "__main__":
    main()
