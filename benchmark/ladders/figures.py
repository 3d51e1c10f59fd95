"""Figures of ladders: how the distance grows, where train and test images lie, whether the backbone matters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmark import ladders
from benchmark.ladders import features, pinned
from benchmark.utils.files import whole
from benchmark.utils.terminal import Tell
from benchmark.utils.workspace import Workspace
from reports.figures.drawing import GREY, HUES, MARKERS
from reports.storage.paths import below, plain
from splits import fixed_test, plot_data
from splits.compare import Comparison
from splits.manifest import Ladder, Split

NEIGHBOURS = 15
"""UMAP's own default size of a neighbourhood."""


def draw(dataset: str, workspace: Workspace, folder: Path, umap: bool, seed: int,
         tell: Tell = lambda line: None, **options: Any) -> list[Path]:
    """The progression figure and, if wanted, the UMAPs of a dataset's saved ladder; each is told once it is written."""
    folder.mkdir(parents=True, exist_ok=True)
    ladder = pinned.with_progression(ladders.load(workspace, dataset))
    written = []
    if ladder.progression:
        written.append(_save(progression(ladder), below(folder, f"{plain(ladder.dataset, 'dataset')}-progression.svg")))
        tell(f"wrote {written[-1]}")
    if umap:
        tell("UMAPs of an easy, a medium and a hard split follow, which may take a minute; --no-umap leaves them out")
        if not options.get("backbone"):  # that of the distances
            options["backbone"] = ladder.features.get("backbone")
        index, vectors, _ = features.frozen_features(dataset, workspace, **options)
        figure = umaps(ladder, vectors, index.labels, index.classes, seed)
        written.append(_save(figure, below(folder, f"{plain(ladder.dataset, 'dataset')}-umap.png")))
        tell(f"wrote {written[-1]}")
    return written


def progression(ladder: Ladder) -> Figure:
    """Distance after each swap iteration and, beside it, after each removal (ooDML, figure 1); rungs are marked.

    Of a control, whose test classes are fixed, that of each choice of training classes.
    """
    curves = {name: steps for name, steps in plot_data.curves(ladder).items() if steps}
    figure = Figure(figsize=(4.6 * len(curves), 3.4), layout="constrained")
    chosen = {(split.kind, split.iteration): split.id for split in ladder.splits}
    for axes, (name, steps) in zip(np.atleast_1d(figure.subplots(1, len(curves), sharey=True)), curves.items()):
        iterations = [0 if name == "removal" and step.kind != "removal" else step.iteration for step in steps]
        axes.plot(iterations, [step.frd for step in steps], color=HUES[0], lw=1.8, label="all images")
        equal = [(x, split.frd_equal_n) for x, step in zip(iterations, steps) for split in ladder.splits
                 if (split.kind, split.iteration) == (step.kind, step.iteration) and split.frd_equal_n is not None]
        if equal:
            axes.plot(*zip(*equal), "--", marker="s", ms=3, color=GREY, lw=1,
                      label=f"{ladder.parameters['equal_n']:,} images a side")
            axes.legend(frameon=False, fontsize=8, loc="lower right")
        for x, step in zip(iterations, steps):
            if (step.kind, step.iteration) in chosen:
                axes.plot(x, step.frd, "o", color=HUES[1], ms=5)
                axes.annotate(str(chosen[step.kind, step.iteration]), (x, step.frd), xytext=(0, 6),
                              textcoords="offset points", ha="center", fontsize=8)
        axes.set_xlabel("iterations of class removal" if name == "removal" else "choices of training classes, nearest "
                        "first" if fixed_test.is_control(ladder) else "iterations of class swapping")
        axes.spines[["top", "right"]].set_visible(False)
        if name == "removal":
            axes.axhline(steps[0].frd, color=GREY, lw=1, ls=(0, (4, 3)))
    figure.axes[0].set_ylabel("Fréchet distance (images)")
    figure.suptitle(f"{ladder.dataset}: rungs 1-{len(ladder.splits)} on the way to harder splits", fontsize=11)
    return figure


