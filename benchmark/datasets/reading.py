"""What the readers share: finding a dataset's folder, reading its lists, refusing bad paths, ordering the index.

The order of every index is the same: classes by their official number, or by the code points of their name where
they have none; images by class, then by the code points of their path. Neither the file system's order nor the
locale has a say, nor does the order of lines in an annotation file.
"""

from __future__ import annotations

import codecs
import os
import posixpath
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from benchmark.datasets import archives, matlab
from benchmark.datasets.index import DatasetIndex
from benchmark.utils.encodings import refuse_other
from benchmark.utils.errors import UserError

Key = TypeVar("Key", int, str)

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"})
LITTER = ("__MACOSX", "lost+found", "System Volume Information", "$RECYCLE.BIN", "@eaDir")
"""Folders that an archiver or a file system leaves beside those of the user."""


class NotThere(UserError):
    """The dataset lies nowhere in the data folder (as against: it is there, but broken)."""


class Unreadable(UserError):
    """The dataset lies there, but the system does not let us read it."""


def tree_hint(name: str) -> str:
    return f"`oodml datasets show {name}` prints the tree it should have"


def find(name: str, data: Path, folders: Sequence[str], marks: Sequence[str]) -> Path:
    """The folder of a dataset: DATA/FOLDER, DATA/FOLDER/FOLDER or DATA itself, whichever holds one of the marks.

    Folder names are compared without regard to case and tried in the order given. DATA itself counts only if it
    bears one of the names, since several datasets have files of the same name.
    """
    wanted = [folder.lower() for folder in folders]
    tops = _subfolders(data, wanted) + ([data] if data.resolve().name.lower() in wanted else [])
    for top in tops:
        for root in (top, *_subfolders(top, wanted)):
            if any((root / mark).exists() for mark in marks):
                return root
    if tops:
        raise UserError(f"{tops[0]} has none of {', '.join(marks)}; {tree_hint(name)}")
    if archive := archives.of_folder(data, wanted):
        raise NotThere(f"dataset '{name}' is not in {data}, but {archive.name} is: unpack it there, "
                       f"`{archives.unpacking(archive)}`")
    raise NotThere(f"dataset '{name}' is not in {data} (looked for {', '.join(folders)}); give the folder with "
                   f"--data DIR (in Python data=DIR); `oodml datasets show {name}` says where it comes from")


def _subfolders(folder: Path, wanted: Sequence[str]) -> list[Path]:
    if not folder.is_dir():
        return []
    there = {path.name.lower(): path for path in sorted(folder.iterdir(), reverse=True) if path.is_dir()}
    return [there[name] for name in wanted if name in there]


def existing(name: str, root: Path, candidates: Sequence[str]) -> Path:
    """The first of the candidates that exists under `root`."""
    for candidate in candidates:
        if (root / candidate).exists():
            return root / candidate
    raise UserError(f"{root / candidates[0]} is missing; {tree_hint(name)}")


def image_folder(root: Path, candidates: Sequence[str]) -> Path:
    """The first of the folders that exists, else the first: lists can be read before the images are unpacked."""
    return next((root / c for c in candidates if (root / c).is_dir()), root / candidates[0])


