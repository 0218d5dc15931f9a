# SPDX-License-Identifier: Apache-2.0
"""Problems and plans as JSON, so that any snapshot can be saved, replayed and argued about."""

from __future__ import annotations

import json
from typing import Any

from solver.checks import validate
from solver.problem import Candidate, Node, Plan, Problem, Value
from tao_dynamo.errors import ProblemError

_PROBLEM = {"quantum", "seed", "balance", "nodes", "candidates"}
_NODE = {"id", "capacity"}
_CANDIDATE = {"id", "cost", "ready", "footprint", "credit", "tier"}


def problem_from_json(text: str | bytes) -> Problem:
    """Read and check a problem; an absent quantum is 0, which leaves it to the solver.

    Raises:
        ProblemError: not JSON, or a field is missing, unknown or wrong; it is named.
    """
    try:
        raw = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_object)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProblemError("problem", str(error), "JSON") from error
    _fields("problem", raw, _PROBLEM, {"nodes", "candidates"})
    problem = Problem(
        nodes=tuple(_node(k, each) for k, each in enumerate(_list(raw, "nodes"))),
        candidates=tuple(_candidate(k, each) for k, each in enumerate(_list(raw, "candidates"))),
        quantum=raw.get("quantum", 0),
        seed=raw.get("seed", 0),
        balance=raw.get("balance", True),
    )
    validate(problem)
    return problem


def problem_to_json(problem: Problem) -> str:
    """One line that :func:`problem_from_json` reads back as the same problem."""
    return json.dumps(
        {
            "quantum": problem.quantum,
            "seed": problem.seed,
            "balance": problem.balance,
            "nodes": [{"id": node.id, "capacity": node.capacity} for node in problem.nodes],
            "candidates": [_candidate_out(candidate) for candidate in problem.candidates],
        }
    )


def plan_to_json(plan: Plan) -> str:
    """The plan on one line."""
    return json.dumps(
        {
            "placements": [{"candidate": placement.candidate, "node": placement.node} for placement in plan.placements],
            "value": _value_out(plan.value),
            "bound": _value_out(plan.bound),
            "optimal": plan.optimal,
            "method": plan.method,
            "seconds": plan.seconds,
            "quantum": plan.quantum,
            "note": plan.note,
        }
    )


def _value_out(value: Value) -> dict[str, int]:
    return {"credit": value.credit, "ready": value.ready, "footprint": value.footprint}


def _candidate_out(candidate: Candidate) -> dict[str, Any]:
    out: dict[str, Any] = {
        "id": candidate.id,
        "cost": candidate.cost,
        "ready": candidate.ready,
        "footprint": candidate.footprint,
        "credit": dict(candidate.credit),
    }
    if candidate.tier:
        out["tier"] = candidate.tier
    return out


def _no_constant(name: str) -> float:
    raise ProblemError("problem", name, "a number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in pairs:
        if name in out:
            raise ProblemError("problem", name, "each field once in its object")
        out[name] = value
    return out


def _node(k: int, raw: Any) -> Node:
    _fields(f"nodes[{k}]", raw, _NODE, _NODE)
    return Node(raw["id"], raw["capacity"])


def _candidate(k: int, raw: Any) -> Candidate:
    where = f"candidates[{k}]"
    _fields(where, raw, _CANDIDATE, {"id", "cost", "ready", "footprint"})
    credit = raw.get("credit", {})
    if not isinstance(credit, dict):
        raise ProblemError(f"{where}.credit", credit, "an object of node id to tokens")
    return Candidate(raw["id"], raw["cost"], raw["ready"], raw["footprint"], credit, raw.get("tier", 0))


def _list(raw: dict[str, Any], name: str) -> list[Any]:
    value = raw[name]
    if not isinstance(value, list):
        raise ProblemError(name, value, "a list")
    return value


def _fields(where: str, raw: Any, known: set[str], needed: set[str]) -> None:
    if not isinstance(raw, dict):
        raise ProblemError(where, raw, "an object")
    for name in raw:
        if name not in known:
            raise ProblemError(f"{where}.{name}", raw[name], f"one of the fields {', '.join(sorted(known))}")
    for name in sorted(needed - raw.keys()):
        raise ProblemError(f"{where}.{name}", None, "a value: the field is missing")
