# SPDX-License-Identifier: Apache-2.0
"""An MCP client and server with `tao-tool mcp` between them; calls and progress are told to the bus.

pip install mcp tao-dynamo
NATS_SERVER=nats://127.0.0.1:4222 python examples/mcp_hooks.py
"""

from __future__ import annotations

import asyncio
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.server import MCPServer
from mcp.server.mcpserver import Context


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


async def main() -> None:
    """The client: start the server behind the proxy and call the tool."""
    shim = [sys.executable, "-m", "tool_hooks.cli", "mcp", "--session", "mcp-1", "--"]
    command = [*shim, sys.executable, __file__, "serve"]

    async def show(progress: float, total: float | None, message: str | None) -> None:
        print("progress", progress, total, message or "")

    # An MCP client gives a server few variables of its own: NATS_SERVER has to be passed by name.
    server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    async with stdio_client(server) as (reading, writing), ClientSession(reading, writing) as session:
        await session.initialize()
        result = await session.call_tool("crawl", {"pages": 4}, progress_callback=show)
        print(result.content[0].text)


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else asyncio.run(main())
