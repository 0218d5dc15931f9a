# SPDX-License-Identifier: Apache-2.0
"""mini-swe-agent through TAO: its model requests name the session, and so do its tool events.

pip install mini-swe-agent tao-dynamo
dynamo serve examples/scripted/graph.py:Frontend            # shows the addresses for the next line
OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=none NATS_SERVER=nats://127.0.0.1:4222 DYN_NAMESPACE=tao \
    python examples/mini_swe_agent_hooks.py
"""

from __future__ import annotations

import litellm
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.models.litellm_model import LitellmModel

SESSION = "mini-1"
TASK = r"""Look around. The scripted model takes these steps:
step bash command: ls / | head -3
step bash command: sleep 0.3 && echo slept
step bash command: for n in 20 40 60 80 100; do printf 'step [%3d%%]\n' $n; sleep 0.2; done
step bash command: false
step bash command: echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo ok
"""


def main() -> None:
    """Run the task to its end."""
    litellm.suppress_debug_info = True  # else it prints a line for a model that it has no price of
    model = LitellmModel(
        model_name="openai/tao-tiny",
        cost_tracking="ignore_errors",
        model_kwargs={"extra_headers": {"x-dynamo-session-id": SESSION}},
    )
    environment = get_environment(
        {
            "environment_class": "tool_hooks.harness.mini_swe_agent.TaoEnvironment",
            "session_id": SESSION,
            "watch": True,
            "timeout": 20,
        }
    )
    agent = DefaultAgent(
        model, environment, system_template="You are an agent.", instance_template="{{task}}", cost_limit=0.0
    )
    print(agent.run(TASK), f"after {agent.n_calls} model calls")


if __name__ == "__main__":
    main()
