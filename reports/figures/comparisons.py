"""The figures of studies over many runs: critical differences, correlations, what structure has to do with scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports.analysis.statistics import Friedman
from reports.figures.drawing import DASHES, GREY, GRID, HUES, INK, MARKERS, drawing, panel, svg
from reports.wording import metric_name

FEW = 20
"""Methods up to which Demšar's diagram can be read."""


def critical_differences(test: Friedman, name: str, title: str) -> str:
    """Demšar's diagram: methods along the axis of mean ranks, bars join those within the critical difference.

    Of many methods each gets a line of its own instead, see `rank_intervals`.
    """
    if len(test.ranks) > FEW:
        return rank_intervals(test, name, title)
    order = sorted(test.ranks, key=lambda label: (test.ranks[label], label))
    half = (len(order) + 1) // 2
    bars = test.cliques
    with drawing(name):
        base = -0.3 - 0.12 * len(bars)
        low_end, high_end = base - 0.24 * half, 0.8
        height = high_end - low_end
        figure = Figure(figsize=(7.6, height))
        room = min(0.32, max(0.2, (0.5 + 0.078 * max(map(len, order))) / 7.6))
        axes = figure.add_axes((room, 0.02, 1 - 2 * room, 0.96))
        low, high = 1, len(order)
        axes.set_xlim(low - 0.05 * (high - low), high + 0.05 * (high - low))
        axes.set_ylim(low_end, high_end)
        axes.axis("off")
        axes.plot([low, high], [0, 0], color=INK, lw=1)
        for tick in range(low, high + 1):
            axes.plot([tick, tick], [0, 0.07], color=INK, lw=1)
            if len(order) <= 20 or tick % 5 == 0 or tick == 1:
                axes.annotate(str(tick), (tick, 0.1), ha="center", fontsize=8.5)
        axes.plot([low, low + test.critical], [0.5, 0.5], color=INK, lw=1.4, marker="|", markersize=7)
        axes.annotate(f"critical difference {test.critical:.2f}", (low, 0.57), fontsize=8.5)
        for level, clique in enumerate(bars):
            left, right = test.ranks[clique[0]], test.ranks[clique[-1]]
            y = -0.14 - 0.12 * level
            axes.plot([left - 0.03, right + 0.03], [y, y], color=HUES[0], lw=3.2, solid_capstyle="round")
        for i, label in enumerate(order):
            on_left = i < half
            y = base - 0.24 * (i if on_left else len(order) - 1 - i)
            edge = axes.get_xlim()[0 if on_left else 1]
            rank = test.ranks[label]
            axes.plot([rank, rank, edge], [0, y, y], color=GREY, lw=0.8)
            axes.annotate(f"{label} {rank:.2f}" if on_left else f"{rank:.2f} {label}", (edge, y), va="center",
                          ha="right" if on_left else "left", fontsize=9, xytext=(-4 if on_left else 4, 0),
                          textcoords="offset points", annotation_clip=False)
        return svg(figure, name, title, _said(test, order))


def rank_intervals(test: Friedman, name: str, title: str) -> str:
    """Mean ranks, best first, each with half the critical difference to both sides: what does not overlap differs.

    The shade is the interval of the best; methods that reach into it cannot be told from the best.
    """
    order = sorted(test.ranks, key=lambda label: (test.ranks[label], label))
    half = test.critical / 2
    with drawing(name):
        height = 0.165 * len(order) + 0.85
        room = min(0.36, (0.3 + 0.073 * max(map(len, order))) / 7.6)
        figure = Figure(figsize=(7.6, height))
        axes = panel(figure, (room, 0.5 / height, 0.97 - room, 1 - 0.8 / height), "mean rank", "rank, 1 is best")
        ranks = np.array([test.ranks[label] for label in order])
        best = ranks[0]
        axes.axvspan(best - half, best + half, color=HUES[0], alpha=0.1, lw=0)
        ties = ranks - half <= best + half
        for chosen, colour in ((ties, HUES[0]), (~ties, GREY)):
            places = np.flatnonzero(chosen)
            axes.hlines(places, ranks[chosen] - half, ranks[chosen] + half, color=colour, lw=1.2)
            axes.plot(ranks[chosen], places, ls="", marker="o" if colour != GREY else "s", color=colour, markersize=4,
                      markeredgewidth=0)
        axes.set_yticks(range(len(order)), order, fontsize=8)
        axes.set_ylim(len(order) - 0.4, -0.6)
        axes.set_xlim(0.5, len(order) + 0.5)
        axes.grid(axis="x")
        axes.spines["left"].set_visible(False)
        return svg(figure, name, title, _said(test, order))


