"""Pinned ladders and the dataset on disk: how a ladder is pinned, checked against a local copy, and used."""

from __future__ import annotations

import hashlib
import shlex
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmark import datasets, ladders
from benchmark.data.task import Side
from benchmark.datasets import DatasetIndex
from benchmark.datasets.index import upright
from benchmark.utils import provenance
from benchmark.utils.errors import UserError, near
from benchmark.utils.workspace import Workspace
from reports.wording import counted
from splits import croissant, pinning
from splits.manifest import Ladder, Split
from splits.pinning import Pinned

if TYPE_CHECKING:  # brings pandas along
    from reports.pinned_ladders import PinnedLadder

SHOWN = 20
"""Lines that tell what differs; the rest is counted."""
OF_ONES_OWN = ("folder:", "csv:", "parquet:", "wds:")
"""Families whose own word on where their images come from speaks to who has them, which a reader of a card has not."""
TERMS = ("The images are not part of this file. They belong to their owners: the terms are those on the dataset's own "
         "page, where they are obtained.")


def pin(name: str, workspace: Workspace, out: Path, *, dataset: str | None = None, licence: str | None = None,
        note: str | None = None, lists_only: bool = False) -> tuple[Pinned, list[Path]]:
    """The ladder of a dataset in the workspace under a name of its own: its file, card and Croissant description.

    A name that is there already is refused, in this folder or as that of another of the suite's own: who changes a
    ladder gives it another version.
    """
    if not pinning.NAME.fullmatch(name):
        raise UserError(f"'{name[:100]}' is no name of a pinned ladder; write NAME@VERSION, such as cub@v1")
    own = name.partition("@")[0]
    index = datasets.load(dataset or datasets.source(own, workspace.splits), workspace.data)
    if index.name != own:
        raise UserError(f"a pinned ladder is called by its dataset: {index.name}@{name.partition('@')[2]}")
    ladder = ladders.load(workspace, index.typed, index, default_only=False)
    target = out / f"{name}.json"
    if target.exists():
        raise UserError(f"{target} is there and stays as it is; give another version, as in {_free(name, out)}")
    counts = np.bincount(index.labels, minlength=len(index.classes)).tolist()
    ids: list[list[str]] = [[] for _ in index.classes]
    for path, label in zip(index.paths, index.labels.tolist()):
        ids[label].append(path)
    pinned = Pinned(name, index.name, index.hash, index.classes, tuple(counts),
                    None if lists_only else tuple(map(tuple, ids)), ladder.splits,
                    tuple(queries_of(index, split) for split in ladder.splits), ladder.features, ladder.parameters,
                    ladder.iid, ladders.published(ladder).made or {"command": ladders.made_by(ladder)},
                    progression=ladder.progression)
    if name in pinning.names() and (published := pinning.get(name)).hash != pinned.hash:
        raise UserError(f"{name} is a published ladder with other content (hash {published.hash[:12]}, this one has "
                        f"{pinned.hash[:12]}): results on the two would be taken for comparable; give another version, "
                        f"as in {_free(name, out)}")
    family = datasets.get(index.typed)
    source = "The images of the author of this ladder." if family.name in OF_ONES_OWN else family.source
    card: dict[str, Any] = {"title": family.title, "source": source, "licence": licence or TERMS,
                            "date": provenance.now()[:10],
                            "duplicates": [] if lists_only else duplicates(index)}
    pinned = replace(pinned, card=card | ({"note": note} if note else {}))
    out.mkdir(parents=True, exist_ok=True)
    pinning.save(pinned, target)
    return pinned, [target, *croissant.write(pinned, out)]


def _free(name: str, out: Path) -> str:
    """The first version after this one that is neither in the folder nor published."""
    while name in pinning.names() or (out / f"{name}.json").exists():
        name = _next(name)
    return name


def _next(name: str) -> str:
    """
    >>> _next("cub@v1"), _next("cars@ooDML")
    ('cub@v2', 'cars@ooDML-2')
    """
    head = name.rstrip("0123456789")
    return f"{head}{int(name[len(head):]) + 1}" if head != name else f"{name}-2"


def queries_of(index: DatasetIndex, split: Split) -> str:
    """The hash of the queries of a split's test side, see `pinning.test_digest`."""
    side = Side.of(index, split.test)
    query, counted = pinning.counted_queries(side.labels, side.roles)
    return pinning.test_digest(side.classes, side.labels[query], counted)


