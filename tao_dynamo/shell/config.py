# SPDX-License-Identifier: Apache-2.0
"""Configuration of ``python -m tao_dynamo``: the flags of ``python -m dynamo.router``, and ``--tao-*``.

Dynamo's own groups of flags are taken from the Dynamo that is installed, so they are always its own. Nothing here
creates a runtime.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from tao_dynamo import __version__
from tao_dynamo.core.policy import Policy
from tao_dynamo.errors import ConfigError
from tao_dynamo.shell.logs import LogFormat
from tao_dynamo.shell.options import Option, policy_options, read_policy

PROG = "tao-router"
COMPONENT = "router"

_DEFAULT_LINE = re.compile(r"\n?env var: (\S+) \| default: (.*)")

_SHELL_OPTIONS = (
    Option(
        "tool-namespaces",
        "tool_namespaces",
        str,
        "",
        "Namespaces whose tool events are heard, besides the router's and `dynamo`; separated by commas. Each is that"
        " of a tenant: what comes over it moves no session of another tenant (x-tenant-id).",
    ),
    Option(
        "adapters",
        "adapters",
        str,
        "",
        "LoRA adapters that the workers have loaded, separated by commas; clients ask for one as they do for a model.",
    ),
    Option(
        "node-capacity",
        "node_capacity",
        int,
        None,
        "Tokens of KV room of a node whose worker does not tell.",
        1,
        optional=True,
    ),
    Option(
        "ready-grace",
        "ready_grace_s",
        float,
        10.0,
        "Seconds to wait at the start for the workers' state before serving.",
        0.0,
    ),
    Option("log-format", "log_format", ("logfmt", "json"), "logfmt", "How TAO's log lines are written."),
    Option(
        "page-port",
        "page_port",
        int,
        8260,
        "Port of the page that shows who waits and why, and of `tao top`; taken: a free one; 0: any; none: no page.",
        0,
        65535,
        optional=True,
    ),
    Option(
        "page-host",
        "page_host",
        str,
        "127.0.0.1",
        "Address that the page binds. It only reads, but whoever reaches it sees the ids of all sessions.",
    ),
    Option(
        "direct-streams",
        "direct_streams",
        bool,
        True,
        "Speak Dynamo's TCP request plane with frontends and workers oneself: its server and client cost several times "
        "as much.",
    ),
    Option("retries", "retries", int, 3, "Other nodes tried when a worker is gone before its first token.", 0, 100),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything the router was told. ``block_size`` None: each node uses what its worker says."""

    endpoint: str
    namespace: str = "tao"
    block_size: int | None = None
    model_path: str | None = None
    model_name: str | None = None
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    use_kv_events: bool = True
    kv_router: Mapping[str, Any] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    tool_namespaces: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    node_capacity: int | None = None
    ready_grace_s: float = 10.0
    log_format: LogFormat = "logfmt"
    retries: int = 3
    direct_streams: bool = True
    page_port: int | None = 8260
    page_host: str = "127.0.0.1"
    nats_url: str = "nats://127.0.0.1:4222"
    event_plane: str = "nats"

    @property
    def shared_namespaces(self) -> tuple[str, str]:
        """Namespaces of tool events that belong to no tenant: the router's own, and the one hooks take by default."""
        return self.namespace, "dynamo"

    def path(self, endpoint: str) -> str:
        """The router's own endpoint of that name, as ``namespace.component.endpoint``."""
        return f"{self.namespace}.{COMPONENT}.{endpoint}"


