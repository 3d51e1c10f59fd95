"""`folder:PATH`: any folder that has one folder of images for each class."""

from __future__ import annotations

import os
import posixpath
import re
import unicodedata
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from benchmark.datasets import Dataset, DatasetIndex, known_split, names
from benchmark.datasets.reading import SUFFIXES, NotThere, class_folders, images_under, make_index, subfolders
from benchmark.utils.errors import UserError
from reports.wording import counted

TRAIN, HELD_OUT = ("train", "training"), ("test", "testing", "val", "valid", "validation")
INNER_TRAIN = re.compile(rf"/(?=({'|'.join(TRAIN)})/)", re.IGNORECASE)
"""What is before and behind it in a path: a folder around that of the training side, and a folder inside that."""
PLAIN = ("images", "image", "imgs", "img")
"""Folders that say nothing of a class: what lies in one is of the class, or the side, around it."""
LAST_PLAIN = re.compile(rf"/({'|'.join(PLAIN)})$", re.IGNORECASE)
REMEDY = "put the images of a class into a folder of its own, or list them in a file (csv:PATH)"
COMMON = frozenset({"all", "annotations", "data", "dataset", "files", "images", "image", "img", "imgs", "index", "jpg",
                    "jpeg", "labels", "list", "metadata", "photos", "pictures", "png", "shards", "test", "train"})
"""Names that say nothing of a dataset: that of the folder around it is put before them."""


def own_name(path: Path) -> str:
    """The name of a user's own dataset, fit for a directory and never that of a built-in one.

    >>> own_name(Path("My birds (2024)")), own_name(Path("cub")), own_name(Path("/birds/images")), own_name(Path("鳥"))
    ('My-birds-2024', 'own-cub', 'birds-images', '鳥')
    """
    from reports.storage.paths import is_plain, short

    around = path.absolute().parent.name
    text = f"{around}-{path.name}" if path.name.lower() in COMMON and around else path.name
    # composed, as a Mac writes an accent as a character of its own
    slug = re.sub(r"[^\w-]+", "-", unicodedata.normalize("NFC", text)).strip("-") or "own"
    return short(slug if slug.lower() not in names() and is_plain(short(slug)) else f"own-{slug}")


def read(data: Path, rest: str) -> DatasetIndex:
    """Reads PATH/CLASS/images, or PATH/train/CLASS and PATH/test/CLASS (or val) where the split is given.

    Without a given split the first half of the classes, sorted by the code points of their names, is trained on; so
    too where train and test have the same classes, as for classification, or where test has no class folders and is
    left aside. Where the folders of PATH hold nothing but folders, these are the classes, PATH/GROUP/CLASS, unless they
    are the two sides of each class, PATH/CLASS/train and PATH/CLASS/test: then the images of both are the class.
    Where train and test lie further in, or PATH is the folder of one class, the folder that was meant is named.
    """
    root = Path(rest).expanduser()
    if not rest or not root.is_dir():
        said = f"'{rest}' is a file" if rest and root.is_file() else f"there is no folder '{rest}'"
        raise NotThere(f"{said}; give folder:PATH with a folder that has one folder a class")
    sides, aside = _sides(root)
    train, (classes, notes) = _of_sides(root, sides) if sides else (None, _classes(root))
    if not sides:
        _refuse_other_level(root, classes)
    if aside:
        has, it = ("has", "it is") if len(aside) == 1 else ("have", "they are")
        halved = f", and the {len(classes):,} classes of {sides[0]} are halved by name" if len(sides) == 1 else ""
        notes.append(f"{' and '.join(aside)} {has} no folder for each class: {it} left aside{halved}")
    index = make_index(own_name(root.resolve()), root, [path for paths in classes.values() for path in paths],
                       [name for name, paths in classes.items() for _ in paths], where=root, train=train)
    return replace(index, note="; ".join(notes))


Classes = dict[str, list[str]]
"""The images of each class."""


