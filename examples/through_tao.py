# SPDX-License-Identifier: Apache-2.0
"""Runs agent harnesses, as their packages are, against one graph with TAO in it, and compares what each side saw.

python examples/through_tao.py --python .venv-harness/bin/python --claude node_modules/.bin/claude

Every harness asks the same scripted model through Dynamo's frontend, runs real tools, and tells of them by the hooks.
For each: the session that its tool events name must be the one that TAO served turns for, and every tool event that
went over the bus must have reached TAO. Exit code 1 where that is not so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launch.health import post_json
from launch.stack import Stack
from tool_hooks import Publisher, ToolCall
from tool_hooks.nats_wire import NatsOptions

HERE = Path(__file__).parent
TOOLS = {"mini_swe_agent": 5, "langchain": 2, "openai_agents": 2, "mcp": 1, "claude": 2}
"""Harnesses, and how many tools each one's script runs."""
HELLO = "hello"
CLAUDE_TASK = """Look around. The scripted model takes these steps:
step Bash command: sleep 0.5; echo hello
step Bash command: ls /nonexistent
"""


class Bus:
    """What `tao-events tail` hears of tool events, by session and kind."""

    def __init__(self, stack: Stack) -> None:
        self.heard: Counter[tuple[str, str]] = Counter()
        command = [sys.executable, "-m", "kv_events.cli", "tail", "--json", "--nats", stack.nats_url]
        self._tail = subprocess.Popen([*command, "--topic", "agent-tool-events"], stdout=subprocess.PIPE)
        self._hears = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        publisher = Publisher(options=NatsOptions(servers=(stack.nats_url,)), namespace=stack.namespace)
        while not self._hears.wait(0.1) and self._tail.poll() is None:
            ToolCall(HELLO, session_id=HELLO, publisher=publisher).progress()
        publisher.close()
        time.sleep(0.5)  # the last greetings are on their way

    def _read(self) -> None:
        for line in self._tail.stdout or ():
            event = json.loads(line)
            self.heard[event["session"], event["kind"]] += 1
            self._hears.set()

    def close(self) -> None:
        """Stop listening."""
        self._tail.terminate()
        self._tail.wait()


def run(name: str, args: argparse.Namespace, stack: Stack) -> subprocess.CompletedProcess[str]:
    """Run one harness to its end."""
    environment = os.environ | {
        "OPENAI_BASE_URL": f"{stack.url}/v1",
        "OPENAI_API_KEY": "none",
        "ANTHROPIC_BASE_URL": stack.url,
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_MODEL": stack.model_name,
        "ANTHROPIC_SMALL_FAST_MODEL": stack.model_name,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "MSWEA_SILENT_STARTUP": "1",
        "NATS_SERVER": stack.nats_url,
        "DYN_NAMESPACE": stack.namespace,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE.parent), os.environ.get("PYTHONPATH")))),
    }
    with tempfile.TemporaryDirectory() as folder:
        if name == "claude":
            command = [args.claude, "-p", CLAUDE_TASK, "--allowedTools", "Bash"]
            environment["HOME"] = folder
            settings = Path(folder, ".claude", "settings.json")
            settings.parent.mkdir()
            hook = {"type": "command", "command": f"{sys.executable} -m tool_hooks.cli claude-hook", "timeout": 5}
            events = ("PreToolUse", "PostToolUse", "PostToolUseFailure")
            settings.write_text(json.dumps({"hooks": {e: [{"matcher": "*", "hooks": [hook]}] for e in events}}))
        else:
            command = [args.python, str(HERE / f"{name}_hooks.py")]
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
        )


def received(status: Mapping[str, Any]) -> dict[str, int]:
    """Tool events that TAO has received, by kind."""
    return {
        kind: status["tool_events"].get(kind, 0) for kind in ("tool_start", "tool_progress", "tool_end", "tool_error")
    }


def check(name: str, args: argparse.Namespace, stack: Stack, bus: Bus) -> bool:
    """Run one harness and compare; prints a block of lines."""
    before, status = Counter(bus.heard), stack.status()
    ran = run(name, args, stack)
    print(f"== {name}: exit code {ran.returncode}")
    for line in (ran.stdout if ran.returncode == 0 else ran.stdout + ran.stderr).strip().splitlines()[-6:]:
        print("   |", line[:160])
    time.sleep(0.5)
    after = stack.status()
    heard = bus.heard - before
    sessions = sorted({session for session, _ in heard})
    told = Counter({kind: count - received(status)[kind] for kind, count in received(after).items()})
    sent = Counter[str]()
    for (_, kind), count in heard.items():
        sent[kind] += count
    turns = after["turns"].get("session_turns", 0) - status["turns"].get("session_turns", 0)
    print(f"   TAO served {turns} turns of sessions; on the bus {dict(sent)}; TAO received {dict(+told)}")
    known = []
    for session in sessions:
        _, view = post_json(stack.system_port("tao-router"), "/engine/tao/explain", {"session": session})
        known.append("error" not in view)
        print(
            f"   session {session} of the tool events: TAO says",
            view.get("error") or f"{view['state']}, {view['footprint']} tokens",
        )
    return (
        ran.returncode == 0
        and turns >= TOOLS[name]
        and known == [True]
        and sent == +told
        and sent["tool_start"] == sent["tool_end"] + sent["tool_error"] == TOOLS[name]
    )


def main() -> int:
    """Run the harnesses that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--python", default=sys.executable, help="the Python that has the harnesses (default: this one)"
    )
    parser.add_argument("--claude", metavar="PATH", default=None, help="Claude Code's command (default: leave it out)")
    parser.add_argument("--only", metavar="NAME", choices=tuple(TOOLS), help="this harness alone (default: all)")
    args = parser.parse_args()
    if args.claude:
        args.claude = str(Path(args.claude).absolute())
    names = [args.only] if args.only else [name for name in TOOLS if name != "claude" or args.claude]
    results = {}
    with Stack(f"{HERE / 'scripted' / 'graph.py'}:Frontend", workers=1) as stack:
        bus = Bus(stack)
        for name in names:
            results[name] = check(name, args, stack, bus)
        bus.close()
    print(*(f"{'ok    ' if good else 'FAILED'}  {name}" for name, good in results.items()), sep="\n")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
