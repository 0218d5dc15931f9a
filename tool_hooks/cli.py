# SPDX-License-Identifier: Apache-2.0
"""``tao-tool``: the shim for programs that are not Python."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence

from tao_dynamo.errors import ConfigError, TaoError, UsageError
from tool_hooks.identity import PARENT_ENV, SESSION_ENV, TENANT_ENV

_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(ms|s|m|h|)$")


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point. Exit code 2 for a wrong option; else that of the command."""
    try:
        args = _parser().parse_args(argv)
    except SystemExit as leaving:
        # To Claude Code, an exit code of 2 means: forbid the tool.
        if leaving.code == 2 and "claude-hook" in (sys.argv[1:2] if argv is None else list(argv)[:1]):
            sys.exit(1)
        raise
    try:
        if args.form == "run":
            _run(args)
        elif args.form == "mcp":
            from tool_hooks.mcp_proxy import proxy

            sys.exit(proxy(_command(args.command), args.session))
        elif args.form == "check":
            from tool_hooks.bus_check import check_bus

            sys.stdout.write(f"tao-tool check: {check_bus(os.environ)} takes us\n")
        else:
            from tool_hooks.claude_hook import hook

            sys.exit(hook(sys.stdin.buffer, args.session))
    except UsageError as error:
        sys.stderr.write(f"tao-tool {args.form}: {error}\n")
        sys.exit(2)
    except TaoError as error:
        sys.stderr.write(f"tao-tool {args.form}: {error}\n")
        sys.exit(1)


def seconds(where: str, text: str | None) -> float | None:
    """Read a duration such as ``30``, ``30s``, ``250ms`` or ``2m``.

    Raises:
        ConfigError: it is none.
    """
    if text is None:
        return None
    match = _DURATION.match(text.strip())
    if match is None:
        raise ConfigError(where, text, "a duration such as 30, 250ms, 30s, 2m or 1h")
    return float(match[1]) * _UNITS[match[2]]


def _run(args: argparse.Namespace) -> None:
    from tool_hooks.run_command import run

    command = _command(args.command)
    declared_s, timeout_s = seconds("--eta", args.eta), seconds("--timeout", args.timeout)
    if args.watch not in ("auto", "off"):
        raise ConfigError("--watch (DYN_TAO_TOOL_WATCH)", args.watch, "auto or off")
    run(
        command,
        args.tool_class,
        {
            "session_id": args.session or os.environ.get(SESSION_ENV) or None,
            "tool_call_id": args.call_id,
            "tool_key": args.key,
            "command": _as_line(command),
            "declared_s": declared_s,
            "timeout_s": timeout_s,
            "tenant": args.tenant,
            "parent_session_id": args.parent,
        },
        watch=args.watch == "auto",
    )


def _command(words: Sequence[str]) -> list[str]:
    command = list(words[1:] if words and words[0] == "--" else words)
    if not command:
        raise ConfigError("command", "", "a command after --")
    return command


def _as_line(command: Sequence[str]) -> str:
    """The command as a shell line; of ``sh -c LINE`` the line itself."""
    import shlex

    if len(command) == 3 and os.path.basename(command[0]) in ("sh", "bash", "dash", "zsh"):  # noqa: PTH119
        flags, line = command[1], command[2]
        if flags.startswith("-") and flags.endswith("c"):
            return line
    return shlex.join(command)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tao-tool", description="Tell the router when tools run, how far they are and when they return."
    )
    forms = parser.add_subparsers(dest="form", required=True, metavar="run|mcp|claude-hook|check")
    session = argparse.ArgumentParser(add_help=False)
    session.add_argument("--session", metavar="ID", default=None, help=f"session of the call (default: ${SESSION_ENV})")
    run = forms.add_parser(
        "run",
        parents=[session],
        help="run a command",
        usage="tao-tool run [options] -- command ...",
        description="Run a command as it would run by itself, and tell the router about it. Without a session, nothing"
        " is told. The bus is that of NATS_SERVER and the NATS_AUTH_* and NATS_TLS_* variables.",
    )
    add = run.add_argument
    add("--eta", metavar="TIME", help="how long it will take, such as 30s (default: not known)")
    add("--timeout", metavar="TIME", help="after how long it will be stopped; only told (default: none)")
    add("--class", dest="tool_class", metavar="NAME", default="bash", help="kind of tool (default: bash)")
    add("--key", metavar="KEY", help="what calls of like duration share (default: from the command line)")
    add("--call-id", metavar="ID", help="id of the call (default: a fresh one)")
    add("--tenant", metavar="ID", help=f"whose history it belongs to (default: ${TENANT_ENV})")
    add("--parent", metavar="ID", help=f"session that started this one (default: ${PARENT_ENV})")
    add(
        "--watch",
        metavar="auto|off",
        default=os.environ.get("DYN_TAO_TOOL_WATCH") or "auto",
        help="read progress bars from the output; env DYN_TAO_TOOL_WATCH (default: auto)",
    )
    add("command", nargs=argparse.REMAINDER, help="the command and its arguments (default: none, it is needed)")
    mcp = forms.add_parser(
        "mcp",
        parents=[session],
        help="stand between an MCP client and a server on stdio",
        usage="tao-tool mcp [options] -- server command ...",
        description="Start an MCP server and pass everything through; tools/call and progress are told to the router.",
    )
    mcp.add_argument("command", nargs=argparse.REMAINDER, help="the server's command (default: none, it is needed)")
    forms.add_parser(
        "claude-hook",
        parents=[session],
        help="hook of Claude Code (PreToolUse, PostToolUse); reads the event from standard input",
        description="Tell the router about the tool call that Claude Code describes on standard input.",
    )
    forms.add_parser(
        "check",
        help="see whether the bus takes us; hooks themselves never complain",
        description="Connect to the bus once, with the NATS_SERVER, NATS_AUTH_* and NATS_TLS_* variables of hooks,"
        " and say in one line whether it takes us.",
    )
    return parser


if __name__ == "__main__":
    main()