def _of_sides(root: Path, sides: list[str]) -> tuple[set[str] | None, tuple[Classes, list[str]]]:
    """The training classes where the sides tell them; all classes that are used, and what is to be known of them."""
    if _flat(root / sides[0]):
        raise UserError(f"{root / sides[0]} has images, but no folder for each class; {REMEDY}")
    seen = [(side, *_classes(root / side, side)) for side in sides]
    found = {side: classes for side, classes, _ in seen}
    told = {side: [f"{side}: {note}" for note in notes] for side, _, notes in seen}
    for side in sides[:2]:
        if not found[side]:
            raise UserError(f"{root / side} has no folder with images; put one folder a class there")
    if len(sides) == 1:
        return None, (found[sides[0]], told[sides[0]])
    first, second = (set(found[side]) for side in sides[:2])
    if not first & second:
        unused = [f"{side} is not used, only {sides[0]} and {sides[1]} are" for side in sides[2:]]
        return first, ({**found[sides[0]], **found[sides[1]]}, [*told[sides[0]], *told[sides[1]], *unused])
    if not (first <= second or second <= first):
        both = sorted(first & second)
        raise UserError(f"class '{both[0]}' lies in both {root / sides[0]} and {root / sides[1]} "
                        f"({counted(len(both), 'such class')}); the two sides need different classes: put all "
                        f"class folders in {root} itself and they are halved by name")
    # all sides, also val beside train and test
    classes = {name: [path for side in sides for path in found[side].get(name, ())]
               for name in sorted(set().union(*found.values()))}
    sizes = [sum(map(len, found[side].values())) for side in sides]
    split = known_split(sizes[0], sum(sizes[1:]))
    together = (f"{' and '.join(sides)} are {split}: all are put together, and the classes halved by name" if split else
                f"{' and '.join(sides)} have the same classes, as for classification: their images are put together, "
                f"and the {len(classes):,} classes are halved by name")
    return None, (classes, [together, *chain.from_iterable(told.values())])


def _sides(root: Path) -> tuple[list[str], list[str]]:
    """The folders of a given split, train first, and those beside them that have no class folders; none if not given.

    Train alone is a side where it holds several classes and the others hold images without any.
    """
    called = {name.lower(): name for name in subfolders(root)}
    train = [called[side] for side in TRAIN if side in called and subfolders(root / called[side])]
    held = [called[side] for side in HELD_OUT if side in called]
    if len(train) != 1 or not held:
        return [], []
    flat = [side for side in held if _flat(root / side)]
    full = [side for side in held if side not in flat and subfolders(root / side)]
    nested = [side for side in flat if subfolders(root / side)]
    if full or nested or (flat and _all_in_folders(root / train[0])):
        return [*train, *full], flat
    return [], []


def _flat(side: Path) -> bool:
    """Whether a folder has images but none for each class: they lie loose in it, or all in one called `images`."""
    # up to the first class: a walk through all of them takes seconds
    if any(images_under(side / name) for name in subfolders(side) if name.lower() not in PLAIN):
        return False
    within = [path for paths in class_folders(side).values() for path in paths]
    return all(path.count("/") == 1 for path in within) and bool(within or images_under(side))


def _all_in_folders(folder: Path) -> bool:
    """Whether a folder has several folders with images and no image beside them."""
    with_images = (name for name in subfolders(folder) if images_under(folder / name))
    return not _loose(folder) and len(list(islice(with_images, 2))) == 2


def _loose(folder: Path) -> bool:
    """Whether images lie in a folder itself, and not in one below it."""
    return any(path.suffix.lower() in SUFFIXES and path.name[0] != "." and path.is_file() for path in folder.iterdir())


def _refuse_other_level(root: Path, classes: Classes) -> None:
    """A UserError, with the folder that was probably meant, where PATH is one around it or one of its classes."""
    ways = {posixpath.dirname(path) for paths in classes.values() for path in paths}
    around = sorted({way[:found.start()] for way in ways for found in INNER_TRAIN.finditer(way)})
    split = [root / way for way in around if (sides := _sides(root / way)[0]) and not _flat(root / way / sides[0])]
    if split:
        more = f" (one of {len(split):,} such folders; union:folder:A,folder:B takes several)" if split[1:] else ""
        raise UserError(f"{root}: the folders of the training and the test side lie further in, in {split[0]}; give "
                        f"folder:{split[0]}{more}")
    if not classes and (loose := images_under(root)):
        raise UserError(f"{root}: {counted(len(loose), 'image')}, such as {loose[0]}, but no folder for each class"
                        f"{_meant(root, classes)}; {REMEDY}")
    if len(classes) == 1 and (meant := _meant(root, classes)):
        raise UserError(f"{root}: all images are of one class, '{next(iter(classes))}'{meant}; at least two are needed")


