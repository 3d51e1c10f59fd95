"""From a dataset on disk to its ladder: features of a frozen backbone, then the split builder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmark import datasets, features, images, weights
from benchmark.augment import Transform
from benchmark.datasets import DatasetIndex
from benchmark.errors import UserError
from benchmark.workspace import Workspace
from splits import ladder as builder
from splits import manifest, union
from splits.manifest import Ladder

FAR_FROM_IID = 5.0
"""A default split this many times farther apart than random halves also gets easier rungs. With the published
distances this picks CUB (10.8 times) and neither Cars (3.7) nor SOP (3.5), as the ooDML paper does."""


def frozen_features(name: str, workspace: Workspace, backbone: str | None = None, weights_file: str | None = None,
                    device: str | None = None) -> tuple[DatasetIndex, np.ndarray, dict[str, Any]]:
    """Index, pooled features of every image, and what these were made with."""
    import torch

    dataset = datasets.get(name)
    index = datasets.load(name, workspace.data)
    backbone = backbone or ("efficientnet_lite0" if dataset.embedded else "resnet50")
    network = weights.pretrained(backbone, weights_file)
    side = 64 if dataset.embedded else 224
    transform = Transform(size=side, resize=side if dataset.embedded else 256, mean=network.mean, std=network.std)
    store = images.prepare(index, workspace.cache)
    made_with = {"backbone": backbone, "weights": weights.identify(backbone, weights_file), "images": store.hash,
                 "size": transform.size, "resize": transform.resize}
    found = features.extract(index, store, network, name=backbone, weights_hash=made_with["weights"],
                             transform=transform, folder=workspace.cache,
                             device=device or ("cuda" if torch.cuda.is_available() else "cpu"))
    return index, found, made_with


def build(name: str, workspace: Workspace, *, backbone: str | None = None, weights_file: str | None = None,
          rungs: int | None = None, reverse: bool | None = None, device: str | None = None, seed: int = 0,
          **options: Any) -> tuple[Ladder, Path]:
    """Build and save the ladder of a dataset; a union gets one rung, its members' default splits.

    `reverse` None decides by `FAR_FROM_IID`. Further options go to `splits.ladder.build_ladder`.
    """
    index, found, made_with = frozen_features(name, workspace, backbone, weights_file, device)
    shared: dict[str, Any] = {"classes": index.classes, "dataset": index.name, "dataset_hash": index.hash,
                              "feature_info": made_with, "seed": seed}
    if index.domains is not None:
        ladder = union.union_ladder(found, index.labels, index.train_classes, index.test_classes, **shared)
    else:
        if reverse is None:
            reverse = _far_from_iid(index, found, seed)
        ladder = builder.build_ladder(found, index.labels, index.train_classes, index.test_classes, **shared,
                                      rungs=rungs or (9 if reverse else 8), reverse=reverse, device=device, **options)
    path = path_of(workspace, index.name)
    manifest.save(ladder, path)
    return ladder, path


def path_of(workspace: Workspace, name: str) -> Path:
    """Where the ladder of a dataset lies."""
    return workspace.splits / f"{name}.json"


def load(workspace: Workspace, name: str) -> Ladder:
    """The saved ladder of a dataset, with the command that makes it where it is missing."""
    index_name = datasets.load(name, workspace.data).name if ":" in name else datasets.get(name).name
    path = path_of(workspace, index_name)
    if not path.exists():
        raise UserError(f"{name} has no ladder yet ({path} is not there); "
                        f"make it with `oodml splits build --dataset {name}`")
    return manifest.load(path)


def table(ladder: Ladder) -> str:
    """The rungs as text: id, kind, iteration, classes and images of each side, both distances."""
    lines = [f"{'id':>3} {'kind':8} {'iter':>5} {'train':>15} {'test':>15} {'FRD':>9} {'FRD of class means':>19}",
             f"{'':>3} {'':8} {'':>5} {'classes/images':>15} {'classes/images':>15} {'images':>9} {'(as released)':>19}"]
    for split in ladder.splits:
        sides = [f"{len(names)}/{count}" for names, count in
                 ((split.train, split.train_images), (split.test, split.test_images))]
        released = split.frd_class_means_released
        lines.append(f"{split.id:>3} {split.kind:8} {split.iteration:>5} {sides[0]:>15} {sides[1]:>15} "
                     f"{_number(split.frd):>9} {_number(released):>19}")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _far_from_iid(index: DatasetIndex, found: np.ndarray, seed: int) -> bool:
    from splits.frechet import frechet_distance

    default = frechet_distance(found[index.of_classes(index.train_classes)], found[index.of_classes(index.test_classes)])
    iid = builder.iid_distance(found, index.labels, draws=1, seed=seed)["mean"]
    far = default > FAR_FROM_IID * iid
    click.echo(f"default split: {default:.2f}, {default / iid:.1f} times the distance of random halves ({iid:.2f}); "
               f"{'also building easier rungs' if far else 'no easier rungs needed'}")
    return far
