# SPDX-License-Identifier: Apache-2.0
"""``dynamo.vllm`` where there is no torchvision; takes the flags of ``python -m dynamo.vllm``.

``dynamo.vllm`` imports the image code of Qwen-VL out of transformers, which imports torchvision, and no torchvision
loads beside the CPU build of torch that vLLM wants. Text models never call that code, so the one module gets a
stand-in that says so if anything does.
"""

from __future__ import annotations

import runpy
import sys
from types import ModuleType
from typing import NoReturn

_IMAGE_CODE = "transformers.models.qwen2_vl.image_processing_qwen2_vl"


def smart_resize(*_arguments: object, **_more: object) -> NoReturn:
    """Stands in for the image code's function of that name."""
    raise RuntimeError("image models need torchvision, which this environment has not got")


def main() -> None:
    """Run ``dynamo.vllm`` with the stand-in."""
    stand_in = ModuleType(_IMAGE_CODE)
    stand_in.smart_resize = smart_resize  # type: ignore[attr-defined]
    sys.modules[_IMAGE_CODE] = stand_in
    sys.argv[0] = "dynamo.vllm"
    runpy.run_module("dynamo.vllm", run_name="__main__")


if __name__ == "__main__":
    main()
