# SPDX-License-Identifier: Apache-2.0
"""A paused session gets its room back before its tool returns, because the tool's progress bar says it is about to.

make setup
python examples/early_restart.py

A real graph: Dynamo's frontend, TAO, NATS and one mock worker with room for a few sessions. The agents' model is
scripted (the worker's tokens are thrown away, the next command is in a list); their tools are real commands under
`tao-tool run`. The agent "trainer" runs a tqdm loop of 12 s. Meanwhile other agents fill the worker, and TAO pauses
the trainer. With `--watch off` nobody reads the bar, and TAO has to guess when the tool returns.
"""

from __future__ import annotations

import argparse
import dataclasses
import http.client
import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from launch.health import post_json
from launch.stack import Stack
from tool_hooks import Publisher, ToolCall
from tool_hooks.nats_wire import NatsOptions

BLOCK = 16
ROOM_BLOCKS = 256
WATCHED = "trainer"
TRAINING = "import time, tqdm\nfor _ in tqdm.tqdm(range(120)): time.sleep(0.1)"
OTHERS = 3
OTHERS_PROMPT = 500
OTHERS_TURNS = 3
TOOL_OUTPUT = 256


@dataclass(frozen=True)
class Moment:
    """One line of the timeline: seconds since the first turn, who saw it, what it was."""

    at: float
    seen_by: str
    what: str
    facts: dict[str, Any] = field(default_factory=dict)


class Timeline:
    """Collects moments from every thread."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.moments: list[Moment] = []

    def add(self, seen_by: str, what: str, *, at: float | None = None, **facts: Any) -> None:
        """Note what happened, now or at ``at`` (seconds of :func:`time.monotonic`)."""
        now = time.monotonic() if at is None else at
        self.moments.append(Moment(round(now - self.began, 3), seen_by, what, facts))

    def sorted(self) -> list[Moment]:
        """The moments in the order in which they happened."""
        return sorted(self.moments, key=lambda moment: moment.at)


class Agent:
    """An agent loop: ask the model, run the command that the script says, ask again with a longer prompt."""

    def __init__(self, stack: Stack, session: str, prompt_tokens: int, timeline: Timeline | None = None) -> None:
        self.stack = stack
        self.session = session
        self.timeline = timeline
        seed = sum(session.encode())
        self.prompt = [100 + (seed * 131 + 7 * i) % 3000 for i in range(prompt_tokens)]
        self.turns = 0

    def run(self, commands: Sequence[str], answer_tokens: int, *, watch: str = "auto") -> None:
        """Alternate between turns and tools."""
        for command in commands:
            self.turn(answer_tokens)
            self.tool(command, watch)
        self.turn(answer_tokens, final=True)

    def turn(self, answer_tokens: int, *, final: bool = False) -> None:
        """One model request, streamed."""
        self.turns += 1
        self.note(f"turn {self.turns} sent, {len(self.prompt)} tokens")
        headers = {"content-type": "application/json", "x-dynamo-session-id": self.session}
        headers |= {"x-dynamo-session-final": "true"} if final else {}
        wanted = {"model": self.stack.model_name, "prompt": self.prompt, "max_tokens": answer_tokens, "stream": True}
        wanted |= {"ignore_eos": True, "stream_options": {"include_usage": True}}
        connection = http.client.HTTPConnection(urlsplit(self.stack.url).netloc, timeout=60)
        connection.request("POST", "/v1/completions", json.dumps(wanted), headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{self.session}: {answer.status} {answer.read().decode()}")
        first = True
        usage: dict[str, Any] = {}
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            usage = chunk.get("usage") or usage
            if first and chunk["choices"]:
                first = False
                self.note(f"turn {self.turns} first token")
        connection.close()
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        self.note(f"turn {self.turns} over, {cached} of its prompt's tokens were cached", cached=cached)
        self.prompt += self.prompt[: answer_tokens + TOOL_OUTPUT]

    def tool(self, command: str, watch: str) -> None:
        """One command under the shim, its output caught as a harness catches it."""
        shim = [sys.executable, "-m", "tool_hooks.cli", "run", "--session", self.session, "--watch", watch, "--"]
        environment = os.environ | {"NATS_SERVER": self.stack.nats_url, "DYN_NAMESPACE": self.stack.namespace}
        self.note("tool begins")
        subprocess.run([*shim, "sh", "-c", command], env=environment, capture_output=True, check=True)
        self.note("tool is back")

    def note(self, what: str, **facts: Any) -> None:
        """Write it down, if this agent is watched."""
        if self.timeline is not None:
            self.timeline.add("agent", what, **facts)


def follow_bus(stack: Stack, timeline: Timeline) -> subprocess.Popen[bytes]:
    """`tao-events tail`: what goes over the bus about the watched session. Comes back when it hears."""
    command = [sys.executable, "-m", "kv_events.cli", "tail", "--json", "--nats", stack.nats_url]
    command += ["--topic", "agent-tool-events", "--session", WATCHED]
    tail = subprocess.Popen(command, stdout=subprocess.PIPE)
    hears = threading.Event()

    def read() -> None:
        tenths = -1
        for line in tail.stdout or ():
            hears.set()
            event = json.loads(line)
            if event["tool_class"] == "hello":
                continue
            fraction = event.get("fraction")
            if fraction is not None:
                if int(10 * fraction) == tenths:
                    continue
                tenths = int(10 * fraction)
            rest = "".join(
                f" {name}={event[name]:.3g}"
                for name in ("fraction", "remaining_s", "duration_ms")
                if event.get(name) is not None
            )
            timeline.add("bus", f"{event['kind']}{rest}", **event)

    threading.Thread(target=read, daemon=True).start()
    publisher = Publisher(options=NatsOptions(servers=(stack.nats_url,)), namespace=stack.namespace)
    while not hears.wait(0.1) and tail.poll() is None:
        ToolCall("hello", session_id=WATCHED, publisher=publisher).progress()
    publisher.close()
    return tail


def follow_tao(stack: Stack, timeline: Timeline, over: threading.Event) -> None:
    """TAO's own view of the watched session: each change of its state and of what it expects of the tool."""
    last: tuple[object, ...] = ()
    port = stack.system_port("tao-router")
    while not over.wait(0.02):
        _, view = post_json(port, "/engine/tao/explain", {"session": WATCHED})
        if "error" in view:
            continue
        calls = view["tool_calls"]
        source = calls[0]["remaining"]["source"] if calls else None
        seen = (view["state"], view["node"], view["ready"], source)
        if seen == last:
            continue
        left = f", {view['remaining_s']:.1f} s left by {source}" if calls else ""
        what = f"{view['state']}, {'room' if view['node'] else 'no room'}, {'' if view['ready'] else 'not '}ready{left}"
        # TAO's clock is this machine's monotonic clock: a change of state is dated by TAO itself.
        dated = view["since"] if last and view["state"] != last[0] else None
        timeline.add("TAO", what, at=dated, state=view["state"], node=view["node"], ready=view["ready"], source=source)
        last = seen


