"""Figures drawn by hand, without a plotting library, because a site holds one or more of them for every method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from reports.figures.drawing import GRID, HUES, INK, STROKES, short
from reports.figures.ticks import ticks_around, ticks_within
from reports.wording import counted, metric_name, minus

_WIDE = 190
"""Across a panel of a training."""


def sparkline(xs: Sequence[float], ys: Sequence[float], across: tuple[float, float], up: tuple[float, float]) -> str:
    """A ladder curve the size of a word, in a frame that is the same for all rows."""
    if len(xs) < 2:
        return ""
    (left, right), (low, high) = across, up
    width, range_ = (right - left) or 1.0, (high - low) or 1.0
    points = [(2 + 76 * (x - left) / width, 20 - 16 * (y - low) / range_) for x, y in zip(xs, ys)]
    line = " ".join(f"{short(x)},{short(y)}" for x, y in points)
    end = f'<circle cx="{short(points[-1][0])}" cy="{short(points[-1][1])}" r="2"/>'
    return f'<svg class="spark" viewBox="0 0 82 24" aria-hidden="true"><polyline points="{line}"/>{end}</svg>'


def usual(values: Sequence[float]) -> tuple[float, float]:
    """The range of values but for those far outside, which would flatten all others: a method that collapsed.

        [q_1 - 1.5 (q_3 - q_1), q_3 + 1.5 (q_3 - q_1)]   (Tukey 1977)

    >>> usual([0.5, 0.6, 0.7]), usual([0.02, 0.7, 0.71, 0.72, 0.73, 0.75])
    ((0.5, 0.7), (0.7, 0.75))
    """
    values = [value for value in values if math.isfinite(value)] or [0.0]
    first, third = np.quantile(values, [0.25, 0.75])
    near = [value for value in values if abs(value - (first + third) / 2) <= 2 * (third - first)]
    return min(near), max(near)


def interval(value: float, low: float, high: float, left: float, right: float) -> str:
    """A score as a dot on the bar of its interval, on a scale common to several rows; empty where it lies outside."""
    if not left <= value <= right or right <= left:
        return ""
    dot, start, end = (3 + 104 * (min(max(at, left), right) - left) / (right - left) for at in (value, low, high))
    return (f'<svg class="interval" viewBox="0 0 110 14" aria-hidden="true"><path d="M{short(start)} 7H{short(end)}"/>'
            f'<circle cx="{short(dot)}" cy="7" r="2"/></svg>')


def training_curves(curves: Sequence[tuple[str, list[dict[str, Any]]]], name: str, title: str, metric: str) -> str:
    """Loss and score over epochs, a line for each run of a method."""
    parts, right = [], 0.0
    said = metric_name(metric)
    for key, head, scale, least in (("loss", "training loss", 1, 34), (metric, f"{said}, percent", 100, 42)):
        lines = [[(point["epoch"], scale * point[key]) for point in curve
                  if point.get(key) is not None and point.get("epoch") is not None] for _, curve in curves]
        ys = [y for line in lines for _, y in line]
        ticks = _written(ticks_around(ys, 5)) if ys else []
        # a loss that hardly changes has long numbers
        left = right + max(least, 5 + 5.5 * max((len(written) for written, _ in ticks), default=0))
        parts.append(_panel(lines, left, head, ticks))
        right = left + _WIDE
    for i, (label, _) in enumerate(curves):
        y = 36 + 15 * i
        parts.append(f'<path d="M{right + 14:.0f} {y}h16" {_stroke(i)}/>' + text_at(right + 35, y + 3, label, 8.5))
    about = f"Loss and {said} over epochs of {counted(len(curves), 'run')}."
    width = right + 41 + max(63, 5.6 * max((len(label) for label, _ in curves), default=0))
    height = max(194, 36 + 15 * len(curves))
    return framed(parts, width, height, name, title, about)


def framed(parts: Sequence[str], width: float, height: float, name: str, title: str, about: str) -> str:
    """Parts of a drawing as an SVG element with a title and a description."""
    return (f'<svg viewBox="0 0 {width:.0f} {height:.0f}" xmlns="http://www.w3.org/2000/svg" version="1.1" '
            f'font-family="DejaVu Sans, sans-serif" role="img" aria-labelledby="{name}-title {name}-desc">'
            f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(about)}</desc>'
            f'{"".join(parts)}</svg>\n')


def _written(ticks: Sequence[float]) -> list[tuple[str, float]]:
    """Each tick with how it is written."""
    return [(minus(f"{tick:.10g}"), tick) for tick in ticks]


def _panel(lines: list[list[tuple[float, float]]], left: float, head: str, ticks: list[tuple[str, float]]) -> str:
    """Axes with ticks and a line for each list of points."""
    top, height = 30, 126
    xs = [x for line in lines for x, _ in line]
    found = [text_at(left, 18, head, 10)]
    if not xs:
        return "".join(found)
    x_low, x_high = min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1
    y_low, y_high = ticks[0][1], ticks[-1][1]

    def point(x: float, y: float) -> str:
        return (f"{left + 4 + (_WIDE - 8) * (x - x_low) / (x_high - x_low):.1f},"
                f"{top + height * (y_high - y) / (y_high - y_low):.1f}")

    for written, tick in ticks:
        y = float(point(x_low, tick).split(",")[1])
        found.append(f'<path d="M{left:g} {y}h{_WIDE}" stroke="{GRID}" stroke-width="0.8"/>'
                     + text_at(left - 4, y + 3, written, 8.5, "end"))
    for tick in ticks_within(x_low, x_high, 6, least=1):
        found.append(text_at(float(point(tick, y_low).split(",")[0]), top + height + 13, f"{tick:.0f}", 8.5, "middle"))
    found.append(f'<path d="M{left:g} {top}v{height}h{_WIDE}" fill="none" stroke="{INK}" stroke-width="0.8"/>'
                 + text_at(left + _WIDE / 2, top + height + 28, "epoch", 10, "middle"))
    for i, line in enumerate(lines):
        points = [point(*each) for each in line]
        if points:
            found.append(f'<polyline points="{" ".join(points)}" {_stroke(i)}/>')
        if len(points) < 12:
            found += [f'<circle cx="{x}" cy="{y}" r="1.6" fill="{HUES[i % 7]}"/>'
                      for x, y in (point.split(",") for point in points)]
    return "".join(found)


def _stroke(number: int) -> str:
    dash = STROKES[number % 4]
    return (f'fill="none" stroke="{HUES[number % 7]}" stroke-width="1.4" stroke-linejoin="round"'
            + (f' stroke-dasharray="{dash}"' if dash else ""))


def text_at(x: float, y: float, text: str, size: float = 12, anchor: str = "start", weight: int = 400) -> str:
    """A line of text."""
    bold = f' font-weight="{weight}"' if weight != 400 else ""
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{INK}"{bold}>'
            f"{escape(text)}</text>")