def _said(test: Friedman, order: list[str]) -> str:
    told = "; ".join(f"{label} {test.ranks[label]:.2f}" for label in order)
    return f"Mean ranks over {test.cells} cells: {told}. Critical difference {test.critical:.2f}."


# orange to nothing to blue: what is transparent in the middle is right on a light and on a dark page
_DIVERGING = LinearSegmentedColormap.from_list("signed", [
    (0.0, (0.835, 0.369, 0.0, 0.42)), (0.5, (0.835, 0.369, 0.0, 0.0)), (0.5, (0.0, 0.447, 0.698, 0.0)),
    (1.0, (0.0, 0.447, 0.698, 0.42))])


def matrix(values: pd.DataFrame, name: str, title: str) -> str:
    """A matrix of correlations, each cell with its number, so that colour is never alone."""
    with drawing(name):
        rows, columns = values.shape
        height = 0.34 * rows + 1.0
        figure = Figure(figsize=(min(7.6, 0.62 * columns + 2.2), height))
        width = figure.get_figwidth()
        axes = figure.add_axes((1.35 / width, 0.9 / height, 1 - 1.45 / width, 1 - 1.0 / height))
        axes.spines[["left", "bottom"]].set_visible(False)
        # what is missing is 0 and so transparent
        axes.pcolormesh(values.astype(float).fillna(0).to_numpy(), cmap=_DIVERGING, vmin=-1, vmax=1, linewidths=0.6,
                        edgecolor=GRID)
        axes.set(xlim=(0, columns), ylim=(rows, 0))
        for (row, column), value in np.ndenumerate(values.to_numpy()):
            axes.text(column + 0.5, row + 0.5, "–" if pd.isna(value) else f"{value:.2f}", ha="center", va="center",
                      fontsize=8.5, color=INK)
        axes.set_xticks(np.arange(columns) + 0.5, list(values.columns), rotation=40, ha="right", fontsize=8.5)
        axes.set_yticks(np.arange(rows) + 0.5, list(values.index), rotation=0, va="center", fontsize=8.5)
        axes.set(xlabel="", ylabel="")
        axes.tick_params(length=0)
        return svg(figure, name, title, f"Correlations of {', '.join(map(str, values.columns))}.")


def scatters(points: pd.DataFrame, measures: Sequence[str], metric: str, name: str, title: str) -> str:
    """Score against each measure of structure, a panel each, a point a cell; default splits are filled.

    Both come normalised within each split. Lines are least-squares fits as in figure 4 of ooDML: solid over all cells,
    dashed over those of default splits.
    """
    with drawing(name):
        columns = min(4, len(measures))
        lines = -(-len(measures) // columns)
        datasets = sorted(points["dataset"].unique())
        beside = max(1, min(6, int(7.4 / (0.55 + 0.085 * max(map(len, datasets))))))
        below = 0.17 * (-(-len(datasets) // beside) - 1)
        height = 2.25 * lines + below
        figure = Figure(figsize=(7.6, height))
        for number, measure in enumerate(measures):
            line, column = divmod(number, columns)
            axes = figure.add_axes(((column + 0.24) / columns, 1 - 2.25 * (line + 0.78) / height, 0.72 / columns,
                                    2.25 * 0.62 / height))
            for i, dataset in enumerate(datasets):
                here = points[points["dataset"] == dataset]
                for default, face in ((False, "none"), (True, HUES[i % 7])):
                    some = here[here["kind"].eq("default") == default]
                    axes.plot(some[measure], some[metric], ls="", markersize=3.3, marker=MARKERS[i % 8],
                              markerfacecolor=face, markeredgecolor=HUES[i % 7], markeredgewidth=0.7,
                              label=dataset if default else None)
            for cells, dash in ((points, "-"), (points[points["kind"].eq("default")], DASHES[1])):
                known = cells[[measure, metric]].dropna()
                if known[measure].nunique() > 1:
                    slope, start = np.polyfit(known[measure], known[metric], 1)
                    ends = np.array([known[measure].min(), known[measure].max()])
                    axes.plot(ends, start + slope * ends, color=INK, lw=1, ls=dash)
            axes.set_title(measure, loc="left", fontsize=8.5)
            axes.xaxis.set_major_locator(MaxNLocator(4))
            axes.tick_params(length=0, labelsize=7.5)
            axes.grid(True)
        figure.axes[0].set_ylabel(f"{metric_name(metric)}, normalised", fontsize=8.5)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        if len(datasets) > 1:
            figure.legend(handles, labels, loc="lower center", ncols=min(beside, len(datasets)), frameon=False,
                          fontsize=8, bbox_to_anchor=(0.5, 0.0))
        about = f"{metric_name(metric)} against {', '.join(measures)} over {len(points)} cells."
        return svg(figure, name, title, about)
