"""The singular values of embeddings over their rank."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from reports.analysis.spectra import Panel
from reports.figures.drawing import DASHES, HUES, drawing, svg

TITLES = {"spectrum": "all embeddings", "spectrum_class": "classes on average"}
COLUMNS = 4


def spectra(panels: Sequence[Panel], name: str, title: str) -> str:
    """One panel for each group of methods and kind of spectrum: solid for training embeddings, dashed for test."""
    drawn = [(panel, kind) for panel in panels for kind in TITLES if any(c.kind == kind for c in panel.curves)]
    lines = -(-len(drawn) // COLUMNS)
    with drawing(name):
        height = 2.9 * lines
        figure = Figure(figsize=(7.6, height))
        for number, (panel, kind) in enumerate(drawn):
            line, column = divmod(number, COLUMNS)
            axes = figure.add_axes(((column + 0.2) / COLUMNS, 1 - 2.9 * (line + 0.85) / height, 0.76 / COLUMNS,
                                    2.9 * 0.58 / height))
            methods = list(dict.fromkeys(curve.method for curve in panel.curves))
            named: set[str] = set()
            for curve in panel.curves:
                if curve.kind == kind:
                    hue = methods.index(curve.method) % 7
                    axes.plot(curve.ranks, curve.values, color=HUES[hue], lw=1.1, ls=DASHES[curve.side == "test"],
                              label=None if curve.method in named else curve.method)
                    named.add(curve.method)
            axes.set(xscale="log", yscale="log")
            axes.set_title(f"{panel.title}\n{panel.where}\n{TITLES[kind]}", loc="left", fontsize=7)
            axes.tick_params(length=0, labelsize=7)
            axes.minorticks_off()
            for axis in (axes.xaxis, axes.yaxis):  # powers of ten would be written as formulas
                axis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.grid(True)
            axes.set_xlabel("rank of the singular value", fontsize=7)
            axes.legend(fontsize=6, frameon=False, loc="lower left", labelspacing=0.15, handlelength=1.2)
        names = ", ".join(panel.title for panel in panels)
        return svg(figure, name, title, f"Normalised singular values by rank: {names}.")
