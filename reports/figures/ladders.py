"""The figures of ladders and unions: score over distance, ranks along the ladder, parts of a union."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports.aggregate import key_of
from reports.figures.drawing import (
    GREY,
    GRID,
    HUES,
    INK,
    MARKERS,
    NAMED,
    Style,
    drawing,
    end_labels,
    grey_lines,
    panel,
    room,
    spread_out,
    svg,
)

__all__ = ["GREY", "HUES", "MARKERS", "ladder_curve", "rank_flips", "size_bias", "union_dots"]


def _width(labels: Sequence[str], look: dict[str, Style]) -> float:
    """Share of a figure's width that is left beside the names at its right."""
    named = [label for label in labels if len(labels) <= NAMED or look[label].number != -1]
    return min(0.8, max(0.5, 0.94 - room(named) / 7.6))


def ladder_curve(cells: pd.DataFrame, look: dict[str, Style], name: str, title: str, metric: str,
                 relative: bool = False) -> str:
    """Score over Fréchet distance at true scale, a curve for each `label` in the cells of `aggregate.rung_scores`.

    With `relative` the mean over the methods (baselines not counted) is taken off at each rung. The band is one
    standard deviation over seeds. The default split is marked; baselines are dashed and grey.
    """
    if relative:
        cells = cells[~cells["baseline"]]
        whole = cells.groupby("label")["split"].transform("nunique") == cells["split"].nunique()
        cells = cells[whole]
        cells = cells.assign(score=cells["score"] - cells.groupby("split")["score"].transform("mean"))
    with drawing(name):
        height = 3.2 if relative else 4.3
        figure = Figure(figsize=(7.6, height))
        axes = panel(figure, (0.06, 0.52 / height, _width(cells["label"].unique().tolist(), look), 1 - 0.84 / height),
                     f"{metric}, {'difference to the mean over methods' if relative else 'percent'}",
                     "Fréchet distance between training and test images")
        ends: list[tuple[str, float, float, Style]] = []
        rest = []
        for label, curve in cells.groupby("label", sort=False):
            style = look[str(label)]
            x, y = curve["frd"].to_numpy(float), 100 * curve["score"].to_numpy(float)
            ends.append((str(label), float(x[-1]), float(y[-1]), style))
            if style.number == -1:
                rest.append(list(zip(x.tolist(), y.tolist())))
                continue
            axes.plot(x, y, color=style.colour, ls=style.dash, marker=style.marker if style.number >= 0 else None,
                      markeredgewidth=0, zorder=2 + (style.number >= 0))
            if curve["std"].notna().any():
                half = 100 * curve["std"].fillna(0).to_numpy(float)
                axes.fill_between(x, y - half, y + half, color=style.colour, alpha=0.13, lw=0)
        if rest:
            grey_lines(axes, rest)
        if relative:
            axes.axhline(0, color=GREY, lw=0.8, ls=(0, (3, 3)))
        axes.grid(axis="y")
        rungs = cells.drop_duplicates("split").sort_values("frd")
        if len(rungs):
            near, far = rungs["frd"].min(), rungs["frd"].max()
            axes.set_xlim(near - 0.03 * (far - near), far + 0.02 * (far - near))
            ticks = _legible(rungs["frd"].tolist())
            axes.set_xticks(ticks, [_distance(frd) for frd in ticks])
        bottom, top = axes.get_ylim()
        axes.vlines(rungs["frd"], bottom, bottom + 0.02 * (top - bottom), color=INK, lw=0.8)
        for frd in rungs.loc[rungs["kind"] == "default", "frd"]:
            axes.axvline(frd, color=GREY, lw=0.9, ls=(0, (1, 2)), zorder=1)
            axes.annotate("default split", (frd, top), xytext=(4, -2), textcoords="offset points", fontsize=8.5,
                          va="top", color=GREY)
        axes.set_ylim(bottom, top)
        if ends:
            end_labels(axes, ends)
        ends_text = "; ".join(f"{label} ends at {score:.1f}" for label, _, score, _ in ends)
        return svg(figure, name, title, f"{metric} over the distance of {len(rungs)} splits: {ends_text}.")