def _meant(root: Path, classes: Classes) -> str:
    """A hint at a folder with several classes: the one that was taken for a class, or the one around PATH."""
    with suppress(OSError):  # what lies around PATH is not ours to complain of
        outer = root.resolve().parent
        if outer.name.lower() in (*TRAIN, *HELD_OUT) and _sides(outer.parent)[0]:
            outer = outer.parent
        elif not _has_classes(outer):
            outer = root
        inner = next((root / name for name in classes if _has_classes(root / name)), outer)
        return f" (did you mean folder:{inner}?)" if inner != root else ""
    return ""


def _has_classes(folder: Path) -> bool:
    """Whether two folders in it, other than the sides of one class, have images or a folder called `images` with some.

    There is no walk through all that lies below: it may be somebody's home.
    """
    inside = (folder / name for name in subfolders(folder) if name.lower() not in (*TRAIN, *HELD_OUT))
    with_images = (one for one in inside if _loose(one) or any(_loose(one / name) for name in subfolders(one)
                                                              if name.lower() in PLAIN))
    return len(list(islice(with_images, 2))) == 2


def _classes(folder: Path, side: str = "") -> tuple[Classes, list[str]]:
    """The images of each class, and what was taken for a class where that is not plain."""
    prefix = f"{side}/" if side else ""
    tops = class_folders(folder)
    inner: Classes = {}
    for path in (path for paths in tops.values() for path in paths):
        inner.setdefault(posixpath.dirname(path), []).append(path)
    nested = [name for name in inner if "/" in name]
    around = {name: posixpath.split(LAST_PLAIN.sub("", name)) for name in inner}
    ends = sorted({end for _, end in around.values()})
    notes = []
    if len(nested) == len(inner) > len(tops) and all(
            name and end.lower() in (*TRAIN, *HELD_OUT) for name, end in around.values()):
        tops = {}
        for name, paths in inner.items():
            tops.setdefault(around[name][0], []).extend(paths)
        notes.append(f"a class is each of the {len(tops):,} folders around {' and '.join(ends)}, such as "
                     f"{next(iter(tops))}: the images of these are put together")
    elif len(nested) == len(inner) > len(tops):
        outer = (f"{len(tops):,} folders around them have no images of their own" if len(tops) > 1 else
                 "folder around them has no images of its own")
        notes.append(f"a class is each of the {len(inner):,} inner folders, such as {nested[0]}: the {outer}")
        tops = inner
    elif nested and len(nested) < len(inner):
        notes.append(f"a class is each of the {len(tops):,} outer folders, with all below it, such as {nested[0]}: "
                     "some of them have images of their own")
    return {name: [prefix + path for path in paths] for name, paths in tops.items()}, notes


def empty_classes(root: Path) -> list[str]:
    """Folders that should be classes but hold no image, each with what it holds instead."""
    folders = [f"{side}/{name}" for side in _sides(root)[0][:2] for name in subfolders(root / side)] or subfolders(root)
    return [f"{folder} ({' '.join(_endings(root / folder)) or 'empty'})" for folder in folders
            if not images_under(root / folder)]


def other_endings(root: Path) -> list[str]:
    """The endings of files in the class folders that are not read as images."""
    tops = _sides(root)[0][:2] or subfolders(root)
    return sorted({ending for top in tops for ending in _endings(root / top)})


def hidden_images(root: Path) -> list[str]:
    """Images in the class folders that are not read, as their names begin with a dot; a Mac's litter, `._`, is none."""
    tops = _sides(root)[0][:2] or subfolders(root)
    found = (Path(here, name) for top in tops for here, _, files in os.walk(root / top) for name in files
             if name.startswith(".") and not name.startswith("._"))
    return sorted(path.relative_to(root).as_posix() for path in found if path.suffix.lower() in SUFFIXES)


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
                                   (without class folders it is left aside, and the classes of train are halved)
or
PATH/GROUP/CLASS/*.jpg
or
PATH/CLASS/train/*.jpg             also train/images/: both sides are the class, and the classes are halved
PATH/CLASS/test/*.jpg""",
),)
