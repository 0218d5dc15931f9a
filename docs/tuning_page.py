# SPDX-License-Identifier: Apache-2.0
"""Writes docs/tuning.md out of the tables that the commands themselves read: `python docs/tuning_page.py`.

A test keeps the page the same as what this gives.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path

from launch.options import TWINS, flag
from launch.serve import parser as serve_parser
from tao_dynamo.shell.config import parser as router_parser
from tao_dynamo.shell.options import Option

PAGE = Path(__file__).with_name("tuning.md")

HEAD = """\
# Tuning

You want to change how TAO places and pauses sessions, or where it listens. Every option is a flag of
`python -m tao_dynamo` (`tao-router`) and an environment variable; the flag wins. Under `dynamo serve` a flag of the
router is written `--TaoRouter.tao-horizon=2`.

Start from what you see, not from the table:

| you see | turn |
|---|---|
| turns wait long before their first token, and nodes are below their mark | `--tao-admission-mark` up, at most to 0.9 |
| engines preempt, or TTFT jumps when nodes are full | `--tao-admission-mark` down to 0.8, `--tao-pause-mark` to 0.9 |
| the mean is good and a few sessions wait for minutes | `--tao-overdue-share` up, `--tao-pause-order oldest-first` |
| the oldest are served well and everybody else is slow | `--tao-overdue-share` down |
| sessions are paused whose tools return at once | `--tao-horizon` up; see first that tool events arrive |
| clients retry for minutes under overload | `--tao-max-waiting` down: new turns then get Dynamo's overload status |
| plans take long (`solve_seconds`) | `--tao-max-candidates` or `--tao-solve-budget-ms` down |
| prompts of different users must not move each other | `--tao-tool-namespaces`, see [security](security.md) |
| you compare with the paper | `--tao-policy paper`: its constants and candidates |

This page is made from the tables that the commands read (`python docs/tuning_page.py`).
"""

DYNAMOS = (
    "The flags of Dynamo's KV router (`--router-…`) are taken too, and are Dynamo's own:"
    " `python -m tao_dynamo --help` lists them."
)
BUS = (
    ("`NATS_SERVER`", "`nats://localhost:4222`", "The event bus; several URLs with commas. `tls://` asks for TLS."),
    ("`NATS_AUTH_USERNAME`, `NATS_AUTH_PASSWORD`", "`user`, `user`", "Credentials; both, else the next kind is tried."),
    ("`NATS_AUTH_TOKEN`", "none", "A token."),
    ("`NATS_AUTH_NKEY`", "none", "The seed of an nkey."),
    ("`NATS_AUTH_CREDENTIALS_FILE`", "none", "A credentials file with JWT and seed."),
    ("`NATS_TLS_CA_CERT_PATH`", "the system's", "PEM of the CA that signed the server's certificate."),
    ("`NATS_TLS_CLIENT_CERT_PATH`, `NATS_TLS_CLIENT_KEY_PATH`", "none", "Our own certificate, where the server asks."),
    ("`NATS_TLS_INSECURE`", "false", "Believe any certificate. For tests."),
    ("`DYN_EVENT_PLANE`", "nats; zmq with file discovery", "Must be `nats` for workers, router and frontend alike."),
    ("`DYN_TAO_BUS_PENDING_MESSAGES`", "65536", "Messages of one subject that may wait for the router."),
    ("`DYN_TAO_BUS_PENDING_BYTES`", "134217728", "Bytes of one subject that may wait for the router."),
)


def page() -> str:
    """The page."""
    made, policy, shell = router_parser()
    parts = [HEAD]
    parts += ["## Where the router stands", _table(_place(made), paper=False)]
    parts += ["## The policy", "Times in seconds, room in tokens.", _table(_options(policy), paper=True)]
    parts += ["## The shell", _table(_options(shell), paper=False)]
    parts.append(DYNAMOS)
    parts += ["## The bus", "Read by the router, the hooks, `tao-events` and Dynamo alike.", _bus()]
    parts += ["## `dynamo serve`", _table(_serve(), paper=False)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


Row = tuple[str, str, str, str, str]
"""Flag, variable, default, the paper's value, meaning."""


def _options(options: Iterable[Option]) -> list[Row]:
    rows = []
    for option in options:
        text = (getattr(_added(option), "help", "") or "").split("\nenv var:")[0]
        default, paper = option.default, option.paper
        shown = f"`{option.flag}`"
        if option.kind is bool:
            shown += f", `{option.flag.replace('--', '--no-', 1)}`"
        elif isinstance(option.kind, tuple):
            text += f" One of {', '.join(f'`{word}`' for word in option.kind)}."
        rows.append((shown, f"`{option.env}`", _show(default), _show(default if paper is None else paper), text))
    return rows


def _added(option: Option) -> argparse.Action:
    made = argparse.ArgumentParser()
    option.add_to(made.add_argument_group("x"))
    return made._actions[-1]  # noqa: SLF001 - argparse shows what was added nowhere else


def _place(made: argparse.ArgumentParser) -> list[Row]:
    (group,) = [group for group in made._action_groups if group.title == "Place in the graph"]  # noqa: SLF001
    rows = []
    for action in group._group_actions:  # noqa: SLF001
        text, _, rest = (action.help or "").partition("\nenv var: ")
        env, _, default = rest.partition(" | default: ")
        default = default.partition("\n")[0].replace("False", "false")
        text = text.partition("\n")[0]
        flags = [word for word in action.option_strings if word != "--block-size"]
        rows.append((", ".join(f"`{word}`" for word in flags), f"`{env}`", _show(default), "", text))
    return rows


def _serve() -> list[Row]:
    rows = []
    names = {flag(name): name for name in TWINS}
    for action in serve_parser()._actions:  # noqa: SLF001
        word = action.option_strings[-1] if action.option_strings else "GRAPH"
        if word == "--help":
            continue
        text = re.sub(r" \(env \S+\)", "", action.help or "")
        text, _, default = text.partition(" [default: ")
        env = f"`{TWINS[names[word]]}`" if word in names else ""
        rows.append((f"`{word}`", env, _show(default.rstrip("]") or "needed"), "", text))
    return rows


def _bus() -> str:
    lines = ["| Env | Default | Meaning |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {default} | {text} |" for name, default, text in BUS)]) + "\n"


def _table(rows: list[Row], *, paper: bool) -> str:
    head = ["Flag", "Env", "Default", *(["Paper"] if paper else []), "Meaning"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for shown, env, default, of_paper, text in rows:
        cells = [shown, env, default, *([of_paper if of_paper != default else ""] if paper else []), _cell(text)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    return text[:1].upper() + text[1:] if text else ""


def _show(value: object) -> str:
    if value in (None, "", "None"):
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
