"""The figures of ladders and unions: score over distance, ranks along the ladder, parts of a union, training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports.drawing import DASHES, GREY, GRID, HUES, INK, MARKERS, Style, drawing, end_labels, svg

__all__ = ["GREY", "HUES", "MARKERS", "ladder_curve", "rank_flips", "size_bias", "sparkline", "training_curves",
           "union_dots"]


def ladder_curve(cells: pd.DataFrame, look: dict[str, Style], name: str, title: str, metric: str,
                 relative: bool = False) -> str:
    """Score over Fréchet distance at true scale, a curve for each `label` in the cells of `aggregate.rung_scores`.

    With `relative` the mean over the methods (floors not counted) is taken off at each rung. The band is one
    standard deviation over seeds. The default split is marked; floors are dashed and grey.
    """
    if relative:
        cells = cells[~cells["floor"]]
        whole = cells.groupby("label")["split"].transform("nunique") == cells["split"].nunique()
        cells = cells[whole]
        cells = cells.assign(score=cells["score"] - cells.groupby("split")["score"].transform("mean"))
    with drawing(name):
        height = 3.2 if relative else 4.3
        figure = Figure(figsize=(7.6, height))
        axes = figure.add_axes((0.06, 0.52 / height, 0.735, 1 - 0.84 / height))
        ends: list[tuple[str, float, float, Style]] = []
        for label, curve in cells.groupby("label", sort=False):
            style = look[str(label)]
            x, y = curve["frd"].to_numpy(float), 100 * curve["score"].to_numpy(float)
            axes.plot(x, y, color=style.colour, ls=style.dash, marker=style.marker if style.number >= 0 else None,
                      markeredgewidth=0, zorder=2 + (style.number >= 0), lw=1.8 if style.number != -1 else 1.0)
            if curve["std"].notna().any() and style.number != -1:
                half = 100 * curve["std"].fillna(0).to_numpy(float)
                axes.fill_between(x, y - half, y + half, color=style.colour, alpha=0.13, lw=0)
            ends.append((str(label), float(x[-1]), float(y[-1]), style))
        if relative:
            axes.axhline(0, color=GREY, lw=0.8, ls=(0, (3, 3)))
        axes.grid(axis="y")
        rungs = cells.drop_duplicates("split").sort_values("frd")
        if len(rungs):
            near, far = rungs["frd"].min(), rungs["frd"].max()
            axes.set_xlim(near - 0.03 * (far - near), far + 0.02 * (far - near))
        bottom, top = axes.get_ylim()
        axes.vlines(rungs["frd"], bottom, bottom + 0.02 * (top - bottom), color=INK, lw=0.8)
        for frd in rungs.loc[rungs["kind"] == "default", "frd"]:
            axes.axvline(frd, color=GREY, lw=0.9, ls=(0, (1, 2)), zorder=1)
            axes.annotate("default split", (frd, top), xytext=(4, -2), textcoords="offset points", fontsize=8.5,
                          va="top", color=GREY)
        axes.set_ylim(bottom, top)
        axes.set_xlabel("Fréchet distance between training and test images")
        axes.set_title(f"{metric}, {'difference to the mean over methods' if relative else 'percent'}", loc="left",
                       fontsize=10, pad=10)
        axes.tick_params(length=0)
        if ends:
            end_labels(axes, ends)
        told = "; ".join(f"{label} ends at {score:.1f}" for label, _, score, _ in ends)
        return svg(figure, name, title, f"{metric} over the distance of {len(rungs)} splits: {told}.")


def rank_flips(cells: pd.DataFrame, look: dict[str, Style], name: str, title: str) -> str:
    """The rank of each method on each rung, rungs in order of distance: lines that cross are rankings that flip.

    Takes the cells of `aggregate.rung_scores` with labels; floors and rows that lack a rung are left out.
    """
    wide = cells[~cells["floor"]].pivot_table(index="label", columns="split", values="score", sort=False).dropna()
    rungs = cells.drop_duplicates("split").sort_values(["frd", "split"])
    ranks = wide[rungs["split"].tolist()].rank(ascending=False, method="min")
    with drawing(name):
        height = max(2.4, 0.24 * len(ranks) + 1.0)
        figure = Figure(figsize=(7.6, height))
        axes = figure.add_axes((0.06, 0.52 / height, 0.735, 1 - 0.84 / height))
        ends = []
        for label, row in ranks.iterrows():
            style = look[str(label)]
            axes.plot(range(len(row)), row, color=style.colour, ls=style.dash, marker=style.marker, markeredgewidth=0,
                      zorder=2 + (style.number >= 0), lw=1.8 if style.number >= 0 else 1.0)
            ends.append((str(label), float(len(row) - 1), float(row.iloc[-1]), style))
        axes.set_xticks(range(len(rungs)), [f"{frd:.0f}" if frd >= 100 else f"{frd:.1f}" for frd in rungs["frd"]])
        axes.set_xlim(-0.15, len(rungs) - 0.9)
        axes.set_ylim(len(ranks) + 0.5, 0.5)
        axes.yaxis.set_major_locator(MaxNLocator(min(10, len(ranks)), integer=True))
        axes.set_xlabel("Fréchet distance of the split, in order and not to scale")
        axes.set_title("rank on each split", loc="left", fontsize=10, pad=10)
        axes.tick_params(length=0)
        axes.grid(axis="x")
        end_labels(axes, ends)
        told = "; ".join(f"{label}: {', '.join(str(int(rank)) for rank in row)}" for label, row in ranks.iterrows())
        return svg(figure, name, title, f"Ranks from the nearest to the farthest split. {told}.")


def size_bias(board: pd.DataFrame, sizes: dict[str, int], look: dict[str, Style], name: str, title: str,
              metric: str) -> str:
    """Score on each part of a union, less the mean over methods, against the number of its training images.

    A line that rises to the right is a method that favours large datasets more than the others do.
    """
    parts = sorted(sizes, key=lambda part: (sizes[part], part))
    mean = board.loc[~board["floor"], parts].mean()
    with drawing(name):
        figure = Figure(figsize=(7.6, 4.2))
        axes = figure.add_axes((0.08, 0.26, 0.715, 0.65))
        ends = []
        for _, row in board[board[parts].notna().all(axis=1) & ~board["floor"]].iterrows():
            style = look[row["label"]]
            across = [100 * (row[part] - mean[part]) for part in parts]
            axes.plot([sizes[part] for part in parts], across, color=style.colour, ls=style.dash, marker=style.marker,
                      markeredgewidth=0, lw=1.2)
            ends.append((row["label"], float(sizes[parts[-1]]), across[-1], style))
        axes.set_xscale("log")
        axes.set_xlabel("training images of the part (logarithmic)")
        axes.set_title(f"{metric} less the mean over methods, points", loc="left", fontsize=10, pad=10)
        axes.axhline(0, color=GREY, lw=0.8, ls=(0, (3, 3)))
        axes.tick_params(length=0, which="both")
        axes.minorticks_off()
        axes.set_xticks([sizes[part] for part in parts], [f"{part} {sizes[part]:,}" for part in parts],
                        fontsize=7.5, rotation=35, ha="right", rotation_mode="anchor")
        end_labels(axes, ends, logarithmic=True)
        return svg(figure, name, title, f"{metric} of {len(ends)} methods on {', '.join(parts)}, by training size.")


def union_dots(board: pd.DataFrame, parts: Sequence[str], look: dict[str, Style], name: str, title: str,
               metric: str) -> str:
    """A row of dots for each part of a union, then unified and harmonic: scale stays readable where radars hide it."""
    names = [*parts, "unified", "harmonic"]
    with drawing(name):
        height = 0.34 * len(names) + 0.9
        figure = Figure(figsize=(7.6, height))
        axes = figure.add_axes((0.13, 0.52 / height, 0.65, 1 - 0.6 / height))
        places = [i + (0.45 if i >= len(parts) else 0) for i in range(len(names))]
        for place, part in zip(places, names):
            values = 100 * board[part].dropna()
            if len(values):
                axes.plot([values.min(), values.max()], [place] * 2, color=GRID, lw=3, solid_capstyle="round", zorder=1)
        for _, row in board.iterrows():
            style = look[row["label"]]
            across = [100 * row[part] for part in names]
            axes.plot(across, places, ls="", color=style.colour, label=row["label"], zorder=3,
                      marker=style.marker, markeredgewidth=0 if style.number > -2 else 1.6, markersize=7)
        axes.set_yticks(places, names)
        axes.invert_yaxis()
        axes.axhline(len(parts) - 0.275, color=GRID, lw=0.8)
        axes.tick_params(length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        axes.set_xlabel(f"{metric}, percent")
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=9, handletextpad=0.2)
        return svg(figure, name, title, f"{metric} of {len(board)} methods on {', '.join(names)}.")


def training_curves(curves: Sequence[tuple[str, list[dict[str, float]]]], name: str, title: str, metric: str) -> str:
    """Loss and score over epochs, a line for each run of a method."""
    with drawing(name):
        figure = Figure(figsize=(7.6, 2.7))
        for position, (key, head) in enumerate((("loss", "training loss"), (metric, f"{metric}, percent"))):
            axes = figure.add_axes((0.06 + 0.42 * position, 0.19, 0.35, 0.66))
            for i, (label, curve) in enumerate(curves):
                points = [(p["epoch"], p[key]) for p in curve if p.get(key) is not None and p.get("epoch") is not None]
                if points:
                    x, y = np.array(points, float).T
                    axes.plot(x, y * (1 if key == "loss" else 100), color=HUES[i % 7], ls=DASHES[i % 8], lw=1.4,
                              marker="." if len(x) < 12 else None, label=label)
            axes.set_title(head, loc="left", fontsize=10)
            axes.set_xlabel("epoch")
            axes.grid(axis="y")
            axes.tick_params(length=0)
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        figure.axes[-1].legend(loc="center left", bbox_to_anchor=(1.03, 0.5), frameon=False, fontsize=8.5,
                               labelspacing=0.3)
        return svg(figure, name, title, f"Loss and {metric} over epochs of {len(curves)} runs.")


def sparkline(xs: Sequence[float], ys: Sequence[float], low: float, high: float) -> str:
    """A ladder curve the size of a word, drawn by hand because a page holds hundreds of them."""
    if len(xs) < 2:
        return ""
    left, width = min(xs), (max(xs) - min(xs)) or 1.0
    range_ = (high - low) or 1.0
    points = [(2 + 76 * (x - left) / width, 20 - 16 * (y - low) / range_) for x, y in zip(xs, ys)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    end = f'<circle cx="{points[-1][0]:.1f}" cy="{points[-1][1]:.1f}" r="2"/>'
    return f'<svg class="spark" viewBox="0 0 82 24" aria-hidden="true"><polyline points="{line}"/>{end}</svg>'
