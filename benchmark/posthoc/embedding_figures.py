"""Figures of a trained embedding: the plane, PUMA's prompt weights for each dataset, CRT's maps of prototypes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from benchmark.data.loader import Loader
from benchmark.data.store import ImageStore
from benchmark.data.task import Task
from benchmark.ladders.figures import to_plane
from methods import Method
from methods.crt import CodedResidual
from methods.layers.prompts import PromptPool
from reports.figures.comparisons import matrix
from reports.figures.drawing import GREY, HUES, MARKERS

IMAGES, PROTOTYPES = 5, 6
"""How many images, and how many prototypes of each, the maps show."""


@dataclass
class Watched:
    """What was seen inside a method while it embedded: the weights of its prompts, image by image."""

    method: Method
    prompts: list[Tensor] = field(default_factory=list)


def watch(method: Method) -> Watched:
    """Note the prompt weights of every image that the method embeds from now on, if it has a pool of prompts."""
    seen = Watched(method)
    for module in method.modules():
        if isinstance(module, PromptPool):
            module.register_forward_hook(
                lambda pool, inputs, _: seen.prompts.append(pool.weights(inputs[0]).detach().float().cpu()))
    return seen


def plane(task: Task, embeddings: Tensor, home: Path, classes: list[str], most: int, seed: int) -> dict[str, Any]:
    """UMAP of the test embeddings: by dataset in a union, else with a few classes in colour."""
    side = task.test
    chosen = np.sort(np.random.default_rng(seed).permutation(len(side))[:most])
    points = to_plane(embeddings.cpu().numpy()[chosen], seed)
    if side.domains is not None and task.domain_names:
        names = list(task.domain_names)
        groups = side.domains[chosen]
    else:
        names = classes
        known = {side.classes.index(name): i for i, name in enumerate(names)}
        groups = np.array([known.get(label, -1) for label in side.labels[chosen]])
    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    axes = figure.subplots()
    across, up = points.T
    axes.scatter(across[groups < 0], up[groups < 0], s=3, lw=0, c=GREY, alpha=0.35)
    for i, name in enumerate(names):
        axes.scatter(across[groups == i], up[groups == i], s=9, lw=0, c=HUES[i % 7], marker=MARKERS[i % 8], label=name)
    axes.legend(frameon=False, fontsize=8, loc="best")
    axes.set_axis_off()
    figure.savefig(home / "umap.png", dpi=130)
    shown = "Colours are the datasets of the union." if side.domains is not None and task.domain_names else \
        "In colour: the classes of the sampled queries; grey: all others."
    return {"file": "umap.png", "title": "The embedding in the plane",
            "caption": f"UMAP of {len(chosen):,} test images. {shown} Distances between far groups mean little."}


def figures(seen: Watched, task: Task, store: ImageStore, loader: Loader, home: Path,
            seed: int) -> list[dict[str, Any]]:
    """The figures that this kind of method has of its own."""
    drawn = []
    if seen.prompts:
        drawn.append(_prompts(torch.cat(seen.prompts)[:len(task.test)].numpy(), task, home))
    coding = getattr(seen.method, "coding", None)
    if isinstance(coding, CodedResidual):
        maps = _prototypes(seen.method, coding, task, store, loader, home, seed)
        drawn += [maps] if maps else []
    return drawn


def _prompts(weights: np.ndarray, task: Task, home: Path) -> dict[str, Any]:
    """The mean weight of each prompt for each dataset (UML, figure 4): do datasets ask for different prompts?"""
    side = task.test
    if side.domains is not None and task.domain_names:
        parts = {name: weights[side.domains == i] for i, name in enumerate(task.domain_names)}
    else:
        parts = {"all": weights}
    table = pd.DataFrame({name: part.mean(axis=0) for name, part in parts.items() if len(part)},
                         index=[f"prompt {i + 1}" for i in range(weights.shape[1])])
    (home / "prompts.svg").write_text(matrix(table, "prompts", "Mean weight of each prompt"), encoding="utf-8")
    rows = [[name, *(f"{value:.3f}" for value in row)] for name, row in zip(table.index, table.to_numpy())]
    return {"file": "prompts.svg", "title": "Prompt weights", "heads": ["", *map(str, table.columns)], "rows": rows,
            "caption": "Mean over the test images of the cosine by which each prompt of the pool is weighed."}


def _prototypes(method: Method, coding: CodedResidual, task: Task, store: ImageStore, loader: Loader, home: Path,
                seed: int) -> dict[str, Any] | None:
    """Where on an image some prototypes look: log(1 + exp(x_j . c_k)) over the positions j (CRT, figure 2)."""
    chosen = np.sort(np.random.default_rng(seed).permutation(task.test.ids)[:IMAGES])
    with torch.no_grad():
        local = method.backbone(loader.evaluate(torch.from_numpy(chosen)), local=True)[1].float()  # type: ignore[operator]
        weights = F.softplus(local @ coding.prototypes.T).cpu().numpy()
    side = round(weights.shape[1] ** 0.5)
    if side * side != weights.shape[1] or side < 2:
        return None
    # the prototypes whose maps vary most over the image say most about where they look
    order = np.argsort(-weights.std(axis=1).mean(axis=0), kind="stable")[:PROTOTYPES]
    figure = Figure(figsize=(1.2 * (1 + len(order)), 1.2 * len(chosen)), layout="constrained")
    grid = np.atleast_2d(figure.subplots(len(chosen), 1 + len(order)))
    for row, image in enumerate(chosen):
        grid[row, 0].imshow(store.image(int(image)))
        for column, prototype in enumerate(order, 1):
            grid[row, column].imshow(weights[row, :, prototype].reshape(side, side), cmap="viridis")
            if row == 0:
                grid[row, column].set_title(f"prototype {prototype + 1}", fontsize=7)
        for axes in grid[row]:
            axes.set_axis_off()
    figure.savefig(home / "prototypes.png", dpi=110)
    return {"file": "prototypes.png", "title": "Where prototypes look",
            "caption": "Weight of each position of the last feature map for the prototypes whose maps vary most; "
                       "bright is more."}
