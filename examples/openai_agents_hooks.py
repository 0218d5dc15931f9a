# SPDX-License-Identifier: Apache-2.0
"""An agent of the OpenAI Agents SDK through TAO: its model requests name the session, run hooks tell of its tools.

pip install openai-agents tao-dynamo
dynamo serve examples/scripted/graph.py:Frontend            # shows the addresses for the next line
OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=none NATS_SERVER=nats://127.0.0.1:4222 DYN_NAMESPACE=tao \
    python examples/openai_agents_hooks.py
"""

from __future__ import annotations

import asyncio

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from tool_hooks.harness.openai_agents import TaoRunHooks

SESSION = "agents-1"
TASK = """Look around. The scripted model takes these steps:
step shell command: sleep 0.3; echo one
step shell command: echo two
"""


@function_tool
async def shell(command: str) -> str:
    """Run a command."""
    process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0].decode()


async def main() -> None:
    """Run the agent to its end."""
    set_tracing_disabled(True)
    client = AsyncOpenAI(default_headers={"x-dynamo-session-id": SESSION})
    agent = Agent(name="worker", tools=[shell], model=OpenAIChatCompletionsModel("tao-tiny", client))
    result = await Runner.run(agent, TASK, hooks=TaoRunHooks(session_id=SESSION))
    print(result.final_output, f"after {len(result.raw_responses)} model calls")


if __name__ == "__main__":
    asyncio.run(main())