def _distance(frd: float) -> str:
    return f"{frd:.0f}" if frd >= 100 else f"{frd:.1f}"


def _legible(places: list[float], share: float = 0.075) -> list[float]:
    """Of places in rising order those whose names do not run into one another; the first and the last always.

    >>> _legible([10, 12, 50, 96, 100])
    [10, 50, 100]
    """
    gap = share * (places[-1] - places[0])
    kept = places[:1]
    for place in places[1:-1]:
        if place - kept[-1] >= gap and places[-1] - place >= gap:
            kept.append(place)
    return kept + places[-1:] if len(places) > 1 else kept


def rank_flips(cells: pd.DataFrame, look: dict[str, Style], name: str, title: str) -> str:
    """The rank of each method on each rung, rungs in order of distance: lines that cross are rankings that flip.

    Takes the cells of `aggregate.rung_scores` with labels; baselines and rows that lack a rung are left out.
    """
    cells = cells[~cells["baseline"]]
    wide = cells.pivot_table(index="label", columns="split", values="score", sort=False).dropna()
    rungs = cells.drop_duplicates("split").sort_values(["frd", "split"])
    ranks = wide[rungs["split"].tolist()].rank(ascending=False, method="min")
    with drawing(name):
        height = min(6.4, max(2.4, 0.24 * len(ranks) + 1.0))
        figure = Figure(figsize=(7.6, height))
        axes = panel(figure, (0.06, 0.52 / height, _width(list(ranks.index), look), 1 - 0.84 / height),
                     "rank on each split", "Fréchet distance of the split, in order and not to scale")
        ends = []
        rest = []
        for label, row in ranks.iterrows():
            style = look[str(label)]
            ends.append((str(label), float(len(row) - 1), float(row.iloc[-1]), style))
            if style.number == -1:
                rest.append(list(enumerate(row.tolist())))
                continue
            axes.plot(range(len(row)), row, color=style.colour, ls=style.dash, marker=style.marker, markeredgewidth=0,
                      zorder=3)
        if rest:
            grey_lines(axes, rest)
        axes.set_xticks(range(len(rungs)), [_distance(frd) for frd in rungs["frd"]])
        axes.set_xlim(-0.15, len(rungs) - 0.9)
        axes.set_ylim(len(ranks) + 0.5, 0.5)
        axes.yaxis.set_major_locator(MaxNLocator(min(10, len(ranks)), integer=True))
        axes.grid(axis="x")
        end_labels(axes, ends)
        listed = "; ".join(f"{label}: {', '.join(str(int(rank)) for rank in row)}" for label, row in ranks.iterrows())
        return svg(figure, name, title, f"Ranks from the nearest to the farthest split. {listed}.")


