# SPDX-License-Identifier: Apache-2.0
"""A LangGraph agent through TAO: its model requests name the session, a callback handler tells of its tools.

pip install langchain-openai langgraph tao-dynamo
dynamo serve examples/scripted/graph.py:Frontend            # shows the addresses for the next line
OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=none NATS_SERVER=nats://127.0.0.1:4222 DYN_NAMESPACE=tao \
    python examples/langchain_hooks.py
"""

from __future__ import annotations

import time
from typing import Any

from langchain_core.callbacks import dispatch_custom_event
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from tool_hooks.harness.langchain import TaoCallbackHandler

SESSION = "graph-1"
TASK = """Look around. The scripted model takes these steps:
step crawl pages: 4
step broken reason: no luck
"""


@tool
def crawl(pages: int) -> str:
    """Fetch some pages, slowly."""
    for page in range(pages):
        time.sleep(0.15)
        dispatch_custom_event("tool_progress", {"fraction": (page + 1) / pages})
    return f"{pages} pages"


@tool
def broken(reason: str) -> str:
    """Fail."""
    raise ValueError(reason)


def main() -> None:
    """Run the agent to its end."""
    tools = [crawl, broken]
    model = ChatOpenAI(model="tao-tiny", default_headers={"x-dynamo-session-id": SESSION}).bind_tools(tools)

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask)
    graph.add_node("tools", ToolNode(tools, handle_tool_errors=True))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    config = {"callbacks": [TaoCallbackHandler()], "configurable": {"thread_id": SESSION}}
    for message in graph.compile().invoke({"messages": [("user", TASK)]}, config)["messages"][1:]:
        print(message.type, getattr(message, "status", ""), message.content)


if __name__ == "__main__":
    main()
