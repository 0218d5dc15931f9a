# SPDX-License-Identifier: Apache-2.0
"""The report's plots, as small PNG files."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from PIL import Image

from benchmarks.report.data import BASELINES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from benchmarks.report.data import Cell

# Okabe and Ito's colours, which colour-blind readers can tell apart; TAO is black.
COLOURS = {
    "tao": "#000000",
    "tao-paper": "#888888",
    "thunderagent": "#D55E00",
    "dynamo-kv": "#0072B2",
    "round-robin": "#E69F00",
    "cache-aware": "#009E73",
    "longest-prefix": "#CC79A7",
}
SHOWN = {
    "latency_mean_s": "session latency, s",
    "ttft_mean_s": "time to first token, s",
    "decode_tokens_per_s": "decode, tokens/s",
    "cache_hit_share": "share of prompt tokens cached",
    "pause_wait_mean_s": "mean wait of a paused session, s",
}
_LOGARITHMIC = ("latency_mean_s", "ttft_mean_s")
_COLOURS_KEPT = 128


def against_concurrency(cells: Sequence[Cell], path: Path) -> None:
    """A panel for each workload and metric, a line for each policy; TAO's 95 % interval is grey."""
    workloads = list(dict.fromkeys(cell.workload for cell in cells))
    size = (3.0 * len(SHOWN), 2.3 * len(workloads) + 0.5)
    figure, axes = plt.subplots(len(workloads), len(SHOWN), figsize=size, squeeze=False, sharex=True)
    for row, workload in enumerate(workloads):
        some = sorted((cell for cell in cells if cell.workload == workload), key=lambda cell: cell.concurrency)
        for column, (metric, label) in enumerate(SHOWN.items()):
            panel = axes[row][column]
            _lines(panel, some, metric)
            if row == 0:
                panel.set_title(label, fontsize=9)
            if column == 0:
                panel.set_ylabel(workload, fontsize=10)
            if row == len(workloads) - 1:
                panel.set_xlabel("sessions at once", fontsize=8)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=len(labels), loc="lower center", fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    _save(figure, path)


def timelines(lines: Sequence[dict[str, Any]], path: Path) -> None:
    """One panel a policy: sessions on an engine, between turns, and waiting, stacked over time."""
    figure, axes = plt.subplots(len(lines), 1, figsize=(9, 1.75 * len(lines) + 0.4), squeeze=False, sharex=True)
    colours = ("#0072B2", "#BBBBBB", "#D55E00")
    states = (("running", "on an engine"), ("between", "in tools"), ("waiting", "waiting"))
    for (panel,), line in zip(axes, lines, strict=True):
        minutes = [t / 60 for t in line["t"]]
        values = [line[key] for key, _ in states]
        panel.stackplot(minutes, *values, labels=[label for _, label in states], colors=colours, step="post")
        panel.set_title(line["policy"], loc="left", fontsize=9)
        panel.set_ylim(0, line["concurrency"])
        panel.set_ylabel("sessions", fontsize=8)
        _plain(panel)
    axes[-1][0].set_xlabel("minutes", fontsize=8)
    axes[-1][0].set_xlim(left=0)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=3, loc="upper right", fontsize=9, frameon=False)
    figure.tight_layout()
    _save(figure, path)


def _lines(panel: Axes, cells: Sequence[Cell], metric: str) -> None:
    for name in ("tao", "tao-paper", *BASELINES):
        found = [(cell.concurrency, mean) for cell in cells if (mean := cell.mean(name, metric))]
        if not found:
            continue
        x = [at for at, _ in found]
        y = [mean.mean for _, mean in found]
        low = [mean.mean - (mean.half or 0) for _, mean in found]
        high = [mean.mean + (mean.half or 0) for _, mean in found]
        width = 2.0 if name == "tao" else 1.2
        panel.plot(x, y, color=COLOURS[name], label=name, linewidth=width, marker=".", markersize=4)
        if name == "tao":
            panel.fill_between(x, low, high, color="#DDDDDD", linewidth=0)
    panel.set_xscale("log", base=2)
    levels = [cell.concurrency for cell in cells]
    panel.set_xticks(levels, [str(level) for level in levels])
    panel.minorticks_off()
    if metric in _LOGARITHMIC:
        panel.set_yscale("log")
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        panel.yaxis.set_minor_locator(NullLocator())
    else:
        panel.set_ylim(bottom=0)
    _plain(panel)


def _plain(panel: Axes) -> None:
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=8)
    panel.grid(axis="y", linewidth=0.3, alpha=0.6)


def _save(figure: Figure, path: Path) -> None:
    """A PNG of few colours: a quarter of the size, and the same bytes each time."""
    raw = io.BytesIO()
    figure.savefig(raw, dpi=80)
    plt.close(figure)
    Image.open(raw).convert("RGB").quantize(_COLOURS_KEPT).save(path, optimize=True)
