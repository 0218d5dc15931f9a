# SPDX-License-Identifier: Apache-2.0
"""The solver benchmark as a picture: time and share proven, by size."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.solver_summary import Row


def plot(rows: Sequence[Row], path: Path) -> None:
    """Write a PNG: median to p95 of the time on the left, share proven optimal on the right."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    sizes = sorted({row.size for row in rows})
    methods = list(dict.fromkeys(row.method for row in rows))
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
    for method in methods:
        mine = [row for row in rows if row.method == method and row.solved]
        at = [sizes.index(row.size) for row in mine]
        middle = [row.median_ms for row in mine]
        above = [max(0.0, row.p95_ms - row.median_ms) for row in mine]
        left.errorbar(at, middle, yerr=[[0.0] * len(at), above], marker="o", capsize=3, label=method)
        right.plot(at, [100 * row.proven for row in mine], marker="o", label=method)
    left.set(yscale="log", ylabel="milliseconds (median, bar to p95)", title="Time per snapshot")
    right.set(ylim=(-3, 103), ylabel="% of snapshots", title="Proven optimal in all three components")
    for axis in (left, right):
        axis.set_xticks(range(len(sizes)), [str(size) for size in sizes])
        axis.set_xlabel("candidates x nodes")
        axis.grid(visible=True, alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
