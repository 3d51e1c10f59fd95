"""How many images the classes of a dataset have, drawn: in a union the few large datasets outweigh all others."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmark.datasets.index import DatasetIndex
from benchmark.utils.errors import UserError
from benchmark.utils.files import whole


def sizes(index: DatasetIndex) -> dict[str, np.ndarray]:
    """Images of each training class, falling, by dataset: the members of a union in its order, or the one there is."""
    counts = np.bincount(index.labels, minlength=len(index.classes))
    training = set(index.train_classes)
    learnt = np.array([name in training for name in index.classes])
    if index.domains is None:
        return {index.name: np.sort(counts[learnt])[::-1]}
    member = np.zeros(len(index.classes), int)
    member[index.labels] = index.domains
    return {name: np.sort(counts[learnt & (member == number)])[::-1] for number, name in enumerate(index.domain_names)}


def draw(index: DatasetIndex, path: Path) -> Path:
    """A curve of sizes for each dataset, one after the other (UML, figure 5); the ending of the path says how."""
    from matplotlib.figure import Figure

    from reports.figures.drawing import HUES, drawing

    if path.suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"{path}: the figure can be .png, .svg or .pdf")
    with drawing("class-sizes"):
        figure = Figure(figsize=(7.6, 3.4), layout="constrained")
        axes = figure.subplots()
        start = 0
        for number, (name, counts) in enumerate(sizes(index).items()):
            places = np.arange(start, start + len(counts))
            axes.fill_between(places, counts, step="mid", color=HUES[number % len(HUES)], lw=0.8,
                              label=f"{name}: {counts.sum():,} images of {len(counts):,} classes")
            start += len(counts)
        axes.set_xlabel("Training classes, those of each dataset by size")
        axes.set_ylabel("Images")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize=8)
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as part:
            figure.savefig(part, format=path.suffix[1:], dpi=150,
                           metadata={"Date": None} if path.suffix == ".svg" else None)
    return path
