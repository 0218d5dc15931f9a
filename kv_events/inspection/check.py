# SPDX-License-Identifier: Apache-2.0
"""``tao-events check``: is the bus healthy, and what is to be done where it is not. Pure: judges what was heard.

Every finding is one line. ``ok`` is as it should be, ``note`` may be as it should be, ``fail`` is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kv_events import wire
from kv_events.inspection.discovery import Discovery
from kv_events.inspection.meters import Meters, NodeMeter
from kv_events.inspection.toolboard import ToolBoard
from kv_events.types import NodeId

Level = Literal["ok", "note", "fail"]

HEALTHY: Final = 0
NO_EVENTS: Final = 3
"""Exit code: nothing of the workers comes over NATS."""
UNHEALTHY: Final = 4
"""Exit code: events come, but something is wrong with them."""

_WORTH_A_BLOCK: Final = 8
"""Blocks that a node has computed before it is expected to have announced any."""
_USUAL_BLOCK: Final = 64
_LAG_S: Final = 2.0
_MANY_ROOTS: Final = 3


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, how it is, and what to do (empty: nothing)."""

    level: Level
    about: str
    text: str
    advice: str = ""


@dataclass
class Heard:
    """All that a check rests on.

    Attributes:
        seconds: how long was listened.
        dropped: messages lost because we were too slow.
        outages: times that the bus went away meanwhile.
        discovery: None where no folder was given.
        router: the router's words for the nodes; None where no router was asked.
        expected: how many blocks ``meters`` looked out for; None where nobody said which.
        need_tools: whether tool events must come.
    """

    seconds: float
    meters: Meters
    board: ToolBoard
    dropped: int = 0
    outages: int = 0
    discovery: Discovery | None = None
    router: Mapping[NodeId, str] | None = None
    expected: int | None = None
    need_tools: bool = False


