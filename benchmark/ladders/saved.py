"""Ladders in a working folder: saved, found again, refused where the dataset changed, kept where runs are on them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from benchmark import datasets
from benchmark.datasets import DatasetIndex
from benchmark.ladders import origin
from benchmark.ladders.building import build, command
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import SPEC, Workspace
from reports.records import RECORD
from reports.storage import paths
from reports.wording import counted
from splits import SplitError, manifest, pinning
from splits.fixed_test import is_control
from splits.manifest import Ladder

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
    if ladder is not None:
        _refuse_other_kind(path, before, is_control(ladder))
    count = 0 if before is None else runs_left_behind(before, ladder, workspace)
    if count:
        raise UserError(f"{path} is left as it is: {counted(count, 'run stands', 'runs stand')} in "
                        f"{workspace.runs / dataset} on splits that the new ladder does not have, and would no longer "
                        "count; --replace writes it all the same and "
                        f"keeps the old one in {path.parent / 'replaced'}, --work DIR builds it elsewhere")


def refuse_other_kind(name: str, control: bool, workspace: Workspace) -> None:
    """A UserError where a ladder would take the place of its control, or the other way: before hours of features."""
    path = path_of(workspace, datasets.load(name, workspace.data).name)
    _refuse_other_kind(path, present(path), control)


def _refuse_other_kind(path: Path, before: Ladder | None, control: bool) -> None:
    if before is not None and is_control(before) != control:
        raise UserError(f"{path} is left as it is: a ladder and its control with fixed test classes are two ladders of "
                        "one dataset; build this one in a working folder of its own (--work DIR), and show the runs of "
                        "both with `oodml report --records`")


def runs_left_behind(before: Ladder, now: Ladder | None, workspace: Workspace) -> int:
    """How many runs, finished or begun, are on splits of a ladder that another does not have."""
    lost = {split.hash for split in before.splits} - {split.hash for split in (now.splits if now else ())}
    home = workspace.runs / paths.plain(before.dataset, "dataset")
    return sum(_split_hash(folder) in lost for folder in home.glob("*/*/s*/")) if lost else 0


def _split_hash(folder: Path) -> str:
    """Of the split that a run is on; '' where nothing of it is left but its failure."""
    if not (folder / RECORD).is_file() and not any(folder.glob("checkpoint-*")):
        return ""
    for name, keys in ((SPEC, ("split_hash",)), (RECORD, ("split", "hash"))):
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
    if index is not None and (other := origin.namesake(saved, index, workspace)):
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
    if not replace_it and (other := origin.namesake(before, index, workspace)):
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
    stale = origin.of_other_images(ladder, index, workspace)
    return [*manifest.verify(ladder, index.classes, index.labels, index.hash), *([stale] if stale else [])]
