"""What papers print beside what was measured here, a line for each method."""

from __future__ import annotations

import math

import pandas as pd

from reports.figures.drawing import GREY, GRID, HUES
from reports.figures.inline import framed, text_at
from reports.figures.ticks import ticks_within
from reports.selection import in_words
from reports.wording import decimal, metric_name

_TOP, _STEP, _WIDTH = 44, 19, 470


def printed_and_ours(rows: pd.DataFrame, close: float, name: str, title: str, metric: str) -> str:
    """For each method the printed score (ring, its deviation over seeds as a bar) and ours (disc), on one scale.

    Takes `method`, `protocol`, `printed`, `printed:std` and `ours` as fractions, in order; a method that comes twice is
    named with its protocol. The shaded part of a line is what lies within `close` of the printed score.
    """
    twice = rows["method"].duplicated(keep=False)
    rows = rows.assign(method=rows["method"].where(~twice, rows["method"] + ", " + rows["protocol"].map(in_words)))
    left = 16 + 7.0 * max(map(len, rows["method"]))
    values = 100 * pd.concat([rows["printed"] - close, rows["printed"] + close, rows["ours"]]).astype(float)
    low, high = math.floor(values.min()), math.ceil(values.max())
    bottom = _TOP + _STEP * len(rows)

    def across(share: float) -> float:
        return left + 8 + (_WIDTH - 16) * (100 * share - low) / (high - low)

    parts = [text_at(left, 16, f"{metric_name(metric)}, percent"), _ring(left + 150, 12),
             text_at(left + 160, 16, "paper"),
             f'<circle cx="{left + 220:.1f}" cy="12" r="4" fill="{HUES[0]}"/>', text_at(left + 230, 16, "here")]
    for tick in ticks_within(low, high, 8):
        x = across(tick / 100)
        parts.append(f'<path d="M{x:.1f} {_TOP - 10}V{bottom}" stroke="{GRID}" stroke-width="0.8"/>'
                     + text_at(x, bottom + 16, f"{tick:g}", anchor="middle"))
    for number, (method, printed, std, ours) in enumerate(
            rows[["method", "printed", "printed:std", "ours"]].itertuples(index=False, name=None)):
        y = _TOP + _STEP * (number + 0.5)
        start, end = across(printed - close), across(printed + close)
        parts.append(text_at(left - 8, y + 4, method, anchor="end")
                     + f'<rect x="{start:.1f}" y="{y - 6:.1f}" width="{end - start:.1f}" height="12" fill="{GRID}" '
                     'opacity="0.6"/>')
        if pd.notna(std):
            parts.append(f'<path d="M{across(printed - std):.1f} {y:.1f}H{across(printed + std):.1f}" stroke="{GREY}" '
                         'stroke-width="2"/>')
        parts += [_ring(across(printed), y), f'<circle cx="{across(ours):.1f}" cy="{y:.1f}" r="4" fill="{HUES[0]}"/>',
                  text_at(left + _WIDTH + 8, y + 4, decimal(100 * (ours - printed), 1, signed=True))]
    about = "; ".join(f"{method} {100 * printed:.1f} printed, {100 * ours:.1f} here" for method, printed, ours in
                      rows[["method", "printed", "ours"]].itertuples(index=False, name=None))
    return framed(parts, left + _WIDTH + 56, bottom + 26, name, title, about + ".")


def _ring(x: float, y: float) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="none" stroke="{GREY}" stroke-width="1.8"/>'
