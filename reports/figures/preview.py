"""The picture that a link to the site shows where links are shared: its first curve and what it holds."""

from __future__ import annotations

import io

import pandas as pd
from matplotlib.figure import Figure
from PIL import Image

from reports.figures.drawing import GREY, INK, Style, drawing
from reports.wording import metric_name

SIZE = (1200, 630)
"""Pixels: what previews of links are made for."""


def preview(title: str, facts: str, cells: pd.DataFrame, look: dict[str, Style], metric: str) -> bytes:
    """A PNG of a title, a line of facts, and the curves of a ladder where there is one; the same bytes each time.

    Args:
        cells: of `aggregate.rung_scores`, with labels; may be empty.
    """
    with drawing("preview"):
        figure = Figure(figsize=(SIZE[0] / 100, SIZE[1] / 100), dpi=100, facecolor="white")
        figure.text(0.05, 0.9, title, fontsize=27, fontweight="bold", color=INK, va="top", wrap=True)
        figure.text(0.05, 0.06, facts, fontsize=17, color=INK)
        if len(cells):
            axes = figure.add_axes((0.08, 0.22, 0.87, 0.48))
            for label, curve in cells.groupby("label", sort=False):
                style = look[str(label)]
                hued = style.number >= 0
                axes.plot(curve["frd"], 100 * curve["score"], color=style.colour if hued else GREY,
                          lw=3 if hued else 1, alpha=1 if hued else 0.4, zorder=3 if hued else 2,
                          ls="--" if style.number == -2 else "-")
            axes.tick_params(length=0, labelsize=14)
            axes.set_title(f"{metric_name(metric)}, percent, over the Fréchet distance of the split", loc="left",
                           fontsize=15)
            axes.grid(axis="y")
        content = io.BytesIO()
        figure.savefig(content, format="png", metadata={"Software": None})
    # a palette without dithering: a third of the bytes, and flat colours stay flat
    small = io.BytesIO()
    Image.open(content).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(small, format="png", optimize=True)
    return small.getvalue()
