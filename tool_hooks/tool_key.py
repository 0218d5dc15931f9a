# SPDX-License-Identifier: Apache-2.0
"""Tool keys: what kind of work a call is, so that calls of one kind can learn from each other.

A key is the program and its sub-command (``pytest``, ``pip install``, ``git diff``, ``python script``), never
the whole line. A line that runs several programs is named after those that may take time; glue such as ``cd``,
``echo`` or ``head`` counts only where nothing else runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tool_hooks.shell_words import Group, Simple, Step, parse

MAX_PARTS = 3
MAX_KEY_CHARS = 120
MAX_NESTING = 3


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


_GLUE = _set(
    "cd pushd popd echo printf true false : exit return export set unset source . shopt alias read test [ [[ "
    "head tail cut tr sort uniq wc tee column less more xargs mkdir touch chmod chown rm cp mv ln pwd which type "
    "command whoami date env cat sleep wait jobs kill pkill"
)
_WRAPPERS = _set("sudo doas env nohup nice ionice time exec command builtin setsid stdbuf unbuffer timeout xvfb-run")
# Options of wrappers that take a value in the next word.
_WRAPPER_VALUES = {
    "sudo": _set("-u -g -h -p -C -D -R -T -U --user --group"),
    "doas": frozenset(("-u", "-C")),
    "env": frozenset(("-u", "-C", "-S", "--unset", "--chdir")),
    "nice": frozenset(("-n", "--adjustment")),
    "ionice": frozenset(("-c", "-n", "-p")),
    "timeout": frozenset(("-k", "-s", "--kill-after", "--signal")),
    "stdbuf": frozenset(("-i", "-o", "-e")),
    "exec": frozenset(("-a",)),
    "time": frozenset(("-f", "-o")),
}
_SHELLS = _set("sh bash zsh dash ksh ash")
_SUBCOMMANDS = _set(
    "git svn hg pip pipenv pipx rye uv poetry hatch pdm conda mamba npm pnpm yarn npx bun deno composer cargo rustup "
    "go gem bundle rake rails mvn gradle dotnet make cmake ninja bazel just tox nox django-admin "
    "apt apt-get dnf yum apk brew docker podman kubectl helm terraform aws gcloud az gh systemctl service tmux"
)
# `uv run X` is X; `npm run X` is a script of the project.
_RUNNERS = _set("uv poetry pipenv hatch pdm rye conda mamba")
_SCRIPT_RUNNERS = _set("npm pnpm yarn bun cargo composer")
_PYTHON = re.compile(r"(?:python|pypy)(?:\d+(?:\.\d+)*)?$")
_PIP = re.compile(r"pip(?:\d+(?:\.\d+)*)?$")
_PLAIN = re.compile(r"[A-Za-z_][\w.:@-]*$")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_VALUE_OPTIONS = frozenset(
    ("-C", "-c", "-f", "-n", "--namespace", "--prefix", "--git-dir", "--work-tree", "--manifest-path")
)


def base_name(path: str) -> str:
    """The last part of a path: ``/usr/bin/git`` is ``git``."""
    return path.rstrip("/").rpartition("/")[2]


def unwrap(words: Sequence[str]) -> tuple[tuple[str, ...], float | None]:
    """Removes ``sudo``, ``env A=1``, ``timeout 10`` and their like.

    Returns:
        The words of the program itself, and the seconds of the tightest ``timeout`` around it (None: none).
    """
    rest = list(words)
    limit: float | None = None
    for _ in range(8):
        while rest and _ASSIGNMENT.match(rest[0]):
            rest.pop(0)
        if not rest:
            break
        name = base_name(rest[0])
        if name not in _WRAPPERS:
            break
        values = _WRAPPER_VALUES.get(name, frozenset())
        at = 1
        while at < len(rest) and (rest[at].startswith("-") or (name == "env" and _ASSIGNMENT.match(rest[at]))):
            at += 2 if rest[at] in values else 1
        if name == "timeout" and at < len(rest):
            seconds = parse_seconds(rest[at])
            if seconds is not None and seconds > 0:  # `timeout 0` means no limit
                limit = seconds if limit is None else min(limit, seconds)
            at += 1
        if at >= len(rest):
            break  # the wrapper is the program: `env`, `sudo -l`
        rest = rest[at:]
    return tuple(rest), limit


_SECONDS = re.compile(r"(\d+\.?\d*(?:[eE][+-]?\d{1,3})?|\.\d+(?:[eE][+-]?\d{1,3})?|inf(?:inity)?)([smhd]?)$")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_seconds(word: str) -> float | None:
    """An argument of GNU ``sleep`` or ``timeout`` in seconds: ``5``, ``0.5``, ``1m``, ``2h``, ``1d``, ``infinity``."""
    match = _SECONDS.match(word)
    return float(match[1]) * _UNITS[match[2]] if match else None


def script_of(words: Sequence[str]) -> str | None:
    """The text that ``bash -c TEXT`` (also ``-lc``, ``eval TEXT``) runs, or None for any other program."""
    if not words:
        return None
    name = base_name(words[0])
    if name == "eval":
        return " ".join(words[1:])
    if name in _SHELLS:
        for i, word in enumerate(words[1:], 1):
            if not word.startswith("-"):
                return None
            if not word.startswith("--") and "c" in word:
                return words[i + 1] if i + 1 < len(words) else None
    return None


def _python(words: Sequence[str]) -> str:
    at = 1
    while at < len(words):
        word = words[at]
        if word == "-m" and at + 1 < len(words):
            module = words[at + 1]
            return program_of(words[at + 1 :]) if module in ("pytest", "pip", "tox", "nox") else f"python -m {module}"
        if word == "-c" or (word.startswith("-c") and len(word) > 2):
            return "python -c"
        if word == "-":
            return "python -"
        if not word.startswith("-"):
            return "python script"
        at += 2 if word in ("-W", "-X") else 1
    return "python -" if len(words) == 1 else "python"


def program_of(words: Sequence[str]) -> str:
    """The program and, where it has one, its sub-command: ``("git", "-C", "a", "diff")`` is ``git diff``.

    A script run by a path (``./build.sh``) is named by its file; versions of Python and pip are one program.
    """
    if not words:
        return ""
    name = base_name(words[0]) or words[0]
    if _PYTHON.match(name):
        return _python(words)
    if _PIP.match(name):
        name = "pip"
    if name not in _SUBCOMMANDS:
        return name
    at = _next_plain(words, 1)
    if at is None:
        return name
    follow = _next_plain(words, at + 1) if words[at] in ("run", "exec") else None
    if follow is None:
        return f"{name} {words[at]}"
    if name in _RUNNERS:
        return program_of(words[follow:])
    return f"{name} {words[at]} {words[follow]}" if name in _SCRIPT_RUNNERS else f"{name} {words[at]}"


def _next_plain(words: Sequence[str], at: int) -> int | None:
    """The index of the next word that can be a sub-command; options are passed over."""
    while at < len(words):
        if not words[at].startswith("-") and not words[at].isdigit():  # `make -j 4 test`
            return at if _PLAIN.match(words[at]) else None
        at += 2 if words[at] in _VALUE_OPTIONS else 1
    return None


def _programs(steps: Iterable[Step], nesting: int) -> Iterable[str]:
    for step in steps:
        if isinstance(step.what, Group):
            yield from _programs(step.what.steps, nesting)
            continue
        yield from _of_simple(step.what, nesting)


def _of_simple(simple: Simple, nesting: int) -> Iterable[str]:
    words, _ = unwrap(simple.words)
    script = script_of(words)
    if script is not None and nesting < MAX_NESTING:
        yield from _programs(parse(script), nesting + 1)
    elif words:
        yield program_of(words)


def programs_in(command: str) -> list[str]:
    """Every program that a command line runs, with sub-commands, in order."""
    return list(_programs(parse(command), 0))


def key_of_programs(programs: Iterable[str]) -> str:
    """The key of a line that runs these programs: those that may take time, each once, in order, three at most."""
    every = list(dict.fromkeys(p for p in programs if p))
    heavy = [p for p in every if p.partition(" ")[0] not in _GLUE]
    return "+".join(heavy[:MAX_PARTS] or every[-1:])[:MAX_KEY_CHARS]


def tool_key(command: str) -> str:
    """The key of a shell command line; an empty string when it runs nothing.

    >>> tool_key("cd app && PYTHONPATH=. timeout 60 python3 -m pytest -x tests | tail -5")
    'pytest'
    """
    return key_of_programs(programs_in(command))


def key_for(key: str | None, command: str | None, tool_class: str | None = None) -> str:
    """The key of a call: the one it was given, else its command's, else its class, else an empty string."""
    if key:
        return key[:MAX_KEY_CHARS]
    return (tool_key(command) if command else "") or (tool_class or "")[:MAX_KEY_CHARS]