def duplicates(index: DatasetIndex) -> list[list[str]]:
    """Groups of images with the same bytes, or the same pixels where they are no files of their own."""
    groups = defaultdict(list)
    for i, path in enumerate(index.paths):
        try:
            if index.opener is None and index.root is not None:
                content = (index.root / path).read_bytes()
            else:
                with index.open(i) as opened:
                    image = upright(opened)
                content = b"%d %d " % image.size + image.tobytes()
        except OSError:  # a list of images may be pinned without them; `use` says which are missing
            continue
        groups[hashlib.sha256(content).digest()].append(path)
    return [paths for paths in groups.values() if len(paths) > 1]


def differences(pinned: Pinned, index: DatasetIndex) -> list[str]:
    """What of the local copy is not as it was pinned, image by image; empty if nothing is."""
    # the names of drawn images tell their fonts; official archives are also passed on under other names
    layouts = not datasets.get(index.typed).embedded
    lines = list(pinning.differences(pinned, index.classes, index.labels, index.paths, layouts))
    if not lines and pinned.queries:
        lines = [f"split {split.id}: its queries stand in another order than in {pinned.name}" for split, wanted in
                 zip(pinned.splits, pinned.queries) if wanted and wanted != queries_of(index, split)]
    if not lines and pinned.open:
        (whole,), (split,) = ladders.of_union(index, pinned.parameters["seed"]).splits, pinned.splits
        lines = [f"other {side} classes than in {pinned.name}" for side in pinning.SIDES
                 if [name for name in getattr(whole, side) if pinned.names(name)] != list(getattr(split, side))]
    return lines


def only_lacks_images(pinned: Pinned, index: DatasetIndex) -> bool:
    """Whether a copy differs by missing images alone: what is there is pinned, in its class, and no class is empty."""
    known = {id: name for name, ids in zip(pinned.classes, pinned.images or ()) for id in ids}
    found = [index.classes[label] for label in index.labels.tolist()]
    return (not pinned.open and set(found) == set(pinned.classes)
            and all(known.get(path) == name for path, name in zip(index.paths, found)))


def without_missing(pinned: Pinned, index: DatasetIndex) -> Ladder:
    """The rungs with the images there are. Distances are the pinned ones; it is called otherwise, as results differ."""
    sizes = dict(zip(index.classes, np.bincount(index.labels, minlength=len(index.classes)).tolist()))
    splits = tuple(replace(split, train_images=sum(map(sizes.__getitem__, split.train)),
                           test_images=sum(map(sizes.__getitem__, split.test))) for split in pinned.splits)
    return replace(pinned.ladder, splits=splits, progression=(), made=pinned.made)


def get(name: str) -> Pinned:
    """The pinned ladder of this name, or that in a file of one's own; a mistyped one is told with those there are."""
    known = pinning.names()
    if not name.endswith(".json") and name not in known:
        raise UserError(f"there is no pinned ladder '{name[:100]}'{near(name[:100], known)}; there are: "
                        f"{', '.join(known) or 'none'}; one of your own is given by the path of its file, such as "
                        f"pins/{name[:100]}.json")
    return pinning.get(name)


