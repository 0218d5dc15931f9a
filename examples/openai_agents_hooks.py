# SPDX-License-Identifier: Apache-2.0
"""The OpenAI Agents SDK with a scripted model; its tools are told to the bus by run hooks.

pip install openai-agents tao-dynamo
NATS_SERVER=nats://127.0.0.1:4222 python examples/openai_agents_hooks.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from tool_hooks.harness.openai_agents import TaoRunHooks


@function_tool
async def shell(command: str) -> str:
    """Run a command."""
    process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0].decode()


class ScriptedModel(Model):
    """First asks for two tools at once, then says that it is done."""

    def __init__(self) -> None:
        self.turns = 0

    async def get_response(self, *_args: Any, **_kwargs: Any) -> ModelResponse:
        """Answer one turn."""
        self.turns += 1
        if self.turns == 1:
            lines = ('{"command": "sleep 0.3; echo one"}', '{"command": "echo two"}')
            calls = [
                ResponseFunctionToolCall(arguments=line, call_id=f"call-{n}", name="shell", type="function_call")
                for n, line in enumerate(lines)
            ]
            return ModelResponse(output=list(calls), usage=Usage(), response_id=None)
        text = ResponseOutputText(annotations=[], text="done", type="output_text")
        message = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    async def stream_response(self, *_args: Any, **_kwargs: Any) -> AsyncIterator[Any]:
        """Stream one turn: not used here."""
        for item in (await self.get_response()).output:
            yield item


async def main() -> None:
    """Run the agent to its end."""
    set_tracing_disabled(True)
    agent = Agent(name="worker", tools=[shell], model=ScriptedModel())
    result = await Runner.run(agent, "Go.", hooks=TaoRunHooks(session_id="agents-1"))
    print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main())