def size_bias(board: pd.DataFrame, sizes: dict[str, int], look: dict[str, Style], name: str, title: str,
              metric: str) -> str:
    """Score on each part of a union, less the mean over methods, against the number of its training images.

    A line that rises to the right is a method that favours large datasets more than the others do.
    """
    parts = sorted(sizes, key=lambda part: (sizes[part], part))
    score = board.set_index("label")[[key_of("recall", part) for part in parts]].set_axis(parts, axis=1)
    score = score[~board["baseline"].to_numpy(bool)]
    mean = score.mean()
    names = [f"{part} {sizes[part]:,}" for part in parts]
    aside, down = (share * max(map(len, names)) for share in (0.047, 0.042))  # inches that a turned name takes
    with drawing(name):
        left, below, height = max(0.6, aside - 0.15), 0.5 + down, 3.6 + down
        figure = Figure(figsize=(7.6, height))
        wide = 7.6 * (_width(board["label"].tolist(), look) + 0.06) - left
        axes = panel(figure, (left / 7.6, below / height, wide / 7.6, 1 - (below + 0.4) / height),
                     f"{metric} less the mean over methods, points", "training images of the part (logarithmic)")
        axes.xaxis.set_label_coords(0.5, -(0.25 + down) / (height - below - 0.4))
        ends = []
        rest = []
        for label, row in score.dropna().iterrows():
            style = look[str(label)]
            across = [100 * (row[part] - mean[part]) for part in parts]
            ends.append((str(label), float(sizes[parts[-1]]), across[-1], style))
            if style.number == -1:
                rest.append([(float(sizes[part]), height) for part, height in zip(parts, across)])
                continue
            axes.plot([sizes[part] for part in parts], across, color=style.colour, ls=style.dash, marker=style.marker,
                      markeredgewidth=0, lw=1.2)
        axes.set_xscale("log")
        if rest:
            grey_lines(axes, rest)
        axes.axhline(0, color=GREY, lw=0.8, ls=(0, (3, 3)))
        axes.tick_params(length=0, which="both")
        axes.set_xticks([], minor=True)
        axes.set_xticks([])
        _names_below(axes, [float(sizes[part]) for part in parts], names, 0.19 / wide)
        end_labels(axes, ends, logarithmic=True)
        return svg(figure, name, title, f"{metric} of {len(ends)} methods on {', '.join(parts)}, by training size.")


def _names_below(axes: Axes, places: list[float], names: list[str], gap: float) -> None:
    """Turned names under a logarithmic axis, a share of it apart, each tied to its place by a thin line."""
    low, high = np.log(axes.get_xlim())
    true = [float((np.log(place) - low) / (high - low)) for place in places]
    apart = spread_out(true, gap, 0.0, 1.0)
    axes.add_collection(LineCollection([[(a, 0), (b, -0.03)] for a, b in zip(true, apart)], colors=GREY, linewidths=0.8,
                                       clip_on=False, transform=axes.transAxes), autolim=False)
    for place, name in zip(apart, names):
        axes.annotate(name, (place, -0.04), xycoords="axes fraction", fontsize=7.5, rotation=40, ha="right", va="top",
                      rotation_mode="anchor", annotation_clip=False)


def union_dots(board: pd.DataFrame, parts: Sequence[str], look: dict[str, Style], name: str, title: str,
               metric: str) -> str:
    """A row of dots for each part of a union, then unified and harmonic: scale stays readable where radars hide it."""
    names = [*parts, "unified", "harmonic"]
    keys = [*(key_of("recall", part) for part in parts), "unified", "harmonic"]
    with drawing(name):
        height = 0.34 * len(names) + 0.9
        figure = Figure(figsize=(7.6, height))
        left = max(0.13, 0.02 + 0.011 * max(map(len, names)))
        axes = figure.add_axes((left, 0.52 / height, _width(board["label"].tolist(), look) + 0.04 - left,
                                1 - 0.6 / height))
        places = [i + (0.45 if i >= len(parts) else 0) for i in range(len(names))]
        for place, key in zip(places, keys):
            values = 100 * board[key].dropna()
            if len(values):
                axes.plot([values.min(), values.max()], [place] * 2, color=GRID, lw=3, solid_capstyle="round", zorder=1)
        few = len(board) <= NAMED
        for row in board.to_dict("records"):
            style = look[row["label"]]
            across = [100 * row[key] for key in keys]
            rest = style.number == -1 and not few
            axes.plot(across, places, ls="", color=style.colour, label=None if rest else row["label"],
                      zorder=2 if rest else 3, marker="|" if rest else style.marker, alpha=0.5 if rest else 1,
                      markeredgewidth=0 if style.number > -2 and not rest else 1.6, markersize=7)
        axes.set_yticks(places, names)
        axes.invert_yaxis()
        axes.axhline(len(parts) - 0.275, color=GRID, lw=0.8)
        axes.tick_params(length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        axes.set_xlabel(f"{metric}, percent")
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=9, handletextpad=0.2)
        return svg(figure, name, title, f"{metric} of {len(board)} methods on {', '.join(names)}.")
