"""From a dataset to its ladder: the features of a frozen network, the split builder, the command that says how."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmark import datasets
from benchmark.data.task import one_class
from benchmark.datasets import DatasetIndex
from benchmark.ladders import features
from benchmark.utils import provenance
from benchmark.utils.devices import best_device
from benchmark.utils.errors import UserError
from benchmark.utils.phases import timed
from benchmark.utils.workspace import Workspace
from reports.safe_text import without_folders
from splits import official, union
from splits.fixed_test import fixed_test_ladder, named_ladder
from splits.ladder import against_rule, build_ladder, default_rung
from splits.manifest import Ladder
from splits.rungs import check_rungs


def build(name: str, workspace: Workspace, *, backbone: str | None = None, weights_file: str | None = None,
          device: str | None = None, default_only: bool = False, fixed_test: str | None = None,
          **options: Any) -> Ladder:
    """The ladder of a dataset, with the command that makes it; a union gets one rung, its members' default splits.

    With `default_only`, and for datasets that are not meant to have a ladder, it is the default split alone, for which
    no features are needed. `fixed_test` names the ladder whose control is built, '' that of the rule. Other options go
    to `splits.ladder.build_ladder`.
    """
    index, typed, name = datasets.load(name, workspace.data), name, datasets.located(name)
    if why := one_class(index.test_classes):
        raise UserError(f"{typed}: in its default split {why}; add some: take at least four classes, two a side")
    if fixed_test is not None and (default_only or index.domains is not None or not datasets.get(name).ladder):
        raise UserError(f"--fixed-test needs a ladder of several splits, and {typed} "
                        + ("gets its default split alone; leave --default-only out" if default_only else
                           "has one split; leave --fixed-test out"))
    if index.domains is not None:
        return _signed(of_union(index, options.get("seed", 0)), command(name, **_seed(options)))
    if default_only or not datasets.get(name).ladder:
        ladder = default_rung(index.labels, index.train_classes, index.test_classes, classes=index.classes,
                              dataset=index.name, dataset_hash=index.hash, seed=options.get("seed", 0))
        return _signed(ladder, command(name, default_only=True, **_seed(options)))
    known = named_ladder(fixed_test, index.classes, index.labels) if fixed_test else None
    if known is None and options.get("rung_iterations") is None:
        check_rungs(options.get("rungs"), options.get("reverse"))  # before minutes of features
    index, vectors, made_with = features.frozen_features(typed, workspace, backbone, weights_file, device)
    with timed("ladder"):
        ladder = known or build_ladder(vectors, index.labels, index.train_classes, index.test_classes,
                                       classes=index.classes, dataset=index.name, dataset_hash=index.hash,
                                       feature_info=made_with, device=best_device(device), **options)
    network = {"backbone": made_with["backbone"], **({"weights": Path(weights_file).name} if weights_file else {})}
    other = {} if known else against_rule(ladder)
    if fixed_test is not None:
        ladder = fixed_test_ladder(ladder, vectors, index.labels, index.classes, rungs=options.get("rungs"),
                                   seed=options.get("seed", 0), feature_info=made_with, device=best_device(device))
        other |= {key: options[key] for key in ("rungs", "seed") if options.get(key)}
        ladder, other = replace(ladder, dataset_hash=index.hash), other | {"fixed_test": fixed_test or True}
    return _signed(ladder, command(name, **other, **network))


def of_union(index: DatasetIndex, seed: int) -> Ladder:
    """The one rung of a union."""
    assert index.domains is not None
    united = union.Union(index.domain_names, index.classes, index.labels, index.domains, index.train_classes,
                         index.test_classes, index.roles)
    return union.union_split(united, dataset=index.name, dataset_hash=index.hash, seed=seed)


FLAGS = {"swaps_per_iteration": "--swaps", "rung_iterations": "--rung-iterations", "default_only": "--default-only",
         "fixed_test": "--fixed-test"}
"""Options of `oodml splits build` that are not called as the builder calls them."""


def command(name: str, **options: Any) -> str:
    """The command that builds a ladder with these options, such as `against_rule` tells them.

    >>> command("glyphs", rungs=5, swaps_per_iteration=20, removal=False, rung_iterations=[0, "R2"])
    'oodml splits build --dataset glyphs --rungs 5 --swaps 20 --no-removal --rung-iterations 0,R2'
    """
    words = ["oodml", "splits", "build", "--dataset", name]
    for key, value in options.items():
        flag = FLAGS.get(key, f"--{key}")
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            words += [flag, ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)]
    return shlex.join(words)


def made_by(ladder: Ladder) -> str:
    """How a ladder was made: the command in its manifest or, of an older one, that which its parameters amount to."""
    options, parameters = against_rule(ladder), ladder.parameters
    if "command" in ladder.made:
        return str(ladder.made["command"])
    if "file" in parameters:
        return shlex.join(["oodml", "splits", "import", parameters["file"], "--dataset", ladder.dataset])
    if {"guard", "patience", "remaining"} & {*options}:  # no command has these
        return f"build_ladder({', '.join(f'{key}={value!r}' for key, value in options.items())})"
    if "swaps_per_iteration" not in parameters:
        options = {**({} if "members" in parameters else {"default_only": True}), **_seed(parameters)}
    backbone = {"backbone": ladder.features["backbone"]} if "backbone" in ladder.features else {}
    return command(ladder.dataset, **options, **backbone)


def published(ladder: Ladder) -> Ladder:
    """The ladder as others may have it: its command names no folder of this machine."""
    told = {"command": without_folders(str(ladder.made["command"]))} if "command" in ladder.made else {}
    return replace(ladder, made={**ladder.made, **told})


def import_released(path: Path, name: str, workspace: Workspace) -> official.Imported:
    """A released ooDML split file as a ladder of the dataset, with what the local copy lacks."""
    index = datasets.load(name, workspace.data)
    imported = official.import_released(path, dataset=index.name, dataset_hash=index.hash, classes=index.classes,
                                        labels=index.labels, images=index.paths, train_classes=index.train_classes,
                                        test_classes=index.test_classes)
    line = shlex.join(["oodml", "splits", "import", path.name, "--dataset", datasets.located(name)])
    return replace(imported, ladder=_signed(imported.ladder, line))


def _seed(options: dict[str, Any]) -> dict[str, Any]:
    return {"seed": options["seed"]} if options.get("seed") else {}


def _signed(ladder: Ladder, line: str) -> Ladder:
    return replace(ladder, made={"version": provenance.facts()["version"], "command": line})
