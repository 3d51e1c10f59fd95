"""`folder:PATH`: any folder that has one folder of images for each class."""

from __future__ import annotations

import os
import posixpath
import re
import unicodedata
from dataclasses import replace
from pathlib import Path

from benchmark.datasets import Dataset, DatasetIndex, known_split, names
from benchmark.datasets.reading import SUFFIXES, NotThere, class_folders, images_under, make_index, subfolders
from benchmark.utils.errors import UserError
from benchmark.utils.wording import counted

TRAIN, HELD_OUT = ("train", "training"), ("test", "testing", "val", "valid", "validation")
COMMON = frozenset({"all", "annotations", "data", "dataset", "files", "images", "image", "img", "imgs", "index", "jpg",
                    "jpeg", "labels", "list", "metadata", "photos", "pictures", "png", "shards", "test", "train"})
"""Names that say nothing of a dataset: that of the folder around it is put before them."""


def own_name(path: Path) -> str:
    """The name of a user's own dataset, fit for a directory and never that of a built-in one.

    >>> own_name(Path("My birds (2024)")), own_name(Path("cub")), own_name(Path("/birds/images")), own_name(Path("鳥"))
    ('My-birds-2024', 'own-cub', 'birds-images', '鳥')
    """
    from reports.storage.paths import is_plain

    around = path.absolute().parent.name
    text = f"{around}-{path.name}" if path.name.lower() in COMMON and around else path.name
    # composed, as a Mac writes an accent as a character of its own
    slug = re.sub(r"[^\w-]+", "-", unicodedata.normalize("NFC", text)).strip("-") or "own"
    return f"own-{slug}" if slug.lower() in names() or not is_plain(slug) else slug


def read(data: Path, rest: str) -> DatasetIndex:
    """Reads PATH/CLASS/images, or PATH/train/CLASS and PATH/test/CLASS (or val) where the split is given.

    Without a given split the first half of the classes, sorted by the code points of their names, is trained on; so
    too where train and test have the same classes, as for classification. Where the folders of PATH hold nothing but
    folders, these are the classes: PATH/GROUP/CLASS.
    """
    root = Path(rest).expanduser()
    if not rest or not root.is_dir():
        raise NotThere(f"there is no folder '{rest}'; give folder:PATH with a folder that has one folder a class")
    train, note = None, ""
    if sides := _sides(root):
        found = {side: _classes(root / side, side)[0] for side in sides}
        first, second = (set(found[side]) for side in sides[:2])
        empty = [side for side in sides[:2] if not found[side]]
        if empty:
            raise UserError(f"{root / empty[0]} has no folder with images; put one folder a class there")
        if not first & second:
            train, classes = first, {**found[sides[0]], **found[sides[1]]}
        elif first <= second or second <= first:
            # all sides, also val beside train and test
            classes = {name: [path for side in sides for path in found[side].get(name, ())]
                       for name in sorted(set().union(*found.values()))}
            note = (f"{' and '.join(sides)} have the same classes, as for classification: their images are put "
                    f"together, and the {len(classes):,} classes are halved by name")
            sizes = [sum(map(len, found[side].values())) for side in sides]
            if split := known_split(sizes[0], sum(sizes[1:])):
                note = f"{' and '.join(sides)} are {split}: all are put together, and the classes halved by name"
        else:
            both = sorted(first & second)
            raise UserError(f"class '{both[0]}' lies in both {root / sides[0]} and {root / sides[1]} "
                            f"({counted(len(both), 'such class')}); the two sides need different classes: put all "
                            f"class folders in {root} itself and they are halved by name")
    else:
        classes, note = _classes(root)
    if not classes and (loose := images_under(root)):
        raise UserError(f"{root}: {counted(len(loose), 'image')}, such as {loose[0]}, but no folder for each class; "
                        "put the images of a class into a folder of its own, or list them in a file (csv:PATH)")
    index = make_index(own_name(root.resolve()), root, [path for paths in classes.values() for path in paths],
                       [name for name, paths in classes.items() for _ in paths], where=root, train=train)
    return replace(index, note=note)


def _sides(root: Path) -> list[str]:
    """The folders of a given split, train first; none where there is none. A side holds folders."""
    called = {name.lower(): name for name in subfolders(root)}
    train, held = ([called[side] for side in sides if side in called and subfolders(root / called[side])]
                   for sides in (TRAIN, HELD_OUT))
    return [*train, *held] if len(train) == 1 and held else []


def _classes(folder: Path, side: str = "") -> tuple[dict[str, list[str]], str]:
    """The images of each class, and what was taken for a class where that is not plain."""
    prefix = f"{side}/" if side else ""
    tops = class_folders(folder)
    inner: dict[str, list[str]] = {}
    for path in (path for paths in tops.values() for path in paths):
        inner.setdefault(posixpath.dirname(path), []).append(path)
    nested = [name for name in inner if "/" in name]
    note = ""
    if len(nested) == len(inner) > len(tops):
        around = f"{len(tops):,} folders around them have" if len(tops) > 1 else "folder around them has"
        note = (f"a class is each of the {len(inner):,} inner folders, such as {nested[0]}: the {around} no images of "
                "their own")
        tops = inner
    elif nested and len(nested) < len(inner):
        note = (f"a class is each of the {len(tops):,} outer folders, with all below it, such as {nested[0]}: some of "
                "them have images of their own")
    return {name: [prefix + path for path in paths] for name, paths in tops.items()}, note


def empty_classes(root: Path) -> list[str]:
    """Folders that should be classes but hold no image, each with what it holds instead."""
    folders = [f"{side}/{name}" for side in _sides(root)[:2] for name in subfolders(root / side)] or subfolders(root)
    return [f"{folder} ({' '.join(_endings(root / folder)) or 'empty'})" for folder in folders
            if not images_under(root / folder)]


def other_endings(root: Path) -> list[str]:
    """The endings of files in the class folders that are not read as images."""
    tops = _sides(root)[:2] or subfolders(root)
    return sorted({ending for top in tops for ending in _endings(root / top)})


def _endings(folder: Path) -> list[str]:
    names = (name for _, _, files in os.walk(folder) for name in files if not name.startswith("."))
    return sorted({os.path.splitext(name)[1].lower() or "no ending" for name in names} - SUFFIXES)


DATASETS = (Dataset(
    name="folder:",
    title="folder:PATH, your own images, one folder a class",
    read=read,
    source="Your own images.",
    tree="""\
PATH/CLASS/*.jpg                   the first half of the classes, by name, is trained on
or
PATH/train/CLASS/*.jpg
PATH/test/CLASS/*.jpg              with other classes than train, else all are put together; or val/
or
PATH/GROUP/CLASS/*.jpg""",
),)
