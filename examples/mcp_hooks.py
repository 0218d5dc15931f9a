# SPDX-License-Identifier: Apache-2.0
"""An agent whose tools are an MCP server, with `tao-tool mcp` between them: no change in agent or server.

pip install openai mcp tao-dynamo
dynamo serve examples/scripted/graph.py:Frontend            # shows the addresses for the next line
OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=none NATS_SERVER=nats://127.0.0.1:4222 DYN_NAMESPACE=tao \
    python examples/mcp_hooks.py
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from openai import AsyncOpenAI

SESSION = "mcp-1"
TASK = """Look around. The scripted model takes these steps:
step crawl pages: 4
"""


def serve() -> None:
    """The server: one slow tool that says how far it is."""
    server = MCPServer("crawler")

    @server.tool()
    async def crawl(pages: int, context: Context) -> str:
        for page in range(pages):
            await asyncio.sleep(0.15)
            await context.report_progress(page + 1, pages)
        return f"{pages} pages"

    server.run("stdio")


async def show(progress: float, total: float | None, message: str | None) -> None:
    """What the client hears of the server's progress, through the proxy."""
    print("progress", progress, total, message or "")


async def main() -> None:
    """The agent: start the server behind the proxy, let the model call its tool until it is content."""
    shim = [sys.executable, "-m", "tool_hooks.cli", "mcp", "--session", SESSION, "--"]
    command = [*shim, sys.executable, __file__, "serve"]
    # An MCP client gives a server few variables of its own: NATS_SERVER and DYN_NAMESPACE have to be passed by name.
    server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    model = AsyncOpenAI(default_headers={"x-dynamo-session-id": SESSION})
    async with stdio_client(server) as (reading, writing), ClientSession(reading, writing) as mcp:
        await mcp.initialize()
        offered = (await mcp.list_tools()).tools
        tools: Any = [
            {"type": "function", "function": {"name": tool.name, "parameters": tool.input_schema}} for tool in offered
        ]
        messages: list[Any] = [{"role": "user", "content": TASK}]
        while True:
            answer = await model.chat.completions.create(model="tao-tiny", messages=messages, tools=tools)
            message = answer.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                arguments = json.loads(call.function.arguments)
                result = await mcp.call_tool(call.function.name, arguments, progress_callback=show)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result.content[0].text})
                print(result.content[0].text)
        print(message.content)


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else asyncio.run(main())
