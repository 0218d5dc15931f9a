# SPDX-License-Identifier: Apache-2.0
"""What is looked at before anything is started: ports, packages, options."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from launch.processes import Command, require_free_port
from tao_dynamo.errors import ConfigError, StackError

if TYPE_CHECKING:
    from launch.assemble import Site


def require_packages(commands: tuple[Command, ...]) -> None:
    """Refuse to start where a command's Python has not got the module that it runs.

    Raises:
        StackError: naming the module and how to get it.
    """
    for python, module in sorted({(command.argv[0], command.module) for command in commands if command.module}):
        if not _has_module(python, module):
            raise StackError(f"no module {module} in {python}: {_remedy(module)}")


def require_http_port(site: Site) -> None:
    """Refuse to start where somebody listens on the frontend's port.

    Raises:
        UsageError: naming the flag to change.
    """
    require_free_port("--http-port", site.http_host, site.http_port)


def require_router_options(commands: tuple[Command, ...]) -> None:
    """Refuse options that TAO's router would refuse, before anything is started.

    Raises:
        UsageError: naming the option.
    """
    for command in commands:
        if command.module != "tao_dynamo.shell":
            continue
        from tao_dynamo.shell.config import parse

        env = {**os.environ, **{key: value for key, value in command.env.items() if value is not None}}
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                parse(command.argv[3:], env)
        except SystemExit as error:
            wrong = said.getvalue().strip().rpartition("arguments: ")[2].partition("; ")[0]
            raise ConfigError("TaoRouter", wrong, "options of tao-router --help") from error


def _has_module(python: str, module: str) -> bool:
    if python == sys.executable:
        try:
            return importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            return False
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    try:
        return subprocess.run([python, "-c", code], capture_output=True, timeout=60, check=False).returncode == 0
    except OSError as error:
        raise ConfigError("--engine-python", python, f"a Python that can be run ({error.strerror})") from error


def _remedy(module: str) -> str:
    if module.split(".", maxsplit=1)[0] == "vllm":
        return "install vLLM there, or say where it is with --engine-python (on a machine without a GPU: make vllm)"
    if module.startswith("dynamo."):
        return "install Dynamo there: pip install --no-deps ai-dynamo==1.6.1 and tao-dynamo[dynamo]"
    return "install tao-dynamo[dynamo] there"