def umaps(ladder: Ladder, vectors: np.ndarray, labels: np.ndarray, classes: tuple[str, ...], seed: int) -> Figure:
    """Train and test images of an easy, a medium and a hard rung in the plane, one UMAP for all of them."""
    rungs = plot_data.easy_medium_hard(ladder)
    shown = [plot_data.points(split, labels, classes, seed=seed) for split in rungs]
    union = np.unique(np.concatenate([points.images for points in shown]))
    plane = dict(zip(union.tolist(), to_plane(np.asarray(vectors[union]), seed)))
    figure = Figure(figsize=(4.2 * len(rungs), 4.2), layout="constrained")
    for axes, split, points in zip(np.atleast_1d(figure.subplots(1, len(rungs))), rungs, shown):
        positions = np.array([plane[i] for i in points.images.tolist()])
        # train and test take turns on top, so that neither hides the other
        order = np.random.default_rng(seed).permutation(len(positions))
        colours = np.where(points.test, HUES[1], HUES[0])[order]
        axes.scatter(*positions[order].T, c=colours.tolist(), s=1.5, lw=0, alpha=0.6, rasterized=True)
        axes.set_title(_title(split), fontsize=10)
        axes.set_xticks([])
        axes.set_yticks([])
    handles = [figure.axes[0].scatter([], [], c=hue, s=24, label=name) for hue, name in zip(HUES, ("train", "test"))]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def comparison(compared: Comparison, dataset: str, folder: Path) -> Path:
    """Normalised progressions of several backbones in one figure (ooDML supplement, figure 1)."""
    figure = Figure(figsize=(5.6, 3.6), layout="constrained")
    axes = figure.subplots()
    for number, (name, line) in enumerate(compared.progressions.items()):
        steps = np.linspace(0, 1, len(line.distance))
        axes.plot(steps, line.distance, color=HUES[number % 8], marker=MARKERS[number % 8], markevery=0.1, label=name)
    axes.set_xlabel("share of the iterations, easiest to hardest")
    axes.set_ylabel("Fréchet distance, min-max-normalised")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    folder.mkdir(parents=True, exist_ok=True)
    return _save(figure, folder / f"{dataset}-backbones.svg")


def comparison_text(compared: Comparison) -> str:
    """Rank correlation of the moves and overlap of the rungs, pair by pair."""
    lines = []
    names = compared.backbones
    for i, one in enumerate(names):
        for j, two in enumerate(names[i + 1:], i + 1):
            overlaps = ", ".join(f"{rung}: {matrix[i, j]:.2f}" for rung, matrix in compared.rung_overlap.items())
            lines.append(f"{one} and {two}: rank correlation of the moves {compared.move_correlation[i, j]:.2f}; "
                         f"overlap of the rungs' classes {overlaps}")
    return "\n".join(lines)


def to_plane(points: np.ndarray, seed: int) -> np.ndarray:
    """UMAP of vectors to two dimensions, seeded."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that a seed costs it its threads, which is what we want
        return _umap()(n_neighbors=min(NEIGHBOURS, len(points) - 1), random_state=seed).fit_transform(points)


def _umap() -> Any:
    """UMAP's class; its numba wants a folder for what it compiles, and gets one of this process where it has none.

    It looks beside its own files and in the user's cache. An installation of others and a home that cannot be written,
    as jobs of a cluster may have, leave neither.
    """
    try:
        from umap import UMAP
    except RuntimeError as error:
        if "no locator" not in str(error):
            raise
        import atexit
        import shutil
        import tempfile

        import numba

        folder = tempfile.mkdtemp(prefix="oodml-numba-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        vars(numba.config)["CACHE_DIR"] = folder  # its settings are the names of a module
        from umap import UMAP
    return UMAP


def _title(split: Split) -> str:
    return f"rung {split.id} ({split.kind})" + (f", distance {split.frd:.1f}" if split.frd is not None else "")


def _save(figure: Figure, path: Path) -> Path:
    with whole(path) as part:  # `oodml report` puts what it finds on its pages
        figure.savefig(part, format=path.suffix[1:], dpi=150,
                       metadata={"Date": None} if path.suffix == ".svg" else None)
    return path
