"""`folder:PATH`: any folder that has one folder of images for each class."""

from __future__ import annotations

import os
import re
from pathlib import Path

from benchmark.datasets import Dataset, DatasetIndex, names
from benchmark.datasets.reading import SUFFIXES, NotThere, class_folders, images_under, make_index, subfolders
from benchmark.utils.errors import UserError

SIDES = ("train", "test")


def own_name(text: str) -> str:
    """The name of a user's own dataset, fit for a directory and never that of a built-in one.

    >>> own_name("My birds (2024)"), own_name("cub")
    ('My-birds-2024', 'own-cub')
    """
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-") or "own"
    return f"own-{slug}" if slug.lower() in names() else slug


def read(data: Path, rest: str) -> DatasetIndex:
    """Reads PATH/CLASS/images, or PATH/train/CLASS and PATH/test/CLASS where the split is given.

    Without a given split the first half of the classes, sorted by the code points of their names, is trained on.
    """
    root = Path(rest).expanduser()
    if not rest or not root.is_dir():
        raise NotThere(f"there is no folder '{rest}'; give folder:PATH with a folder that has one folder a class")
    train = None
    if _has_sides(root):
        sides = {side: class_folders(root / side) for side in SIDES}
        both = sorted(set(sides["train"]) & set(sides["test"]))
        if both:
            raise UserError(f"class '{both[0]}' lies in both {root / 'train'} and {root / 'test'} ({len(both)} such "
                            "classes); the two sides need different classes: put all class folders in "
                            f"{root} itself and they are halved by name")
        empty = [side for side in sides if not sides[side]]
        if empty:
            raise UserError(f"{root / empty[0]} has no folder with images; put one folder a class there")
        train = set(sides["train"])
        classes = {name: [f"{side}/{path}" for path in paths] for side in sides for name, paths in sides[side].items()}
    else:
        classes = class_folders(root)
    return make_index(own_name(root.resolve().name), root, [path for paths in classes.values() for path in paths],
                      [name for name, paths in classes.items() for _ in paths], where=root, train=train)


def _has_sides(root: Path) -> bool:
    return all((root / side).is_dir() for side in SIDES)


def empty_classes(root: Path) -> list[str]:
    """Folders that should be classes but hold no image, each with what it holds instead."""
    folders = [f"{side}/{name}" for side in SIDES for name in subfolders(root / side)] if _has_sides(root) else \
        subfolders(root)
    return [f"{folder} ({' '.join(_endings(root / folder)) or 'empty'})" for folder in folders
            if not images_under(root / folder)]


def other_endings(root: Path) -> list[str]:
    """The endings of files in the class folders that are not read as images."""
    tops = SIDES if _has_sides(root) else subfolders(root)
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
PATH/test/CLASS/*.jpg              with other classes than train""",
),)
