"""Distances beside those in a ladder's manifest: of other networks, and between datasets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmark import ladders
from benchmark.ladders import features
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from splits import compare, manifest
from splits.compare import Comparison, CrossDistances
from splits.ladder import measure
from splits.manifest import Ladder


def cross(names: Sequence[str], workspace: Workspace, **options: Any) -> CrossDistances:
    """Distances of each dataset's default train set to each one's default test set, all with one backbone."""
    sets = {}
    for name in names:
        index, vectors, _ = features.frozen_features(name, workspace, **options)
        sets[index.name] = tuple(vectors[index.of_classes(side)] for side in (index.train_classes, index.test_classes))
    return compare.cross_distances(sets)


def compare_backbones(name: str, backbones: Sequence[str], workspace: Workspace, **options: Any) -> Comparison:
    """Ladders of one dataset from several backbones, side by side; none of them is saved."""
    different = list(dict.fromkeys(backbones))
    compare.check_count(different)
    return compare.compare_ladders({b: ladders.build(name, workspace, backbone=b, **options) for b in different})


def measured(ladder: Ladder, name: str, workspace: Workspace, **options: Any) -> Ladder:
    """The ladder with its distances measured anew, with this copy of the dataset and another network.

    Its few-shot episodes, which are no distances, are left out, and so is the name of a pinned ladder: results along
    other distances are not to be compared with those of that name.
    """
    index, vectors, made_with = features.frozen_features(name, workspace, **options)
    if problems := manifest.verify(ladder, index.classes, index.labels):
        raise UserError(f"the ladder is not one of this copy of {name}: {problems[0]}; "
                        f"`{ladders.command(name)} --replace` makes one of it")
    distances = measure(ladder, vectors, index.labels, index.classes, device=options.get("device"))
    rungs = tuple(replace(split, frd=frd, frd_equal_n=equal, frd_class_means_released=None)
                  for split, (frd, equal) in zip(ladder.splits, distances))
    made = {key: value for key, value in ladder.made.items() if key != "pinned"}
    return replace(ladder, features=made_with, iid=None, progression=(), episodes={}, splits=rungs, made=made)
