"""Frozen networks: score over parameters, with the front that no other network beats."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from reports.figures.drawing import GREY, HUES, drawing, panel, svg


def front(rows: pd.DataFrame, name: str, title: str) -> str:
    """A point a network, the score of a dataset over its parameters; filled points and the line are the front."""
    rows = rows[rows["parameters"].notna()].sort_values(["parameters", "score"])
    with drawing(name):
        figure = Figure(figsize=(7.6, 3.8))
        axes = panel(figure, (0.08, 0.15, 0.72, 0.75), f"{rows['what'].iloc[0]}, percent", "Parameters, millions")
        best = rows[rows["pareto"].str.contains("parameters")]
        axes.plot(best["parameters"] / 1e6, 100 * best["score"], color=HUES[0], lw=1.2, marker="o", markersize=5)
        rest = rows.drop(best.index)
        axes.plot(rest["parameters"] / 1e6, 100 * rest["score"], color=GREY, lw=0, marker="o", markersize=4, mfc="none")
        axes.set_xscale("log")
        axes.minorticks_off()
        sizes = sorted({float(f"{value / 1e6:.1g}") for value in rows["parameters"]})
        axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
        for network, size, score in rows[["backbone", "parameters", "score"]].itertuples(index=False):
            place = best["backbone"].tolist().index(network) if network in set(best["backbone"]) else -1
            # the line of the front comes from the left and leaves upwards: the first name is below it, the rest above
            shift = (5, 3) if place < 0 else (5, -9) if place == 0 and len(best) > 1 else (-5, 4) if place else (5, 4)
            axes.annotate(network.partition(".")[0], (size / 1e6, 100 * score), xytext=shift, fontsize=6.5,
                          ha="right" if place > 0 else "left", textcoords="offset points", color=GREY)
        axes.grid(axis="y")
        said = "; ".join(f"{network} {100 * score:.1f}" for network, score in zip(best["backbone"], best["score"]))
        return svg(figure, name, title, f"Score over parameters of {len(rows)} frozen networks. The front: {said}.")
