# SPDX-License-Identifier: Apache-2.0
"""LangChain tools and a LangGraph tool node, told to the bus by a callback handler.

pip install langgraph tao-dynamo
NATS_SERVER=nats://127.0.0.1:4222 python examples/langchain_hooks.py
"""

from __future__ import annotations

import time

from langchain_core.callbacks import dispatch_custom_event
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from tool_hooks.harness.langchain import TaoCallbackHandler


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
    """Run both tools in one graph step, as a model would have asked for."""
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([crawl, broken], handle_tool_errors=True))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    calls = [
        {"name": "crawl", "args": {"pages": 4}, "id": "1"},
        {"name": "broken", "args": {"reason": "no luck"}, "id": "2"},
    ]
    state = {"messages": [AIMessage("", tool_calls=calls)]}
    config = {"callbacks": [TaoCallbackHandler()], "configurable": {"thread_id": "graph-1"}}
    for message in graph.compile().invoke(state, config)["messages"][1:]:
        print(message.name, message.status, message.content)


if __name__ == "__main__":
    main()
