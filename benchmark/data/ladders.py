"""From a dataset on disk to its ladder and back: features, the split builder, and the saved manifest."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmark import datasets
from benchmark.data import ladder_features, ladder_origin
from benchmark.data.task import one_class
from benchmark.datasets import DatasetIndex
from benchmark.utils import provenance
from benchmark.utils.devices import best_device
from benchmark.utils.errors import UserError
from benchmark.utils.phases import timed
from benchmark.utils.terminal import columns
from benchmark.utils.workspace import Workspace
from reports.records import RECORD
from reports.safe_text import without_folders
from reports.storage import paths
from reports.wording import counted
from splits import SplitError, manifest, official, pinning, union
from splits.fixed_test import fixed_test_ladder, is_control, named_ladder
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
    index, vectors, made_with = ladder_features.frozen_features(typed, workspace, backbone, weights_file, device)
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


def _seed(options: dict[str, Any]) -> dict[str, Any]:
    return {"seed": options["seed"]} if options.get("seed") else {}


def _signed(ladder: Ladder, line: str) -> Ladder:
    return replace(ladder, made={"version": provenance.facts()["version"], "command": line})


IN_PASSING = "in passing"
"""The mark, in `Ladder.made`, of a default split that `load` made because no more was asked for."""


def path_of(workspace: Workspace, name: str) -> Path:
    """Where the ladder of a dataset lies."""
    return workspace.splits / f"{paths.plain(name, 'dataset')}.json"


def save(ladder: Ladder, workspace: Workspace) -> Path:
    """Write the ladder to WORK/splits/NAME.json; one there that runs stand on is kept as replaced/NAME-HASH8.json."""
    path = path_of(workspace, ladder.dataset)
    path.parent.mkdir(parents=True, exist_ok=True)
    before = present(path)
    if before is not None and runs_left_behind(before, ladder, workspace):
        aside = path.parent / "replaced"
        aside.mkdir(exist_ok=True)
        manifest.save(before, aside / f"{path.stem}-{before.hash[:8]}.json")
    manifest.save(ladder, path)
    return path


def refuse_to_replace(dataset: str, ladder: Ladder | None, workspace: Workspace) -> None:
    """A UserError where runs stand on splits of the ladder that is there which this one, if any, does not have."""
    path = path_of(workspace, dataset)
    before = present(path)
    if before is not None and ladder is not None and is_control(before) != is_control(ladder):
        raise UserError(f"{path} is left as it is: a ladder and its control with fixed test classes are two ladders of "
                        "one dataset; build this one in a working folder of its own (--work DIR), and show the runs of "
                        "both with `oodml report --records`")
    count = 0 if before is None else runs_left_behind(before, ladder, workspace)
    if count:
        raise UserError(f"{path} is left as it is: {counted(count, 'run stands', 'runs stand')} in "
                        f"{workspace.runs / dataset} on splits that the new ladder does not have, and would no longer "
                        "count; --replace writes it all the same and "
                        f"keeps the old one in {path.parent / 'replaced'}, --work DIR builds it elsewhere")


def runs_left_behind(before: Ladder, now: Ladder | None, workspace: Workspace) -> int:
    """How many runs, finished or begun, are on splits of a ladder that another does not have."""
    lost = {split.hash for split in before.splits} - {split.hash for split in (now.splits if now else ())}
    home = workspace.runs / paths.plain(before.dataset, "dataset")
    return sum(_split_hash(folder) in lost for folder in home.glob("*/*/s*/")) if lost else 0


def _split_hash(folder: Path) -> str:
    """Of the split that a run is on; '' where nothing of it is left but its failure."""
    if not (folder / RECORD).is_file() and not any(folder.glob("checkpoint-*")):
        return ""
    for name, keys in (("spec.json", ("split_hash",)), (RECORD, ("split", "hash"))):
        try:
            facts = json.loads((folder / name).read_text(encoding="utf-8"))
            for key in keys:
                facts = facts[key]
            return str(facts)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
    return ""


def present(path: Path) -> Ladder | None:
    """The ladder in a file, if there is one that can be used."""
    try:
        return manifest.load(path)
    except SplitError:
        return None


def load(workspace: Workspace, name: str, index: DatasetIndex | None = None, default_only: bool | None = None,
         needs: str = "") -> Ladder:
    """The saved ladder of a dataset; with its index, one that was built from other files is refused.

    Of a dataset of one's own (`folder:PATH`) the index is read where it is not given, as others may share its name.

    Args:
        default_only: whether the default split is all that is asked for; None: whatever is saved. Where nothing is
            saved, a default split that is all that is asked for, or all there is, is made here, as it needs no
            features. Where more is asked for, one that was made here is no ladder: it must still be built.
        needs: the ladder that is meant, by its pinned name or the options that make it, see `study.Part.needs`.
    """
    if index is None and ":" in name:
        index = datasets.load(name, workspace.data)
    path = path_of(workspace, name if index is None else index.name)
    remedy = (f"take it with `oodml splits use {needs}{workspace.option()}`" if needs and not needs.startswith("-") else
              f"make it with `{command(name)}{needs and f' {needs}'}{workspace.option()}`")
    if not path.exists() and index is not None:
        all_there_is = index.domains is not None or not datasets.get(name).ladder
        if default_only or all_there_is:
            made = build(name, workspace, default_only=True)
            save(made if all_there_is else replace(made, made={**made.made, IN_PASSING: True}), workspace)
    saved = manifest.load(path) if path.exists() else None
    if saved is None or (default_only is False and saved.made.get(IN_PASSING)):
        if index is None:
            datasets.get(name)  # a mistyped name is the likelier mistake
        pinned = [f"`oodml splits use {one}{workspace.option()}`" for one in pinning.names([name]) if not needs]
        remedy += f", or take a pinned one, whose results can be compared: {' or '.join(pinned)}" if pinned else ""
        there = "is not there" if saved is None else "has the default split alone"
        raise UserError(f"{name} has no ladder yet ({path} {there}); {remedy}")
    if index is not None and (other := ladder_origin.namesake(saved, index, workspace)):
        raise UserError(f"{path} {other}")
    if index is not None and saved.dataset_hash != index.hash:
        raise UserError(f"{path} was built from other files than {name} has now; {remedy} again")
    return saved


def of_other_files(name: str, workspace: Workspace, replace_it: bool = False) -> str:
    """What to know before the ladder of one's own dataset replaces one from other files; '' if none is there.

    A UserError where runs stand on that one, or where it is of another dataset that is still there, unless it shall be
    replaced all the same.
    """
    if ":" not in name:
        return ""
    index = datasets.load(name, workspace.data)
    path = path_of(workspace, index.name)
    before = present(path)
    if before is None:
        return ""
    if before.dataset_hash != index.hash and not replace_it:
        refuse_to_replace(index.name, None, workspace)
    if not replace_it and (other := ladder_origin.namesake(before, index, workspace)):
        raise UserError(f"{path} {other}; --replace builds this one in its place")
    if before.dataset_hash == index.hash:
        return ""
    return (f"{path} was built from other files and will be replaced; if that is another dataset which is named "
            f"'{index.name}' too, stop here and rename one of the two, or give each a working folder of its own "
            "(--work DIR)")


def verify(path: Path, workspace: Workspace, dataset: str | None = None) -> list[str]:
    """What is wrong with a manifest, held against the dataset on disk, its own or this one; empty if nothing is."""
    ladder = manifest.load(path)
    index = datasets.load(dataset or datasets.source(ladder.dataset, path.parent), workspace.data)
    stale = ladder_origin.of_other_images(ladder, index, workspace)
    return [*manifest.verify(ladder, index.classes, index.labels, index.hash), *([stale] if stale else [])]


def import_released(path: Path, name: str, workspace: Workspace) -> official.Imported:
    """A released ooDML split file as a ladder of the dataset, with what the local copy lacks."""
    index = datasets.load(name, workspace.data)
    imported = official.import_released(path, dataset=index.name, dataset_hash=index.hash, classes=index.classes,
                                        labels=index.labels, images=index.paths, train_classes=index.train_classes,
                                        test_classes=index.test_classes)
    line = shlex.join(["oodml", "splits", "import", path.name, "--dataset", datasets.located(name)])
    return replace(imported, ladder=_signed(imported.ladder, line))


def table(ladder: Ladder) -> str:
    """The rungs as text: id, kind, iteration, classes and images of each side, both distances."""
    heads = ("id", "kind", "iteration", "train classes", "images", "test classes", "images", "FRD", "FRD equal n",
             "FRD class means")
    rows = [heads, *((str(s.id), s.kind, str(s.iteration), str(len(s.train)), str(s.train_images), str(len(s.test)),
                      str(s.test_images), *map(_number, (s.frd, s.frd_equal_n, s.frd_class_means_released)))
                     for s in ladder.splits)]
    lines = list(columns(rows, left=0))
    if ladder.iid:
        lines.append(f"random halves of the same classes (i.i.d.): {ladder.iid['mean']:.2f} ± {ladder.iid['std']:.2f} "
                     f"(std over {ladder.iid['draws']} draws)")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
