# SPDX-License-Identifier: Apache-2.0
"""A worker whose model reads its answers out of the task: what an agent needs to be tried out without a GPU.

The task holds lines such as ``step bash command: ls /tmp``. The first answer calls the tool ``bash`` with ``command``
= ``ls /tmp``, the answer after one tool result takes the second such line, and so on; then it says that it is done.
It speaks Dynamo's token protocol, so frontend, tokenizer, tool-call parser and router are the real ones.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from typing import Any

from tokenizers import Tokenizer

STEP = re.compile(r"^\s*step (\w+) (\w+): (.+?)\s*$", re.MULTILINE)
TOOL_RESULT = "<|im_start|>tool\n"
TOKEN_S = 0.002
BLOCKS = 65_536


def answer(prompt: str) -> str:
    """The answer to a rendered prompt, in the format of the ``hermes`` tool-call parser."""
    steps = STEP.findall(prompt)
    done = prompt.count(TOOL_RESULT)
    if done >= len(steps):
        return "All steps are done."
    tool, argument, text = steps[done]
    value = int(text) if text.isdigit() else text
    return f"<tool_call>\n{json.dumps({'name': tool, 'arguments': {argument: value}})}\n</tool_call>"


class Scripted:
    """Answers requests, a token at a time."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    async def generate(self, request: dict[str, Any], context: Any) -> AsyncIterator[dict[str, Any]]:  # noqa: ARG002 - Dynamo names it
        """Serve one turn."""
        prompt = self._tokenizer.decode(request["token_ids"], skip_special_tokens=False)
        tokens = self._tokenizer.encode(answer(prompt), add_special_tokens=False).ids
        for token in tokens:
            await asyncio.sleep(TOKEN_S)
            yield {"token_ids": [token]}
        usage = {"prompt_tokens": len(request["token_ids"]), "completion_tokens": len(tokens)}
        usage["total_tokens"] = sum(usage.values())
        yield {"token_ids": [], "finish_reason": "stop", "completion_usage": usage}


async def serve(args: argparse.Namespace) -> None:
    """Register as a worker, as an engine would, and serve until told to stop."""
    from dynamo.llm import ModelInput, ModelRuntimeConfig, ModelType, WorkerType, register_model
    from dynamo.runtime import DistributedRuntime

    loop = asyncio.get_running_loop()
    runtime = DistributedRuntime(
        loop, os.environ.get("DYN_DISCOVERY_BACKEND", "etcd"), os.environ.get("DYN_REQUEST_PLANE", "tcp")
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, runtime.shutdown)
    config = ModelRuntimeConfig()
    config.total_kv_blocks = BLOCKS
    config.kv_event_publishing_enabled = False
    config.tool_call_parser = "hermes"
    endpoint = runtime.endpoint(args.endpoint.removeprefix("dyn://"))
    await register_model(
        ModelInput.Tokens,
        ModelType.Chat | ModelType.Completions,
        endpoint,
        args.model_path,
        args.model_name,
        worker_type=WorkerType.Aggregated,
        runtime_config=config,
        kv_cache_block_size=args.block_size,
        ignore_weights=True,
    )
    runtime.set_health_status(True)
    worker = Scripted(Tokenizer.from_file(os.path.join(args.model_path, "tokenizer.json")))  # noqa: PTH118
    await endpoint.serve_endpoint(worker.generate, graceful_shutdown=True)


def main() -> None:
    """Run the worker."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for flag in ("--endpoint", "--model-path", "--model-name"):
        parser.add_argument(flag, required=True)
    parser.add_argument("--block-size", type=int, default=16)
    import uvloop

    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
