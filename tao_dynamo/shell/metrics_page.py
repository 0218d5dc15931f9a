# SPDX-License-Identifier: Apache-2.0
"""Writes docs/metrics.md out of the table of metrics: ``python -m tao_dynamo.shell.metrics_page > docs/metrics.md``."""

from __future__ import annotations

import sys

from tao_dynamo.shell.metrics import FAMILIES, HISTOGRAMS, PREFIX

_HEAD = f"""\
# Metrics

You want to see what TAO does, on a board or by `curl`. The router serves Prometheus' text on its `DYN_SYSTEM_PORT`:

    curl -s http://127.0.0.1:$DYN_SYSTEM_PORT/metrics | grep {PREFIX}

Every name begins with `{PREFIX}`, which the table leaves out; Prometheus shows counters with `_total` behind the name.
No label is ever a session or a request. Dynamo adds its own labels of the endpoint and the process.

| you want to know | look at |
|---|---|
| do turns wait, and for how long | `waiting_turns`, `turn_wait_seconds`, `sessions{{state="waiting"}}` |
| is the KV room given away well | `node_reserved_tokens`, `node_residual_tokens` against `node_capacity_tokens` |
| is there load that is not TAO's | `node_foreign_tokens` |
| are sessions paused and restarted in time | `pause_seconds`, `paused_sessions`, `decisions{{kind="pauses"}}` |
| do predictions of the cache hold | `credit_predicted_tokens` beside `credit_confirmed_tokens` |
| do predictions of tools hold | `eta_error_seconds`, `tool_events` |
| are plans any good | `solve_seconds`, `solves`, `plans`, `plan_entries` |
| is the planner well | `planner_fallbacks`, `planner_restarts`, `planner_budget_overruns`, `planner_device_faults` |
| does TAO hear the nodes | `event_bus_connected`, `event_lag_seconds`, `node_silent`, `node_hash_mismatch_suspected` |
| is what it knows of them true | `node_stale`, `node_events`, `resyncs` |
| is anything wrong | `faults`, `event_faults`, `refusals`, `refused_workers` |

This page is made from the table that the router itself reads (`python -m tao_dynamo.shell.metrics_page`).

## Gauges and counters

| name | kind | labels | meaning |
|---|---|---|---|
"""

_DYNAMO = """
## Dynamo's own

Dynamo's own series of the endpoint `generate` (`dynamo_component_requests_total`, `dynamo_component_inflight_requests`
and the like) count the turns that come by Dynamo's server; those that [come in directly](hop.md), the rule, do not.
"""

_HISTOGRAMS = """
## Histograms

| name | buckets | meaning |
|---|---|---|
"""


def page() -> str:
    """The whole page."""
    rows = [
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels) or '-'} | {text} |"
        for name, (kind, text, labels) in FAMILIES.items()
    ]
    spread = [
        f"| `{name}` | {', '.join(f'{bound:g}' for bound in buckets)} | {text} |"
        for name, (text, buckets) in HISTOGRAMS.items()
    ]
    return _HEAD + "\n".join(rows) + "\n" + _HISTOGRAMS + "\n".join(spread) + "\n" + _DYNAMO


if __name__ == "__main__":
    sys.stdout.write(page())