class _Formatter(argparse.RawTextHelpFormatter):
    """Ends the help of every option with its default."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help
        if text is None or text is argparse.SUPPRESS or (action.nargs == 0 and action.dest in ("help", "version")):
            return text
        found = _DEFAULT_LINE.search(text)
        if found:
            return f"{_DEFAULT_LINE.sub('', text)}\nenv var: {found[1]} | default: {found[2]}"
        return f"{text} | default: {action.default}".replace("%", "%%") if "default:" not in text else text


class _Parser(argparse.ArgumentParser):
    """Answers a wrong flag by one line and exit status 2."""

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (--[\w-]+)", message)
        if unknown:
            flags = [flag for action in self._actions for flag in action.option_strings]
            near = difflib.get_close_matches(unknown[1], flags, 1)
            message += f" (did you mean {near[0]}?)" if near else ""
        self.exit(2, f"{PROG}: {message}; {PROG} --help lists the flags\n")


def parser() -> tuple[argparse.ArgumentParser, list[Option], tuple[Option, ...]]:
    """Return the parser, and the options of the policy and of the shell in it.

    Raises:
        ConfigError: an environment twin of one of Dynamo's flags is wrong.
    """
    from dynamo.common.configuration.groups.ais_perf_args import AisPerfArgGroup
    from dynamo.common.configuration.groups.kv_router_args import KvRouterArgGroup
    from dynamo.common.configuration.utils import add_argument, add_negatable_bool_argument

    made = _Parser(
        description="TAO: places turns of agent sessions on Dynamo workers, in place of `python -m dynamo.router`.",
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    made.add_argument("--version", action="version", version=f"tao-dynamo {__version__}")
    place = made.add_argument_group("Place in the graph")

    def add(flag: str, env: str, text: str, default: object = None, **more: Any) -> None:
        add_argument(place, flag_name=flag, env_var=env, default=default, help=text, **more)

    policy = policy_options()
    try:
        add("--endpoint", "DYN_ROUTER_ENDPOINT", "Endpoint of the workers, namespace.component.endpoint.")
        add(
            "--namespace",
            "DYN_NAMESPACE",
            "Namespace of the router itself; the frontend must see this one only.",
            "tao",
        )
        add(
            "--router-block-size",
            "DYN_ROUTER_BLOCK_SIZE",
            "KV block size that the workers must have; left out, each node uses its worker's.",
            arg_type=int,
            obsolete_flag="--block-size",
        )
        add(
            "--model-path",
            "DYN_TAO_MODEL_PATH",
            "Folder (or Hugging Face id) of the model to register; left out, the workers' own.",
        )
        add(
            "--model-name",
            "DYN_TAO_MODEL_NAME",
            "Name under which the model is registered; left out, the workers' own.",
        )
        add(
            "--dyn-tool-call-parser",
            "DYN_TOOL_CALL_PARSER",
            "Tool call parser of the model; left out, the workers' own.",
        )
        add(
            "--dyn-reasoning-parser",
            "DYN_REASONING_PARSER",
            "Reasoning parser of the model; left out, the workers' own.",
        )
        add_negatable_bool_argument(
            place,
            flag_name="--serve-indexer",
            env_var="DYN_SERVE_INDEXER",
            default=False,
            help="Serve the indexer of Dynamo's KV router, which TAO runs beside its own, over the request plane.",
        )
        group = made.add_argument_group("TAO's policy")
        for option in policy:
            option.add_to(group)
        group = made.add_argument_group("TAO's shell")
        for option in _SHELL_OPTIONS:
            option.add_to(group)
        KvRouterArgGroup().add_arguments(made)
        AisPerfArgGroup().add_arguments(made)
    except (ValueError, argparse.ArgumentTypeError) as error:
        raise ConfigError(_culprit(str(error)), _got(str(error)), f"a value that Dynamo takes ({error})") from error
    return made, policy, _SHELL_OPTIONS


def parse(argv: Sequence[str] | None = None, env: Mapping[str, str] | None = None) -> Config:
    """Read flags and environment. ``env`` defaults to the process's; Dynamo's own twins are always read from that.

    Raises:
        ConfigError: a value is wrong; the flag or variable is named.
        SystemExit: a flag is unknown, or help was asked for.
    """
    env = os.environ if env is None else env
    made, policy, shell = parser()
    args = made.parse_args(argv)
    endpoint = _endpoint(args.endpoint, env)
    if args.router_block_size is not None and args.router_block_size < 1:
        raise ConfigError("--router-block-size", args.router_block_size, "a whole number of at least 1")
    values: dict[str, Any] = {option.field: option.given(args, env)[0] for option in shell}
    for name in ("tool_namespaces", "adapters"):
        values[name] = tuple(dict.fromkeys(values[name].replace(",", " ").split()))
    if values["page_port"] is not None:
        _check_page_host(values["page_host"])
    check_model_folder(args.model_path, offline=env.get("HF_HUB_OFFLINE", "") in ("1", "true", "yes", "on"))
    return Config(
        endpoint=endpoint,
        namespace=args.namespace,
        block_size=args.router_block_size,
        model_path=args.model_path,
        model_name=args.model_name,
        tool_call_parser=args.dyn_tool_call_parser,
        reasoning_parser=args.dyn_reasoning_parser,
        use_kv_events=args.use_kv_events,
        kv_router=_kv_router_kwargs(args),
        policy=read_policy(policy, args, env),
        nats_url=env.get("NATS_SERVER", "nats://localhost:4222"),
        event_plane=_event_plane(env),
        **values,
    )


def _check_page_host(host: str) -> None:
    """See that the page can be bound there: a port that is taken is no mistake, an address of another machine is.

    Raises:
        ConfigError: it cannot.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.bind(address)
    except (OSError, UnicodeError) as error:
        raise ConfigError("--tao-page-host", host, "an address of this machine") from error