def text(path: Path, name: str) -> str:
    """A text file as UTF-8, as UTF-16 where it begins with that one's mark (spreadsheets), or else as Latin-1."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is no plain file; {tree_hint(name)}")
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path} is missing; {tree_hint(name)}") from None
    wide = content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    try:
        return content.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def rows(path: Path, fields: int, name: str) -> list[list[str]]:
    """The lines of a list as exactly `fields` fields each; the last field keeps its inner spaces."""
    entries = []
    for number, line in enumerate(text(path, name).replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        parts = line.strip().split(None, fields - 1)
        if not parts:
            continue
        if len(parts) < fields:
            raise UserError(f"{path}, line {number}: expected {fields} fields, found '{line.strip()}'; "
                            f"the file is damaged, unpack it again ({tree_hint(name)})")
        entries.append(parts)
    if not entries:
        raise UserError(f"{path} lists nothing; the file is damaged, unpack it again ({tree_hint(name)})")
    return entries


def numbers(values: Sequence[str], path: Path) -> list[int]:
    """A column of class numbers."""
    try:
        return [int(value) for value in values]
    except ValueError as error:
        bad = str(error).rpartition(": ")[2]
        raise UserError(f"{path}: {bad} is no class number; the file is damaged, unpack it again") from None


def class_numbers(values: Sequence[Any], path: Path) -> list[int]:
    """A column of class numbers as MATLAB keeps it, in floating point or not."""
    try:
        labels = [int(np.asarray(value).item()) for value in values]
        if all(label == value for label, value in zip(labels, values)):
            return labels
    except (ValueError, TypeError, OverflowError):  # NaN, infinity, text or several numbers in a cell
        pass
    raise UserError(f"{path}: not every label is a class number; the file is damaged, unpack it again")


def mat(path: Path, *wanted: str, name: str) -> list[Any]:
    """Variables of a MATLAB file, singleton dimensions squeezed out."""
    try:
        content = matlab.load(path, set(wanted))
    except FileNotFoundError:
        raise UserError(f"{path} is missing; {tree_hint(name)}") from None
    except ValueError as error:
        raise UserError(f"{path} cannot be read as a MATLAB file ({error}); unpack it again") from None
    absent = [variable for variable in wanted if variable not in content]
    if absent:
        raise UserError(f"{path} has no variable '{absent[0]}'; it is not the official file ({tree_hint(name)})")
    return [np.atleast_1d(content[variable]) for variable in wanted]


def images_under(folder: Path, onerror: Callable[[OSError], object] | None = None) -> list[str]:
    """Paths of all images below a folder, sorted; see `files_under`."""
    return sorted(path for path in files_under(folder, onerror) if os.path.splitext(path)[1].lower() in SUFFIXES)


def files_under(folder: Path, onerror: Callable[[OSError], object] | None = None) -> Iterator[str]:
    """Paths of all files below a folder; hidden files and macOS `._` litter do not count.

    Links to folders are followed. Folders that cannot be read are passed over, unless `onerror` raises.
    """
    for here, folders, files in os.walk(folder, onerror=onerror, followlinks=True):
        folders[:] = [f for f in folders if not f.startswith(".") and f != "__MACOSX" and not _leads_back(here, f)]
        inner = Path(here).relative_to(folder).as_posix()
        yield from (f if inner == "." else f"{inner}/{f}" for f in files if not f.startswith("."))


def _leads_back(here: str, name: str) -> bool:
    """Whether a folder is a link to one that the walk to it came through, or lies in, and would not end."""
    path = Path(here, name)
    return path.is_symlink() and any(way.resolve().is_relative_to(path.resolve()) for way in path.parents)


def class_folders(folder: Path) -> dict[str, list[str]]:
    """The images of each direct subfolder that has any, paths relative to `folder`."""
    classes: dict[str, list[str]] = {}
    for inner in subfolders(folder):
        # A class that cannot be read must not vanish: the dataset would be another one.
        images = [f"{inner}/{path}" for path in images_under(folder / inner, onerror=_raise)]
        if images:
            classes[inner] = images
    return classes


def subfolders(folder: Path) -> list[str]:
    """The names of its direct subfolders, sorted, but for hidden ones and those that systems make by themselves."""
    return sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith((".", *LITTER)))


def _raise(error: OSError) -> None:
    raise error


def safe(path: str, where: object) -> str:
    """The path in its plain form, refused if it leaves the dataset's folder.

    >>> safe("./birds//1.jpg", "list.csv")
    'birds/1.jpg'
    """
    if "//" in path or "./" in path or path.endswith("/."):
        if ".." in path.split("/"):
            raise UserError(f"{where} names '{path}', outside the dataset's folder; only paths below it are read")
        path = "/" * path.startswith("/") + posixpath.normpath(path).lstrip("/")
    if "\0" in path:
        raise UserError(f"{where} names {path!r}, which no file can be called; correct the list")
    if not path or path[0] == "/" or "\\" in path or path[1:2] == ":" or path == ".." or path.endswith("/.."):
        raise UserError(f"{where} names '{path}'; paths must be relative to the dataset's folder, with forward "
                        "slashes, and stay inside it")
    return path


def first_half(classes: Sequence[Key]) -> Sequence[Key]:
    """The default training classes: the first half in order, the larger half where they are odd (NABirds: 278 of 555).

    >>> first_half(["a", "b", "c"])
    ['a', 'b']
    """
    return classes[: (len(classes) + 1) // 2]


def make_index(name: str, root: Path, paths: Sequence[str], keys: Sequence[Key], *, where: object,
               class_names: Mapping[Key, str] | None = None, train: Collection[Key] | None = None,
               roles: Sequence[str] | None = None, domains: Sequence[str] | None = None,
               as_given: bool = False) -> DatasetIndex:
    """The index of a dataset from one path and one class key (number or name) an image.

    `where` is what an error points to. `train` are the keys of the training classes, the first half if not given. With
    `as_given` images stay in the order in which they are given, which is that of their files.
    """
    order = sorted(set(keys))
    if len(order) < 2:
        content = f"only the class '{order[0]}'" if order else "no images"
        raise UserError(f"{where}: {content}; a dataset needs at least two classes, one to train on and one to test on")
    position = {key: i for i, key in enumerate(order)}
    labels = [position[key] for key in keys]
    plain = [safe(path, where) for path in paths]
    by = list(range(len(plain)))
    if not as_given:
        by.sort(key=lambda i: (labels[i], plain[i]))
    if len(set(plain)) < len(plain):
        twice = Counter(plain).most_common(1)[0][0]
        raise UserError(f"{where} names '{twice}' twice; an image has one line and one class")
    for text in (name, *paths, *dict.fromkeys(map(str, keys)), *(class_names or {}).values()):
        refuse_other(text, f"{where}: the name '{text[:200]}'",
                     "; rename it, as in `convmv -f latin1 -t utf8 -r --notest FOLDER`")
    learnt = set(first_half(order) if train is None else train)
    called = _distinct(order, class_names or {})
    names = tuple(called[key] for key in order)
    domain_names = tuple(sorted(set(domains))) if domains else ()
    return DatasetIndex(
        name=name, root=root, paths=tuple(plain[i] for i in by), classes=names,
        labels=np.array([labels[i] for i in by], dtype=np.int64),
        train_classes=tuple(called[key] for key in order if key in learnt),
        test_classes=tuple(called[key] for key in order if key not in learnt),
        roles=np.array([roles[i] for i in by]) if roles else None,
        domains=np.array([domain_names.index(domains[i]) for i in by], dtype=np.int64) if domains else None,
        domain_names=domain_names)


def _distinct(order: Sequence[Key], class_names: Mapping[Key, str]) -> dict[Key, str]:
    """The name of each class; where several share one, their number is added."""
    plain = {key: class_names.get(key, str(key)) for key in order}
    shared = Counter(plain.values())
    return {key: f"{plain[key]} #{key}" if shared[plain[key]] > 1 else plain[key] for key in order}


def _by_number(path: Path, name: str) -> dict[str, str]:
    """What each line of a list says of the number that it begins with; a UserError where two say different things."""
    found: dict[str, str] = {}
    for number, said in rows(path, 2, name):
        if found.setdefault(number, said) != said:
            raise UserError(f"{path} has two lines for {number}, '{found[number]}' and '{said}'; the file is damaged, "
                            "unpack it again")
    return found


def read_numbered_lists(name: str, root: Path, images: Path) -> DatasetIndex:
    """CUB's three lists, which NABirds has too: images.txt, image_class_labels.txt and classes.txt."""
    files, marks, listed = (_by_number(root / f"{of}.txt", name) for of in ("images", "image_class_labels", "classes"))
    unmarked = next((image for image in files if image not in marks), None)
    if unmarked is not None:
        raise UserError(f"{root / 'image_class_labels.txt'} has no line for image {unmarked} of images.txt; "
                        "the lists do not belong together, unpack the archive again")
    keys = numbers([marks[image] for image in files], root / "image_class_labels.txt")
    class_names = dict(zip(numbers(list(listed), root / "classes.txt"), listed.values()))
    unnamed = set(keys) - set(class_names)
    if unnamed:
        raise UserError(f"{root / 'classes.txt'} has no line for class {min(unnamed)} of image_class_labels.txt; "
                        "the lists do not belong together, unpack the archive again")
    return make_index(name, images, list(files.values()), keys, where=root / "images.txt", class_names=class_names)