def play(stack: Stack, watch: str) -> tuple[list[Moment], dict[str, Any]]:
    """Run the agents; returns the timeline and TAO's status afterwards."""
    timeline, over = Timeline(), threading.Event()
    tail = follow_bus(stack, timeline)
    timeline.began = time.monotonic()
    training = f"{shlex.quote(sys.executable)} -c {shlex.quote(TRAINING)}"
    trainer = Agent(stack, WATCHED, 1200, timeline)
    work = [threading.Thread(target=trainer.run, args=([training], 32), kwargs={"watch": watch})]
    watcher = threading.Thread(target=follow_tao, args=(stack, timeline, over))
    watcher.start()
    work[0].start()
    time.sleep(1.5)
    for number in range(OTHERS):
        other = Agent(stack, f"other-{number}", OTHERS_PROMPT)
        work.append(threading.Thread(target=other.run, args=(["sleep 0.3"] * (OTHERS_TURNS - 1), 64)))
        work[-1].start()
    for thread in work:
        thread.join()
    over.set()
    watcher.join()
    status = stack.status()
    time.sleep(0.2)
    tail.terminate()
    tail.wait()
    return timeline.sorted(), status


def restarted_by_progress(moments: Sequence[Moment]) -> bool:
    """Whether the session was paused in its tool call, and got room before the tool's end because of its progress."""
    tao = [moment.facts for moment in moments if moment.seen_by == "TAO"]
    turning = ("paused", "tool")
    return any(
        (before["state"], after["state"]) == turning and after["ready"] and after["source"] == "progress"
        for before, after in pairwise(tao)
    )


def main() -> int:
    """Print the timeline; exit code 1 where no progress gave the session room before its tool returned."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--watch", choices=("auto", "off"), default="auto", help="read the bar or not (default: auto)")
    parser.add_argument("--json", action="store_true", help="print JSON (default: text)")
    args = parser.parse_args()
    config = {"Worker": {"num-gpu-blocks-override": ROOM_BLOCKS}}
    with Stack(workers=1, block_size=BLOCK, config=config) as stack:
        moments, status = play(stack, args.watch)
    counts = {name: status["core"].get(name, 0) for name in ("pauses", "restarts", "restarts_early", "turns_done")}
    counts |= {"tool_events": status["tool_events"], "faults": status["faults"]}
    if args.json:
        print(json.dumps({"moments": [dataclasses.asdict(moment) for moment in moments], "counts": counts}))
    else:
        for moment in moments:
            print(f"{moment.at:7.2f}  {moment.seen_by:6} {moment.what}")
        print(counts)
    return 0 if restarted_by_progress(moments) else 1


if __name__ == "__main__":
    sys.exit(main())
