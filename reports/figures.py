"""Figures as SVG: the same data give the same bytes, and a page can recolour them for dark mode."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

# Okabe and Ito's hues, distinct for colour-blind readers; black and yellow last, they are weak on one background each.
# Not quite black: matplotlib leaves pure black out of the SVG, and a page could not recolour it.
HUES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#101010", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (4, 1.2, 1, 1.2)), "-", (0, (5, 1.5)), (0, (1, 1.2)),
                           (0, (4, 1.2, 1, 1.2)))
GREY, INK, GRID = "#808285", "#1b1d21", "#dfe1e5"


@dataclass(frozen=True)
class Style:
    """How a row is drawn on every page: hue, marker and dash, so that colour is never alone."""

    colour: str
    marker: str
    dash: Any
    number: int


def styles(labels: Sequence[str], floors: Sequence[str] = ()) -> dict[str, Style]:
    """A style for each label: the first eight get a hue each, later ones are grey, the floors grey and dashed."""
    found = {label: Style(HUES[i], MARKERS[i], DASHES[i], i) if i < len(HUES) else Style(GREY, MARKERS[i % 8], "-", -1)
             for i, label in enumerate(labels)}
    return found | {label: Style(GREY, "|x12"[i % 4], (0, (3 - i % 2, 3)), -2) for i, label in enumerate(floors)}


@contextmanager
def _drawing(name: str) -> Any:
    settings: Any = {"svg.hashsalt": name, "svg.fonttype": "none", "font.size": 10, "font.family": "DejaVu Sans",
                "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": INK, "axes.labelcolor": INK,
                "text.color": INK, "xtick.color": INK, "ytick.color": INK, "axes.linewidth": 0.8, "grid.color": GRID,
                "grid.linewidth": 0.8, "lines.linewidth": 1.8, "lines.markersize": 5.5, "axes.axisbelow": True}
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)
        yield


def svg(figure: Figure, name: str, title: str, description: str) -> str:
    """The figure as an SVG element with a title and a description, ids that are its own, and no date."""
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    body = text.getvalue()
    body = body[body.index("<svg"):]
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.S)
    body = re.sub(r'\b(id="|xlink:href="#|url\(#)', rf"\g<1>{name}-", body)
    start, rest = body.split(">", 1)
    start = re.sub(r' (width|height)="[^"]*"', "", start)
    head = f'<title id="{name}-title">{_escape(title)}</title><desc id="{name}-desc">{_escape(description)}</desc>'
    body = f'{start} role="img" aria-labelledby="{name}-title {name}-desc">{head}{rest}'
    body = re.sub(r"(\d\.\d\d)\d+", r"\1", body)  # a hundredth of a point is finer than any screen
    return "\n".join(line.strip() for line in body.splitlines()) + "\n"


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def for_page(figure: str) -> str:
    """An SVG whose colours are the page's custom properties, so that it follows light and dark."""
    for number, hue in enumerate(HUES):
        figure = re.sub(hue, f"var(--hue-{number})", figure, flags=re.I)
    for colour, name in ((GREY, "--figure-grey"), (INK, "--figure-ink"), (GRID, "--figure-grid")):
        figure = re.sub(colour, f"var({name})", figure, flags=re.I)
    # matplotlib's style element says `* {...}`, which inside a page would mean the whole page
    figure = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", figure, count=1, flags=re.S)
    figure = figure.replace("<svg", '<svg style="stroke-linejoin:round;stroke-linecap:butt"', 1)
    return figure.replace(' xmlns="http://www.w3.org/2000/svg"', "").replace(
        ' xmlns:xlink="http://www.w3.org/1999/xlink"', "").replace("xlink:href", "href")


def _spread_out(heights: list[float], gap: float, low: float) -> list[float]:
    """Heights in the given order of size, moved as little as need be so that neighbours are a gap apart."""
    order = np.argsort(heights, kind="stable")
    placed = np.array(heights, float)[order]
    for _ in range(200):
        moved = False
        for i in range(len(placed) - 1):
            lack = gap - (placed[i + 1] - placed[i])
            if lack > 1e-9:
                placed[i] -= lack / 2
                placed[i + 1] += lack / 2
                moved = True
        if len(placed) and placed[0] < low:
            placed += low - placed[0]
        if not moved:
            break
    result = [0.0] * len(heights)
    for position, index in enumerate(order):
        result[index] = float(placed[position])
    return result


def _end_labels(axes: Axes, ends: list[tuple[str, float, float, Style]]) -> None:
    """Names beyond the right end of the curves, apart from each other, each tied to its curve by a thin line."""
    low, high = axes.get_ylim()
    inches = axes.get_position().height * axes.figure.get_figheight()  # type: ignore[union-attr]
    heights = _spread_out([height for _, _, height, _ in ends], (high - low) * 0.17 / inches, low)
    left, right = axes.get_xlim()
    beside = right + (right - left) * 0.025
    lines = [[(end, height), (beside, place)] for (_, end, height, _), place in zip(ends, heights)]
    axes.add_collection(LineCollection(lines, colors=[style.colour for *_, style in ends], linewidths=0.8, alpha=0.7,
                                       clip_on=False, zorder=1), autolim=False)
    for (label, *_), place in zip(ends, heights):
        axes.annotate(label, (beside + (right - left) * 0.008, place), va="center", fontsize=9.5, annotation_clip=False)


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
    with _drawing(name):
        height = 3.2 if relative else 4.3
        figure = Figure(figsize=(7.6, height))
        axes = figure.add_axes((0.06, 0.52 / height, 0.735, 1 - 0.84 / height))
        ends: list[tuple[str, float, float, Style]] = []
        for label, curve in cells.groupby("label", sort=False):
            style = look[str(label)]
            x, y = curve["frd"].to_numpy(float), 100 * curve["score"].to_numpy(float)
            axes.plot(x, y, color=style.colour, ls=style.dash, marker=style.marker if style.number > -2 else None,
                      markeredgewidth=0, zorder=2 + (style.number > -2))
            if curve["std"].notna().any():
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
            _end_labels(axes, ends)
        told = "; ".join(f"{label} ends at {score:.1f}" for label, _, score, _ in ends)
        return svg(figure, name, title, f"{metric} over the distance of {len(rungs)} splits: {told}.")


def union_dots(board: pd.DataFrame, parts: Sequence[str], look: dict[str, Style], name: str, title: str,
               metric: str) -> str:
    """A row of dots for each part of a union, then unified and harmonic: scale stays readable where radars hide it."""
    names = [*parts, "unified", "harmonic"]
    with _drawing(name):
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
    with _drawing(name):
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
