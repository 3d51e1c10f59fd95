"""Cells of tables as HTML, written here because a page holds thousands of them and a template takes its time."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd
from markupsafe import escape

from reports.tables.notes import RISING
from reports.tables.table import Column, Table

ROOT = "\x00"
"""Stands in ready-made cells for the way back to the top, which each page knows for itself."""


class Head(NamedTuple):
    """What the head of a row shows: the page behind its name, its hue, its level, whether it is a baseline."""

    href: str
    hue: int
    level: str
    baseline: bool


def swatch(hue: int, baseline: bool) -> str:
    """The mark by which a row is known in figures."""
    return f'<span class="swatch{f" hue-{hue}" if hue >= 0 else ""}{" dashed" if baseline else ""}"></span>'


def rising(points: float) -> str:
    """The mark of a method that still learnt at the end: narrow, as a word in every row would widen whole tables."""
    return f' <span class="rising" role="img" title="still rising: {points:+.1f} points in the last quarter"></span>'


def breakable(name: str) -> str:
    """A name with places to break it, before its settings and between them: one long row would widen a whole table.

    >>> breakable("margin[beta=0.6,weight=2]")
    'margin<wbr>[beta=0.6,<wbr>weight=2]'
    """
    return str(escape(name)).replace("[", "<wbr>[").replace(",", ",<wbr>")


def cell(table: Table, row: dict[str, Any], column: Column, mark: str, heat: list[float], barred: bool, head: Head,
         drawn: str) -> str:
    """A cell: text or number, marked as the best or tied, shaded in a heat table, with its interval and its bar."""
    if column.kind == "html":
        return f'<td class="html">{drawn}</td>'
    text, _, bar = table.text(row, column).partition(" ± ")
    if column.kind == "text":
        if column.key != "method" or not head.href:
            return f"<td>{escape(text)}</td>"
        badge = f' <span class="badge">{escape(head.level)}</span>' if head.level not in ("", "run here") else ""
        if (row.get("late") or 0.0) >= RISING:
            badge += rising(100 * row["late"])
        link = f'<a href="{ROOT}{escape(head.href)}">{breakable(text)}</a>'
        return f'<th scope="row">{swatch(head.hue, head.baseline)}{link}{badge}</th>'
    value = row.get(column.key)
    attributes, classes = "", ["rank"] if column.kind == "rank" else []
    if mark:
        classes.append(mark)
    if value is not None and not pd.isna(value):
        attributes = f' data-v="{float(value):.6g}"'  # by which the cell is known to be a number
        interval = table.interval(row, column)
        attributes += f' title="{interval}"' if interval else ""
        if column.heat and heat and heat[1] > heat[0]:
            share = max(0.0, (float(value) - heat[0]) / (heat[1] - heat[0]))
            attributes += f' style="--h:{100 * share:.0f}%"'
            classes.append("heat")
    else:
        classes.append("num")
        if why := table.reason(row, column):
            attributes = f' title="{escape(why)}"'
    if part := table.coverage(row, column):  # as 1/9 it would read as a score among scores
        return f'<td class="num"{attributes}><span class="covered">{escape(part)}</span>{drawn}</td>'
    named = f' class="{" ".join(classes)}"' if classes else ""
    shown = f'<span class="pm"> ± {escape(bar)}</span>' if bar else '<span class="pm"></span>' if barred else ""
    return f"<td{named}{attributes}>{escape(text)}{shown}{drawn}</td>"