def judge(heard: Heard) -> list[Finding]:
    """Return all findings, in the order in which they are worth reading."""
    if not any(heard.meters.messages[topic] for topic in (wire.KV_EVENTS, wire.KV_METRICS, wire.FORWARD_METRICS)):
        return [_nothing(heard), *_tools(heard)]
    return [
        *_plane(heard),
        _events(heard),
        *_silent(heard),
        *_hashes(heard),
        *_order(heard),
        *_lag(heard),
        *_router(heard),
        *_tools(heard),
    ]


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 0, ``NO_EVENTS`` or ``UNHEALTHY``."""
    failed = [finding.about for finding in findings if finding.level == "fail"]
    if "bus" in failed:
        return NO_EVENTS
    return UNHEALTHY if failed else HEALTHY


def _nothing(heard: Heard) -> Finding:
    text = f"no message of any worker on NATS in {heard.seconds:g} s, though an idle worker sends one every second"
    found = heard.discovery
    zmq = found.transports(wire.KV_EVENTS)["zmq"] if found is not None else 0
    if zmq:
        return Finding(
            "fail",
            "bus",
            f"{zmq} of the workers publish over ZMQ",
            "start workers and routers with DYN_EVENT_PLANE=nats",
        )
    if found is not None and found.cards:
        return Finding(
            "fail",
            "bus",
            text,
            f"{len(found.cards)} nodes are up: is NATS_SERVER the same for them and for this command?",
        )
    return Finding(
        "fail",
        "bus",
        text,
        "are workers up, with DYN_EVENT_PLANE=nats (file discovery without it means ZMQ) and this NATS_SERVER? "
        "--discovery FOLDER tells more",
    )


def _plane(heard: Heard) -> Iterator[Finding]:
    transports = heard.discovery.transports(wire.KV_EVENTS) if heard.discovery is not None else {}
    others = {kind: count for kind, count in transports.items() if kind != "nats"}
    if others:
        listed = ", ".join(f"{count} over {kind.upper()}" for kind, count in sorted(others.items()))
        yield Finding(
            "fail", "plane", f"some workers publish elsewhere: {listed}", "start them with DYN_EVENT_PLANE=nats"
        )


def _events(heard: Heard) -> Finding:
    meters = heard.meters
    publishing = [meter for meter in meters.nodes.values() if meter.events]
    if not publishing:
        return Finding(
            "note",
            "kv events",
            f"none in {heard.seconds:g} s from {len(meters.nodes)} nodes",
            ""
            if any(meter.prefilled for meter in meters.nodes.values())
            else "nothing was computed meanwhile: send a request and check again",
        )
    stored, removed = (sum(getattr(meter, name) for meter in publishing) for name in ("stored", "removed"))
    return Finding(
        "ok",
        "kv events",
        f"{meters.messages[wire.KV_EVENTS]:,} messages from {len(publishing)} of {len(meters.nodes)} nodes in "
        f"{heard.seconds:g} s: {stored:,} blocks stored, {removed:,} removed",
    )


def _silent(heard: Heard) -> Iterator[Finding]:
    meters = heard.meters.nodes
    cards = heard.discovery.cards if heard.discovery is not None else {}
    for node, card in sorted(cards.items()):
        if not card.publishes:
            yield Finding(
                "fail",
                "silent",
                f"node {node} has its KV events switched off",
                "vLLM: --enable-prefix-caching and --kv-events-config; else TAO serves it in approximate mode",
            )
        elif node not in meters:
            yield Finding(
                "fail", "silent", f"node {node} is up and sends nothing", "is DYN_EVENT_PLANE=nats set for it?"
            )
    for node, meter in sorted(meters.items()):
        known = cards.get(node)
        size = known.block_size if known is not None and known.block_size else _USUAL_BLOCK
        if not meter.events and meter.prefilled >= _WORTH_A_BLOCK * size and (known is None or known.publishes):
            yield Finding(
                "fail",
                "silent",
                f"node {node} computed {meter.prefilled:,} tokens and announced no block",
                "switch its KV events on: vLLM --enable-prefix-caching and --kv-events-config",
            )


def _hashes(heard: Heard) -> Iterator[Finding]:
    nodes = heard.meters.nodes
    if heard.discovery is not None:
        sizes = {card.block_size for card in heard.discovery.cards.values() if card.block_size}
        if len(sizes) > 1:
            listed = ", ".join(f"{node}: {card.block_size}" for node, card in sorted(heard.discovery.cards.items()))
            yield Finding(
                "note", "block size", f"differs: {listed}", "TAO takes each as it is, Dynamo's router does not"
            )
    if heard.expected is not None:
        yield from _expected(nodes, heard.expected)
        return
    publishing = {node: meter for node, meter in sorted(nodes.items()) if meter.roots}
    odd = _odd_ones(publishing)
    for node in odd:
        yield Finding(
            "fail",
            "hashes",
            f"node {node}: shares no first block with any other node, though the others share theirs",
            "compare its block size, hash seed and tokenizer with the others'",
        )
    if odd or not any(meter.events for meter in nodes.values()):
        return
    shared = set.intersection(*(meter.roots for meter in publishing.values())) if len(publishing) > 1 else set()
    if shared:
        yield Finding("ok", "hashes", f"{len(publishing)} nodes announce {len(shared)} first blocks in common")
    else:
        yield Finding(
            "note",
            "hashes",
            "cannot be compared: no prompt began on several nodes meanwhile",
            "listen for longer, or give --tokens FILE with prompts that are being served",
        )


def _expected(nodes: Mapping[NodeId, NodeMeter], count: int) -> Iterator[Finding]:
    somewhere = any(meter.met for meter in nodes.values())
    for node, meter in sorted(nodes.items()):
        if meter.met:
            yield Finding("ok", "hashes", f"node {node}: blocks of the given prompts are announced as expected")
        elif meter.stored:
            yield Finding(
                # Where others announced them, this node may just not have been asked.
                "note" if somewhere else "fail",
                "hashes",
                f"node {node}: of {meter.stored:,} blocks stored none is one of the {count:,} expected",
                "compare block size, hash seed, LoRA, cache salt and tokenizer of worker and router",
            )


def _odd_ones(publishing: Mapping[NodeId, NodeMeter]) -> list[NodeId]:
    """Return nodes that share nothing with anybody, where all others hang together."""
    alone = [
        node
        for node, meter in publishing.items()
        if all(meter.roots.isdisjoint(other.roots) for key, other in publishing.items() if key != node)
    ]
    return alone if len(alone) <= len(publishing) - 2 else []


def _order(heard: Heard) -> Iterator[Finding]:
    meters = heard.meters
    if heard.dropped:
        yield Finding(
            "note",
            "this check",
            f"too slow: {heard.dropped:,} messages were dropped on our side",
            "gaps below are ours",
        )
    if heard.outages:
        yield Finding("fail", "nats", f"went away {heard.outages} times meanwhile", "look at the server's log")
    if meters.gaps:
        nodes = [str(node) for node, meter in sorted(meters.nodes.items()) if meter.gaps]
        at = f", at nodes {', '.join(nodes[:8])}" if nodes else ""
        yield Finding(
            "note" if heard.dropped or heard.outages else "fail",
            "gaps",
            f"{meters.gaps} gaps, {meters.missing:,} messages missing{at}",
            "publishers or the server drop: look for slow consumers and for the server's max_pending",
        )
    else:
        yield Finding("ok", "gaps", "none: every publisher's numbers are complete")
    restarts = sum(meter.restarts for meter in meters.nodes.values())
    if restarts:
        yield Finding("note", "restarts", f"{restarts} engines began anew meanwhile")
    if meters.unreadable or meters.unknown:
        yield Finding(
            "fail" if meters.unreadable else "note",
            "format",
            f"{meters.unreadable} messages or events unreadable, {meters.unknown} of an unknown kind",
            "is it Dynamo 1.6.1 on the other side? `tao-events tail --kind unreadable` shows them",
        )


def _lag(heard: Heard) -> Iterator[Finding]:
    worst = max(heard.meters.nodes.values(), key=lambda meter: meter.max_lag_s)
    text = f"at most {1e3 * worst.max_lag_s:,.0f} ms from publisher to here"
    if worst.max_lag_s > _LAG_S:
        yield Finding(
            "note", "lag", f"{text} (node {worst.node})", "clocks differ, or the network or the server is slow"
        )
    else:
        yield Finding("ok", "lag", text)


def _router(heard: Heard) -> Iterator[Finding]:
    if heard.router is None:
        return
    bad = {node: word for node, word in sorted(heard.router.items()) if word not in ("ok", "confirmed")}
    for node, word in bad.items():
        yield Finding("fail", "router", f"takes node {node} for {word}", _ROUTER_ADVICE.get(word, ""))
    unknown = sorted(set(heard.meters.nodes) - set(heard.router))
    if unknown:
        yield Finding(
            "note", "router", f"does not know {', '.join(map(str, unknown[:8]))}", "is it another endpoint's?"
        )
    if not bad:
        yield Finding("ok", "router", f"follows the events of {len(heard.router)} nodes")


_ROUTER_ADVICE: Final = {
    "stale": "it is fetching the node's state; if that lasts, look at its log",
    "silent": "switch the node's KV events on, with DYN_EVENT_PLANE=nats",
    "mismatch": "compare block size, hash seed and model of router and worker",
}


def _tools(heard: Heard) -> Iterator[Finding]:
    board = heard.board
    if not board.kinds and not board.unreadable:
        yield Finding(
            "fail" if heard.need_tools else "note",
            "tool events",
            f"none in {heard.seconds:g} s",
            "wrap the harness's tools (docs/hooks); NATS_SERVER must be set where they run",
        )
        return
    listed = ", ".join(f"{count:,} {kind}" for kind, count in sorted(board.kinds.items()))
    yield Finding("ok", "tool events", f"{listed or 'none readable'}; {board.running} calls run now")
    if board.unreadable:
        yield Finding(
            "fail", "tool events", f"{board.unreadable} cannot be read", "`tao-events tail --kind unreadable`"
        )
    if board.repeats:
        yield Finding("note", "tool events", f"{board.repeats} came twice and count once")
