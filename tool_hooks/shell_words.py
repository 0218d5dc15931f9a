# SPDX-License-Identifier: Apache-2.0
"""Reads a shell command line far enough to name its programs and find its sleeps.

This is no shell: expansions stay unexpanded text, here-documents and comments are dropped, and whatever cannot
be understood is skipped. It never raises, recurses to a bounded depth and reads a bounded number of characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_CHARS = 16_384
MAX_TOKENS = 2_048
MAX_DEPTH = 8

Joiner = Literal["", ";", "&&", "||", "|", "&"]
"""What stands before a step: nothing (it is the first), or the operator that led to it (``&``: the step before
was sent to the background)."""


@dataclass(frozen=True, slots=True)
class Simple:
    """One program with its arguments, quotes removed, redirections and assignments dropped."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Steps that run together: a subshell or braces, a loop (any number of times), a branch (perhaps)."""

    kind: Literal["once", "loop", "branch"]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A program or group, with the operator before it, and whether it was sent to the background."""

    joiner: Joiner
    what: Simple | Group
    background: bool = False


_TOKEN = re.compile(
    r"""
    (?P<blank>[ \t\r]+|\\\n)
  | (?P<comment>(?<![^\s;&|()])\#[^\n]*)
  | (?P<here><<-?[ \t]*(?P<quote>['"]?)(?P<tag>[A-Za-z_][A-Za-z0-9_.]*)(?P=quote))
  | (?P<redirect>\d*(?:<<<|>>|>\||<>|[<>]&?|&>>?)[ \t]*)
  | (?P<op>&&|\|\||\|&|;;|[;&|()\n])
  | (?P<word>(?:
        \\.
      | '[^']*'?
      | "(?:[^"\\]|\\.)*"?
      | \$\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)?
      | `[^`]*`?
      | [^\s\\'"`;&|()<>]
    )+)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_QUOTED = re.compile(r"""'([^']*)'?|"((?:[^"\\]|\\.)*)"?|\\(.)""", re.DOTALL)
_LOOPS = frozenset(("for", "while", "until", "select"))
_CLOSERS = frozenset((")", "}", "done", "fi", "esac"))
_FILLERS = frozenset(("then", "do", "else", "elif", "!", "time"))


def _unquote(word: str) -> str:
    if "'" not in word and '"' not in word and "\\" not in word:
        return word
    return _QUOTED.sub(lambda m: m[1] if m[1] is not None else m[2] if m[2] is not None else m[3], word)


def _tokens(text: str) -> Iterator[tuple[bool, str]]:
    """Pairs (is an operator, text); here-documents, comments and redirections are left out."""
    position, count = 0, 0
    tags: list[str] = []
    after_redirect = False
    while position < len(text) and count < MAX_TOKENS:
        match = _TOKEN.match(text, position)
        if match is None:  # pragma: no cover - the last alternative takes any character
            return
        position = match.end()
        kind = match.lastgroup
        if match["here"]:
            tags.append(match["tag"])
        elif kind == "redirect":
            after_redirect = True
        elif kind == "op":
            after_redirect = False
            count += 1
            yield True, match["op"]
            if match["op"] == "\n":
                while tags:
                    end = re.compile(rf"^[ \t]*{re.escape(tags.pop(0))}[ \t]*$", re.MULTILINE).search(text, position)
                    position = min(end.end() + 1, len(text)) if end else len(text)
        elif kind == "word":
            if after_redirect:
                after_redirect = False
                continue
            count += 1
            yield False, match["word"]


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0

    def steps(self, depth: int, *, until_esac: bool = False) -> tuple[Step, ...]:
        """Steps up to the word or bracket that closes the group (which is consumed)."""
        found: list[Step] = []
        joiner: Joiner = ""
        words: list[str] = []

        def end_simple() -> None:
            if words:
                found.append(Step(joiner, Simple(tuple(words))))
                words.clear()

        while self._at < len(self._tokens):
            is_op, raw = self._tokens[self._at]
            self._at += 1
            if not is_op:
                if words:
                    words.append(_unquote(raw))
                elif raw in _CLOSERS:
                    if not until_esac or raw == "esac":
                        break
                elif raw in _FILLERS or _ASSIGNMENT.match(raw):
                    continue
                elif raw == "{" or raw in _LOOPS or raw in ("if", "case"):
                    self._open(raw, found, joiner, depth)
                else:
                    words.append(_unquote(raw))
                continue
            if raw == "(":
                if words:  # a function's definition: what it holds does not run here
                    words.clear()
                    self._skip_definition(depth)
                else:
                    self._open(raw, found, joiner, depth)
                continue
            if raw == ")":
                if until_esac:
                    words.clear()  # the pattern of a case
                    continue
                end_simple()
                break
            end_simple()
            joiner = self._after(raw, found)
        end_simple()
        return tuple(found)

    def _open(self, raw: str, found: list[Step], joiner: Joiner, depth: int) -> None:
        kind: Literal["once", "loop", "branch"] = (
            "loop" if raw in _LOOPS else "branch" if raw in ("if", "case") else "once"
        )
        if raw in ("for", "select", "case"):  # the variable and its values are no commands
            while self._at < len(self._tokens) and self._tokens[self._at] not in (
                (True, ";"),
                (True, "\n"),
                (False, "in"),
            ):
                self._at += 1
            if raw != "case":
                while self._at < len(self._tokens) and not self._tokens[self._at][0]:
                    self._at += 1
        if depth >= MAX_DEPTH:
            self._at = len(self._tokens)
            return
        inner = self.steps(depth + 1, until_esac=raw == "case")
        if inner:
            found.append(Step(joiner, Group(kind, inner)))

    def _skip_definition(self, depth: int) -> None:
        while self._at < len(self._tokens) and self._tokens[self._at] in (
            (True, ")"),
            (True, "\n"),
            (False, "{"),
        ):
            self._at += 1
            if self._tokens[self._at - 1] == (False, "{"):
                if depth < MAX_DEPTH:
                    self.steps(depth + 1)
                return

    @staticmethod
    def _after(raw: str, found: list[Step]) -> Joiner:
        if raw == "&":
            # `a | b &` sends the whole pipeline away.
            for i in range(len(found) - 1, -1, -1):
                found[i] = Step(found[i].joiner, found[i].what, background=True)
                if found[i].joiner not in ("|", "&&", "||"):
                    break
            return "&"
        if raw in ("&&", "||"):
            return raw  # type: ignore[return-value]
        return "|" if raw in ("|", "|&") else ";"


def parse(command: str) -> tuple[Step, ...]:
    """The steps of a command line, in order; empty when there is nothing to run.

    Args:
        command: the text as a shell would get it; only the first 16,384 characters are read.
    """
    return _Parser(command[:MAX_CHARS]).steps(0)
