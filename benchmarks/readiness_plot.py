# SPDX-License-Identifier: Apache-2.0
"""The plot of ``tao-bench readiness``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks.readiness_score import Outcome, score


def plot(outcomes: Mapping[str, Sequence[Outcome]], path: Path) -> None:
    """Draws precision against recall, the final errors' distribution, and who was announced by how long calls ran.

    Args:
        outcomes: by predictor.
        path: file to write; its ending says the format.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    trade, spread, lengths = figure.subplots(1, 3)
    edges = [0.0, 0.1, 0.3, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0]
    for i, (name, every) in enumerate(outcomes.items()):
        figures = score(every)
        colour = f"C{i}"
        trade.scatter([figures["recall"] or 0.0], [figures["precision"] or 0.0], color=colour, label=name, s=60)
        errors = sorted(o.final_error_s for o in every)
        spread.step(errors, [(k + 1) / len(errors) for k in range(len(errors))], where="post", color=colour, label=name)
        shares = []
        for low, high in pairwise(edges):
            group = [o for o in every if low < o.call.duration_s <= high]
            shares.append(sum(o.announced for o in group) / len(group) if group else float("nan"))
        lengths.plot(range(len(shares)), shares, marker="o", color=colour, label=name)
    trade.set(xlabel="recall", ylabel="precision", xlim=(0, 1.02), ylim=(0, 1.02), title="announced within 1 s")
    spread.set_xscale("symlog", linthresh=0.1)
    spread.axvline(0.5, color="grey", linewidth=0.8, linestyle=":")
    spread.set(
        xlabel="error of the final prediction, s", ylabel="share of calls", ylim=(0, 1.02), title="final prediction"
    )
    lengths.set_xticks(range(len(edges) - 1), [f"{a:g}-{b:g}" for a, b in pairwise(edges)])
    lengths.set(xlabel="the call lasts, s", ylabel="recall", ylim=(0, 1.02), title="announced, by length")
    for axes in (trade, spread, lengths):
        axes.grid(alpha=0.3)
    trade.legend(loc="lower left", fontsize=8)
    figure.savefig(path, dpi=120)
