"""Scores of weights between the start and the end of runs."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from reports.figures.drawing import DASHES, HUES, drawing, panel, svg
from reports.wording import metric_name


def interpolation(curves: pd.DataFrame, name: str, title: str, metric: str) -> str:
    """A curve over alpha for each split; the rows of `curves` are (dataset, distance, split), its columns alphas."""
    with drawing(name):
        figure = Figure(figsize=(7.6, 3.4))
        axes = panel(figure, (0.08, 0.16, 0.66, 0.74), f"{metric_name(metric)}, percent",
                     "alpha: 0 the start, 1 the end of the run")
        said = []
        places = [(dataset, split) for dataset, _, split in curves.index.tolist()]
        for number, ((dataset, split), scores) in enumerate(zip(places, curves.to_numpy(float))):
            known = pd.Series(scores, curves.columns).dropna()
            axes.plot(known.index, 100 * known, color=HUES[number % 7], ls=DASHES[number // 7 % 2], marker="o",
                      markersize=3, label=f"{dataset}, split {split}")
            said.append(f"{dataset} {split} is best at {known.idxmax():g}")
        axes.grid(axis="y")
        axes.legend(fontsize=7.5, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
        return svg(figure, name, title, f"{metric_name(metric)} over alpha: {'; '.join(said)}.")
