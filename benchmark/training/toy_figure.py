"""The figure of the toy examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmark.training import toy


def draw(outcomes: dict[tuple[str, str], dict[float, toy.Outcome]], out: Path) -> None:
    """One row for each example and objective: the data, the embedding for each p, the singular values."""
    def scatter(axis: Any, dots: Any, crosses: Any, labels: Any, others: Any) -> None:
        axis.scatter(*dots.T, c=labels, cmap="tab10", vmin=0, vmax=9, s=14, marker="o")
        axis.scatter(*crosses.T, c=others + 4, cmap="tab10", vmin=0, vmax=9, s=14, marker="x")

    rows, shares = len(outcomes), len(next(iter(outcomes.values())))
    figure = Figure(figsize=(3.25 * (shares + 2), 3.2 * rows), layout="constrained")
    axes = figure.subplots(rows, shares + 2, squeeze=False)
    for row, ((name, objective), trained) in zip(axes, outcomes.items()):
        known, unknown = toy.EXAMPLES[name]()
        scatter(row[0], known.points, unknown.points, known.labels, unknown.labels)
        row[0].set_title(f"{name}: training (dots), test (crosses)")
        for axis, (p, outcome) in zip(row[1:], trained.items()):
            # the test lines on a wider circle, so that neither hides the other
            scatter(axis, outcome.train, 1.15 * outcome.test, known.labels, unknown.labels)
            title = f"{objective}, switching with p = {p:g}" if p else objective
            axis.set(title=title, xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal")
        width = 0.8 / shares
        for number, (p, outcome) in enumerate(trained.items()):
            shift = (number - (shares - 1) / 2) * width
            row[-1].bar([1 + shift, 2 + shift], outcome.spectrum.tolist(), width, label=f"p = {p:g}")
        row[-1].set(title="singular values, training", xticks=[1, 2])
        row[-1].legend()
    figure.savefig(out, dpi=150)
