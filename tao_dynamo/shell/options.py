# SPDX-License-Identifier: Apache-2.0
"""The ``--tao-*`` options: one table, read from flags and from their ``DYN_TAO_*`` twins by the same rules.

Options that are constants of the policy take their defaults from :class:`~tao_dynamo.core.policy.Policy`, so that
each default exists once.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from solver.front import METHODS
from tao_dynamo.core.policy import DEFAULT, MODES, PAPER, Policy
from tao_dynamo.errors import ConfigError

TRUE = ("1", "true", "yes", "on")
FALSE = ("0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class Option:
    """One option. ``kind`` is int, float, bool, str or a tuple of allowed words; ``low``/``high`` are inclusive."""

    name: str
    field: str
    kind: type | tuple[str, ...]
    default: object
    help: str
    low: float = -math.inf
    high: float = math.inf
    optional: bool = False
    paper: object = None

    @property
    def flag(self) -> str:
        """Such as ``--tao-horizon``."""
        return f"--tao-{self.name}"

    @property
    def env(self) -> str:
        """Such as ``DYN_TAO_HORIZON``."""
        return f"DYN_TAO_{self.name.upper().replace('-', '_')}"

    def read(self, text: str, where: str) -> object:
        """Turn the text of a flag or of the environment into a value.

        Raises:
            ConfigError: it is not what the option takes.
        """
        if self.optional and text.strip().lower() in ("", "none", "auto"):
            return None
        if isinstance(self.kind, tuple):
            if text not in self.kind:
                raise ConfigError(where, text, f"one of {', '.join(self.kind)}")
            return text
        if self.kind is bool:
            word = text.strip().lower()
            if word not in TRUE + FALSE:
                raise ConfigError(where, text, "true or false")
            return word in TRUE
        if self.kind is str:
            return text
        return self._number(text, where)

    def _number(self, text: str, where: str) -> int | float:
        want = f"{'a whole number' if self.kind is int else 'a number'}{self._bounds()}"
        try:
            value = int(text) if self.kind is int else float(text)
        except ValueError:
            raise ConfigError(where, text, want) from None
        if not (math.isfinite(value) and self.low <= value <= self.high):
            raise ConfigError(where, text, want)
        return value

    def _bounds(self) -> str:
        if self.low == -math.inf:
            return ""
        return f" from {self.low:g} to {self.high:g}" if self.high < math.inf else f" of at least {self.low:g}"

    def add_to(self, group: argparse._ArgumentGroup) -> None:
        """Add the flag to a parser. Left out, it is None, so that the environment and the mode can speak."""
        text = f"{self.help}\nenv var: {self.env} | default: {_show(self.default)}"
        if self.paper is not None and self.paper != self.default:
            text += f" (paper: {_show(self.paper)})"
        dest = self.dest
        if self.kind is bool:
            group.add_argument(self.flag, action=argparse.BooleanOptionalAction, dest=dest, default=None, help=text)
        else:
            choices = "{" + ",".join(self.kind) + "}" if isinstance(self.kind, tuple) else None
            group.add_argument(self.flag, dest=dest, default=None, help=text, metavar=choices or _metavar(self.kind))

    @property
    def dest(self) -> str:
        """Name in the parsed arguments."""
        return f"tao_{self.name.replace('-', '_')}"

    def given(self, args: argparse.Namespace, env: Mapping[str, str]) -> tuple[object, bool]:
        """Return the value that the flag, else the environment, gives, and whether either did."""
        value = getattr(args, self.dest)
        if value is not None:
            return (value if isinstance(value, bool) else self.read(value, self.flag)), True
        if (text := env.get(self.env)) is not None:
            return self.read(text, self.env), True
        return self.default, False


def _show(value: object) -> str:
    if value in (None, ""):
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _metavar(kind: object) -> str:
    return {int: "N", float: "X"}.get(kind, "TEXT")  # type: ignore[call-overload, no-any-return]


_SHARE = (0.01, 1.0)
_TIME = (0.0, math.inf)

# Help and bounds by field of Policy.
_POLICY: dict[str, tuple[str, tuple[float, float]]] = {
    "credit_half_life_s": ("Half-life of KV-cache credit, in seconds.", (0.001, math.inf)),
    "stale_discount": ("What credits are multiplied with on a node whose events have a gap.", (0.0, 1.0)),
    "horizon_s": ("A tool that returns within this many seconds is about to return.", _TIME),
    "refresh_s": ("How long, in seconds, a prediction that rests on progress events counts without another.", _TIME),
    "default_tool_s": ("Expected seconds of a tool that nothing is known of.", _TIME),
    "predictor": ("How the return of a tool is predicted.", _TIME),
    "candidates": (
        "Which paused sessions may get room before their turn arrives: those about to return, or all.",
        _TIME,
    ),
    "early_grace_s": ("Seconds for which room is kept for a session whose tool is about to return.", _TIME),
    "admission_mark": ("Share of a node's KV room up to which new room is given.", _SHARE),
    "pause_mark": ("Share of a node's KV room above which sessions are paused.", _SHARE),
    "target_mark": ("Share of a node's KV room to which pausing brings it down.", _SHARE),
    "pause_order": ("Which session is paused first: by value, the oldest kept, or the smallest first.", _TIME),
    "long_tool_factor": (
        "Part of its footprint that a session in a long tool call counts with; none: from the nodes' prefill rate.",
        (0.0, 1.0),
    ),
    "long_tool_s": ("Expected remaining seconds from which a tool call is long, on the reference machine.", _TIME),
    "prefill_rate": (
        "Prefill rate of a node, in tokens per second; none: learnt from the turns that ran there.",
        (1.0, math.inf),
    ),
    "host_tier": (
        "Sessions in a tool call weigh nothing, resting in host memory: where that is large enough, always, or never.",
        _TIME,
    ),
    "host_credit": ("What a token in a node's host memory is worth beside one on its device.", (0.0, 1.0)),
    "crowded_at": (
        "Sessions' contexts, per token of room, from which the admission mark is in force; below it the pause mark is.",
        _TIME,
    ),
    "work_conserving": (
        "Where nothing runs, sessions whose tool outlasts recomputing their cache make way for a turn that waits.",
        _TIME,
    ),
    "waiting_bound_s": ("Seconds of waiting after which a session is overdue.", _TIME),
    "overdue_share": ("Share of the room that overdue sessions may hold.", (0.0, 1.0)),
    "never_fits": ("What happens to a session larger than every node: refused, or run alone.", _TIME),
    "shared_prefixes": ("Count blocks that sessions share once; off: the simple sum, a safe upper bound.", _TIME),
    "balance": ("Between nodes of equal value take the one with most room.", _TIME),
    "solver": ("Solver method.", _TIME),
    "quantum": ("Tokens that costs and capacities are rounded to; none chooses per snapshot.", (1, math.inf)),
    "solve_interval_s": ("Least seconds between two solves.", _TIME),
    "solve_budget_ms": ("Time budget of a solve, in milliseconds.", (1.0, math.inf)),
    "solve_timeout_s": ("Seconds after which a solve that gives no answer is given up.", (0.01, math.inf)),
    "max_candidates": ("Waiting sessions that one solve looks at.", (1, math.inf)),
    "max_sessions": ("Sessions kept.", (1, math.inf)),
    "max_waiting": ("Waiting sessions beyond which new turns get Dynamo's overload status.", (1, math.inf)),
    "session_expiry_s": ("Seconds without a sign of life after which a session is forgotten.", (1.0, math.inf)),
    "idle_release_s": (
        "Seconds after which a session that runs no known tool gives up its room when others wait.",
        _TIME,
    ),
    "default_output_tokens": ("Expected output of a session's first turn, in tokens.", (1, math.inf)),
}


def policy_options() -> list[Option]:
    """One option per field of the policy, and ``--tao-policy`` that names the mode the others start from."""
    hints = get_type_hints(Policy)
    found = [Option("policy", "name", tuple(MODES), DEFAULT.name, "Named policy that the other options start from.")]
    for item in dataclasses.fields(Policy):
        if item.name == "name":
            continue
        text, (low, high) = _POLICY[item.name]
        kind, optional = (METHODS, False) if item.name == "solver" else _kind(hints[item.name])
        name = item.name.removesuffix("_s").replace("_", "-")
        default, paper = getattr(DEFAULT, item.name), getattr(PAPER, item.name)
        found.append(Option(name, item.name, kind, default, text, low, high, optional, paper))
    return found


def _kind(hint: Any) -> tuple[type | tuple[str, ...], bool]:
    """Return the option kind of a field's annotation, and whether it may be None."""
    if get_origin(hint) is Literal:
        return get_args(hint), False
    args = [arg for arg in get_args(hint) if arg is not type(None)]
    return (args[0], True) if args else (hint, False)


def read_policy(options: list[Option], args: argparse.Namespace, env: Mapping[str, str]) -> Policy:
    """The policy that flags and environment ask for.

    Raises:
        ConfigError: a value is out of bounds, or two contradict each other.
    """
    mode, rest = options[0], options[1:]
    name, _ = mode.given(args, env)
    policy = MODES[str(name)]
    changes: dict[str, Any] = {}
    for option in rest:
        value, was_given = option.given(args, env)
        if was_given:
            changes[option.field] = value
    policy = dataclasses.replace(policy, **changes)
    for name, mark in (("target", policy.target_mark), ("admission", policy.admission_mark)):
        if mark > policy.pause_mark:
            if f"{name}_mark" not in changes:  # it is the other that was given
                wanted = f"at least --tao-{name}-mark, which is {mark}; lower that as well"
                raise ConfigError("--tao-pause-mark", policy.pause_mark, wanted)
            raise ConfigError(f"--tao-{name}-mark", mark, f"at most --tao-pause-mark ({policy.pause_mark})")
    return policy