def check_model_folder(path: str | None, *, offline: bool) -> None:
    """See that a model folder is there and is one.

    Raises:
        ConfigError: it is not. What can only be a Hugging Face id passes, unless ``offline``.
    """
    if path is None:
        return
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ConfigError("--model-path", path, "a model folder, with config.json in it")
        return
    looks_like_id = re.fullmatch(r"[\w.-]+/[\w.-]+", path) is not None and not path.startswith(".")
    if offline or not looks_like_id:
        raise ConfigError(
            "--model-path", path, "an existing model folder" + ("" if offline else " or a Hugging Face id")
        )


def _endpoint(text: str | None, env: Mapping[str, str]) -> str:
    if not text:
        raise ConfigError("--endpoint (DYN_ROUTER_ENDPOINT)", text, "the workers' namespace.component.endpoint")
    parts = text.removeprefix("dyn://").split(".")
    if len(parts) != 3 or not all(parts):
        raise ConfigError("--endpoint", text, "namespace.component.endpoint")
    suffix = env.get("DYN_NAMESPACE_WORKER_SUFFIX")
    if suffix and not parts[0].endswith(f"-{suffix}"):
        parts[0] = f"{parts[0]}-{suffix}"
    return ".".join(parts)


def _event_plane(env: Mapping[str, str]) -> str:
    """Which plane Dynamo takes by itself (FACTS §2): ZMQ with file discovery, NATS else."""
    return env.get("DYN_EVENT_PLANE") or ("zmq" if env.get("DYN_DISCOVERY_BACKEND") in ("file", "mem") else "nats")


def _kv_router_kwargs(args: argparse.Namespace) -> dict[str, Any]:
    from dynamo.common.configuration.groups.kv_router_args import KvRouterConfigBase

    try:
        return KvRouterConfigBase.from_cli_args(args).kv_router_kwargs()  # type: ignore[no-any-return]
    except (ValueError, OSError) as error:
        raise ConfigError("--router-* flags", str(error), "values that Dynamo's KV router takes") from error


def _culprit(message: str) -> str:
    """Dynamo's message says the bad text but not whose: find the variable that holds it."""
    bad = _got(message)
    for name, value in os.environ.items():
        if name.startswith(("DYN_", "HF_")) and value == bad:
            return name
    return "environment"


def _got(message: str) -> str:
    found = re.search(r": '(.*)'$", message)
    return found[1] if found else message


def main_config(argv: Sequence[str] | None = None) -> Config:
    """Like :func:`parse`, for a command: a wrong value ends it with one line and status 2."""
    try:
        return parse(argv)
    except ConfigError as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
