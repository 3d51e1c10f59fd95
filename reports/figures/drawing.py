"""How figures are made: the same data give the same bytes, and a page can recolour them for dark mode."""

from __future__ import annotations

import io
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.figures.compact import compact
from reports.figures.hues import shared_out

# Okabe and Ito's hues, distinct for colour-blind readers; black and yellow last, they are weak on one background each.
# Not quite black: matplotlib leaves pure black out of the SVG, and a page could not recolour it.
HUES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#101010", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (4, 1.2, 1, 1.2)), "-", (0, (5, 1.5)), (0, (1, 1.2)),
                           (0, (4, 1.2, 1, 1.2)))
GREY, INK, GRID = "#808285", "#1b1d21", "#dfe1e5"
STROKES = ("", "5 1.5", "1 1.5", "4 1.5 1 1.5")
"""Dashes of an SVG's strokes."""

_PROPERTIES = {colour.lower(): f"var(--{name})" for colour, name in (
    *((hue, f"hue-{number}") for number, hue in enumerate(HUES)), (GREY, "figure-grey"), (INK, "figure-ink"),
    (GRID, "figure-grid"))}


@dataclass(frozen=True)
class Style:
    """How a row is drawn on every page: hue, marker and dash, so that colour is never alone; -2 is a baseline."""

    colour: str
    marker: str
    dash: str
    number: int


def styles(labels: Sequence[str], baselines: Sequence[str] = (), methods: Mapping[str, str] | None = None,
           rankings: Sequence[Sequence[str]] = (), backbones: Mapping[str, str] | None = None) -> dict[str, Style]:
    """A style for each label: rows of a method have one hue, the first eight methods of a ranking different ones.

    `hues.shared_out` says which. Further rows of a method have other markers; those of one backbone, which share a
    figure, are also dashed.

    >>> look = styles([f"m{i}" for i in range(20)], rankings=[["m9", "m8"], ["m8", "m0"]])
    >>> look["m9"].number != look["m8"].number != look["m0"].number
    True
    >>> len({each.number for each in styles(["a · x", "a · y"], methods={"a · x": "a", "a · y": "a"}).values()})
    1
    >>> look = styles(["a 1", "a 2"], methods={"a 1": "a", "a 2": "a"}, backbones={"a 1": "x", "a 2": "y"})
    >>> look["a 2"].dash, look["a 1"].marker == look["a 2"].marker
    ('', False)
    """
    named = {label: (methods or {}).get(label, label) for label in labels}
    figures = [[(methods or {}).get(label, label) for label in ranking] for ranking in rankings]
    hues = shared_out(named.values(), figures)
    looks, marks, rows, alike = {}, {}, Counter[tuple[str, ...]](), Counter[int]()
    for method, hue in hues.items():  # methods of different hues have different marks, those of one hue in their turn
        marks[method] = hue + alike[hue]
        alike[hue] += 1
    for label in labels:
        method = named[label]
        hue = hues[method]
        network = (method, (backbones or {}).get(label, ""))
        marker = MARKERS[(marks[method] + rows[(method,)]) % len(MARKERS)]
        looks[label] = Style(HUES[hue], marker, STROKES[rows[network] % 4], hue)
        rows.update([(method,), network])
    return looks | {label: Style(GREY, "", "3 3" if i % 2 else "2 3", -2) for i, label in enumerate(baselines)}


@contextmanager
def drawing(name: str) -> Any:
    settings: Any = {"svg.hashsalt": name, "svg.fonttype": "none", "font.size": 10, "font.family": "DejaVu Sans",
                "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": INK, "axes.labelcolor": INK,
                "text.color": INK, "xtick.color": INK, "ytick.color": INK, "axes.linewidth": 0.8, "grid.color": GRID,
                "grid.linewidth": 0.8, "lines.linewidth": 1.8, "lines.markersize": 5.5, "axes.axisbelow": True,
                "axes.titley": 1.0,  # looking for a free place takes a third of the time of drawing
                "text.parse_math": False}  # a name may hold dollars
    with matplotlib.rc_context(), warnings.catch_warnings():
        # texts stay texts in an SVG: the reader's browser has a font for them
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from", UserWarning)
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)
        yield


def svg(figure: Figure, name: str, title: str, description: str) -> str:
    """The figure as an SVG element with a title and a description, ids that are its own, and no date."""
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) if not axis.get_label_text()):
        axis.set_label_coords(0, 0)  # a place is looked for also where there is nothing to be placed
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    body = text.getvalue()
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body[body.index("<svg"):], flags=re.S)
    start, rest = compact(body, name).split(">", 1)
    start = re.sub(r' (width|height)="[^"]*"', "", start)
    head = f'<title id="{name}-title">{_escape(title)}</title><desc id="{name}-desc">{_escape(description)}</desc>'
    return (f'{start} stroke-linejoin="round" font-family="{matplotlib.rcParams["font.family"][0]}" role="img" '
            f'aria-labelledby="{name}-title {name}-desc">{head}{rest}\n')


def short(number: float, digits: int = 1) -> str:
    """A coordinate without zeros that say nothing.

    >>> short(50.04), short(0.25, 2), short(-0.01)
    ('50', '0.25', '0')
    """
    return f"{round(number, digits) + 0.0:.{digits}f}".rstrip("0").rstrip(".")


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def for_page(figure: str) -> str:
    """An SVG whose colours are the page's custom properties, so that it follows light and dark."""
    figure = re.sub("#[0-9A-Fa-f]{6}", lambda colour: _PROPERTIES.get(colour[0].lower(), colour[0]), figure)
    # the script of the page makes them of what the group carries
    figure = re.sub(r'(<g class="line[^>]*>)<title>.*?</title>', r"\1", figure, flags=re.S)
    figure = figure.replace("<svg", '<svg style="stroke-linejoin:round;stroke-linecap:butt"', 1)
    return figure.replace(' xmlns="http://www.w3.org/2000/svg"', "").replace(
        ' xmlns:xlink="http://www.w3.org/1999/xlink"', "").replace("xlink:href", "href")


def panel(figure: Figure, box: tuple[float, float, float, float], title: str, below: str = "") -> Axes:
    """Axes in a box of shares of the figure, their title on the left and their label below at fixed places.

    Where titles and labels find their own places, finding them takes a third of the time of drawing.
    """
    axes = figure.add_axes(box)
    axes.set_title(title, loc="left", fontsize=10, y=1.0, pad=10)
    height = box[3] * figure.get_figheight()
    axes.xaxis.set_label_coords(0.5, -0.27 / height)
    axes.set_xlabel(below)
    axes.tick_params(length=0)
    return axes


def spread_out(heights: list[float], gap: float, low: float, high: float) -> list[float]:
    """Heights in the given order of size, moved as little as need be so that neighbours are a gap apart.

    All stay above `low` and, where there is room for them, below `high`.
    """
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
        elif len(placed) and placed[-1] > high:
            placed -= min(placed[-1] - high, placed[0] - low)
        if not moved:
            break
    result = [0.0] * len(heights)
    for position, index in enumerate(order):
        result[index] = float(placed[position])
    return result
