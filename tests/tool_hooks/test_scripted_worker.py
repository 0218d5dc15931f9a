# SPDX-License-Identifier: Apache-2.0
"""The scripted model of the examples: it takes the steps of its task, one after each tool result, and then is done."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("tokenizers")
WORKER = Path(__file__).parents[2] / "examples" / "scripted" / "worker.py"
TASK = "<|im_start|>user\nLook around.\nstep bash command: printf 'step [%3d%%]' 7\n  step crawl pages: 4\n<|im_end|>\n"
RESULT = "<|im_start|>tool\nout<|im_end|>\n"


@pytest.fixture(scope="module")
def worker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scripted_worker", WORKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_steps_are_taken_in_order(worker: ModuleType) -> None:
    asked = [
        json.loads(worker.answer(TASK + RESULT * done).removeprefix("<tool_call>").removesuffix("</tool_call>"))
        for done in range(2)
    ]
    assert asked == [
        {"name": "bash", "arguments": {"command": "printf 'step [%3d%%]' 7"}},
        {"name": "crawl", "arguments": {"pages": 4}},
    ]
    assert worker.answer(TASK + RESULT * 2) == "All steps are done."
    assert worker.answer("Hello") == "All steps are done."