def use(name: str, workspace: Workspace, replace_other: bool = False, dataset: str | None = None,
        incomplete: bool = False) -> tuple[DatasetIndex, Ladder]:
    """The pinned ladder as that of the local dataset, checked image by image and saved as WORK/splits/DATASET.json.

    A `UserError` tells what differs; a copy that lacks images alone is taken if `incomplete`, under no pinned name.
    Another ladder that is there already stays unless `replace_other`. Of a dataset that is not the suite's, `dataset`
    says where the local copy lies, unless a ladder in the workspace does.
    """
    pinned = get(name)
    own = dataset or datasets.source(pinned.dataset, workspace.splits)
    if ":" not in own and own not in datasets.names():
        raise UserError(f"{pinned.name} is a ladder of '{own}', which is no dataset of the suite; say where your copy "
                        f"lies: `oodml splits use {name}{workspace.option()} --dataset folder:PATH` (or csv:, union:)")
    index = datasets.load(own, workspace.data)
    if index.name != pinned.dataset:
        raise UserError(f"{pinned.name} is a ladder of '{pinned.dataset}', and {own} is called '{index.name}'; give "
                        "the folder or file that name")
    path = ladders.path_of(workspace, pinned.dataset)
    there, found = ladders.present(path), differences(pinned, index)
    lacking = bool(found) and only_lacks_images(pinned, index)
    if found and not (incomplete and lacking):
        taken = there is not None and there.dataset_hash == index.hash and pinning.same(pinned, there)
        way = ("Unpack its archive again, or put back what is named here" if not lacking else
               f"Its classes are those of {path} already: name the dataset, {pinned.dataset}, and not the ladder"
               if taken else
               f"Unpack its archive again, put back what is named here, or do without: `oodml splits use {name}"
               f"{workspace.option()}{f' --dataset {shlex.quote(dataset)}' if dataset else ''} --incomplete` (results "
               "do not count as on the pinned ladder then)")
        raise UserError("\n".join([f"the local copy of {pinned.dataset} is not that of {pinned.name}, "
                                   f"{counted(len(found), 'difference')}; nothing was written. {way}:",
                                   *_shown(found)]))
    ladder = without_missing(pinned, index) if found else pinned.ladder
    where = ["--dataset", datasets.located(own)] if ":" in own else []  # so that other commands find it by its name
    line = shlex.join(["oodml", "splits", "use", name, *["--incomplete"] * bool(found), *where])
    ladder = replace(ladder, dataset_hash=index.hash, made={**ladder.made, "command": line})
    if pinned.open:
        ladder = replace(ladder, splits=ladders.of_union(index, pinned.parameters["seed"]).splits)
    same = there is None or pinning.same(replace(pinned, splits=ladder.splits), there)
    if (there is not None and same and there.dataset_hash == index.hash
            and there.made.get("pinned") == ladder.made.get("pinned")):
        return index, there
    if not same and not replace_other:
        raise UserError(f"{path} is another ladder of {pinned.dataset}; `oodml splits use {name} --replace` "
                        "puts this one in its place (runs on the other no longer count with it), --work DIR keeps both")
    ladders.save(ladder, workspace)
    return index, ladder


def verify(path: Path, workspace: Workspace, dataset: str | None = None) -> list[str]:
    """What of the local copy is not as the pinned ladder of a file has it; empty if nothing is."""
    fixed = pinning.load(path)
    index = datasets.load(dataset or datasets.source(fixed.dataset, workspace.splits), workspace.data)
    return _shown(differences(fixed, index))


def _shown(lines: list[str]) -> list[str]:
    return [*lines[:SHOWN], *([f"... and {len(lines) - SHOWN:,} more"] if len(lines) > SHOWN else [])]


def with_progression(ladder: Ladder) -> Ladder:
    """The ladder with the steps of the pinned one that it is: manifests from before these were pinned lack them."""
    told = ladder.made.get("pinned")  # no hash guards it: it may be anything
    if ladder.progression or not isinstance(told, dict) or told.get("name") not in pinning.names():
        return ladder
    fixed = pinning.get(told["name"])
    return replace(ladder, progression=fixed.progression) if fixed.hash == told.get("hash") else ladder


def known(names: Iterable[str]) -> list[PinnedLadder]:
    """The pinned ladders of these datasets, as reports know them."""
    from reports.pinned_ladders import PinnedLadder

    wanted = set(names)
    return [PinnedLadder(one.name, one.hash, one.dataset, one.dataset_hash,
                         tuple((split.id, split.frd) for split in one.splits if split.frd is not None),
                         {split.id: split.hash for split in one.splits})
            for one in map(pinning.get, pinning.names(wanted))]


def named(ladder: str | None, dataset: str | None, workspace: Workspace) -> str:
    """The dataset that `--ladder` and `--dataset` mean, after a pinned ladder was checked and put in its place."""
    if ladder is None:
        if dataset is None:
            raise UserError("name a dataset (--dataset NAME) or a pinned ladder (--ladder NAME@VERSION)")
        return dataset
    its_own = get(ladder).dataset
    if dataset is not None and ":" not in dataset and dataset != its_own:
        raise UserError(f"{ladder} is a ladder of {its_own}, not of {dataset}; leave --dataset out")
    index, _ = use(ladder, workspace.writable(), dataset=dataset if dataset and ":" in dataset else None)
    return index.name
