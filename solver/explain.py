# SPDX-License-Identifier: Apache-2.0
"""A plan in words: why each candidate went where it did, or stayed out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from solver.problem import Candidate, Plan, Problem


def explain(problem: Problem, plan: Plan) -> list[str]:
    """One line on the plan, one per node, one per candidate in the problem's order.

    A reason speaks of room as the plan leaves it, in the plan's quanta turned back to tokens.
    """
    unit = plan.quantum
    where = {placement.candidate: placement.node for placement in plan.placements}
    rank = {placement.candidate: k + 1 for k, placement in enumerate(plan.placements)}
    costs = {candidate.id: -(-candidate.cost // unit) * unit for candidate in problem.candidates}
    room = {node.id: node.capacity // unit * unit for node in problem.nodes}
    whole = dict(room)
    for name, node in where.items():
        room[node] -= costs[name]
    lines = [_verdict(plan)]
    lines += [
        f"node {node.id}: {whole[node.id] - room[node.id]} of {whole[node.id]} tokens used" for node in problem.nodes
    ]
    for candidate in problem.candidates:
        name, cost = candidate.id, costs[candidate.id]
        if name in where:
            reason = _why_there(candidate, cost, where[name], room)
            lines.append(f"{name} -> {where[name]} (placed {_ordinal(rank[name])}): {reason}")
        else:
            lines.append(f"{name} stays out: {_why_out(candidate, cost, whole, room, plan)}")
    return lines


def _verdict(plan: Plan) -> str:
    value = f"credit {plan.value.credit}, ready {plan.value.ready}, footprint {plan.value.footprint}"
    text = f"{plan.method}: {len(plan.placements)} placed, {value}; "
    if plan.optimal:
        return text + "no plan is better"
    bound = plan.bound
    return text + f"none can be above credit {bound.credit}, ready {bound.ready}, footprint {bound.footprint}"


def _why_there(candidate: Candidate, cost: int, node: str, room: dict[str, int]) -> str:
    credit = candidate.credit.get(node, 0)
    best = max(candidate.credit.values(), default=0)
    if not best:
        elsewhere = [other for other in room if other != node and room[other] >= cost]
        if not elsewhere:
            return "no credit anywhere; now no other node has room for it"
        return "no credit anywhere, so any node is worth the same; the room left over is the more even this way"
    if credit == best:
        return f"its credit is greatest there, {credit} tokens"
    better = [f"{other} ({c})" for other, c in candidate.credit.items() if c > credit]
    gain = f"worth {credit} tokens of credit there" if credit else "without credit there"
    return f"{gain}; {', '.join(sorted(better))} would be worth more, but that room serves the plan's value better"


def _why_out(candidate: Candidate, cost: int, whole: dict[str, int], room: dict[str, int], plan: Plan) -> str:
    largest = max(whole.values(), default=0)
    if cost > largest:
        return f"it needs {cost} tokens and the largest node has {largest}"
    free = max(room.values())
    if cost > free:
        traits = [f"credit {max(candidate.credit.values(), default=0)}", "ready" if candidate.ready else "not ready"]
        return (
            f"it needs {cost} tokens, the most left on a node is {free}, and its place would have to be taken"
            f" from a placement worth more to the plan ({', '.join(traits)}, footprint {candidate.footprint})"
        )
    if plan.optimal:
        return "it would fit, but adds nothing: no credit, not ready, no footprint"
    return "it would fit; the method did not find that"


def _ordinal(k: int) -> str:
    ending = "th" if k % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(k % 10, "th")
    return f"{k}{ending}"
