"""The datasets: one file each. A file that defines `DATASETS` is found by itself."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from benchmark.datasets.index import DatasetIndex
from benchmark.datasets.reading import Unreadable
from benchmark.utils.errors import UserError, near

__all__ = ["Counts", "Dataset", "DatasetIndex", "built_of", "get", "has_images", "known_split", "load", "located",
           "meant", "names", "present", "resolved", "source"]


@dataclass(frozen=True)
class Counts:
    """The size of a default split: images and classes of its two sides."""

    train_images: int
    train_classes: int
    test_images: int
    test_classes: int


@dataclass(frozen=True)
class Dataset:
    """One dataset: what it is, where it comes from, what its folder looks like and how that is read.

    `read(data)` gets the data folder (`--data`), finds its own folder in it and raises `UserError` if it is not
    there. A dataset whose name ends in ':' is a family (`folder:PATH`): `read(data, rest)` gets what follows the
    colon as well.
    """

    name: str
    title: str
    read: Callable[[Path], DatasetIndex] | Callable[[Path, str], DatasetIndex]
    source: str = ""
    tree: str = ""
    counts: Counts | None = None
    """The official size of its default split."""
    size: tuple[int, int] | None = None
    """The official numbers of images and classes, where those of the two sides are printed nowhere."""
    classification: tuple[int, int] | None = None
    """Images to train and to test on of its split for classification, which has the same classes on both sides."""
    embedded: bool = False
    """Whether it comes with the suite, drawn and not read: small images, for which a small network is used."""
    protocol: str = "oodml"
    """The protocol that `oodml run` uses where none is named."""
    folders: tuple[str, ...] = ()
    """The names its folder may have in the data folder."""
    members: tuple[str, ...] = ()
    """The datasets that a union is made of."""
    ladder: bool = True
    """Whether splits of rising difficulty make sense for it; without, it has its default split alone."""


@cache
def _all() -> dict[str, Dataset]:
    known: dict[str, Dataset] = {}
    for module in pkgutil.iter_modules(__path__):
        for dataset in getattr(importlib.import_module(f"{__name__}.{module.name}"), "DATASETS", ()):
            known[dataset.name] = dataset
    return known


def names() -> list[str]:
    """All dataset names, families such as `folder:` last."""
    return sorted(_all(), key=lambda n: (n.endswith(":"), n))


def get(name: str) -> Dataset:
    """The dataset of this name; `folder:PATH` and the like give the family."""
    head, colon, _ = name.partition(":")
    if head + colon in _all():
        return _all()[head + colon]
    meant = f"; images in the folder {name} are folder:{name}" if os.path.isdir(name) else near(name, _all())
    raise UserError(f"unknown dataset '{name}'{meant}; `oodml datasets` lists all, folder:PATH takes your own")


def load(name: str, data: Path) -> DatasetIndex:
    """The index of a dataset, read from the data folder."""
    dataset = get(name)
    rest = (name.partition(":")[2],) if dataset.name.endswith(":") else ()
    try:
        index = dataset.read(data, *rest)  # type: ignore[call-arg]
    except OSError as error:
        raise Unreadable(f"cannot read {error.filename or data}: {error.strerror or error}; see to its permissions and "
                         "its disk") from None
    return replace(index, reference=name) if rest else index


def built_of(command: str) -> str:
    """The dataset that a command which built a ladder names; '' where it names none.

    >>> built_of("oodml splits build --dataset folder:/my/birds --default-only"), built_of("it's")
    ('folder:/my/birds', '')
    """
    try:
        words = shlex.split(command)
        return words[words.index("--dataset") + 1]
    except (ValueError, IndexError):  # typed by hand, or damaged
        return ""


def source(name: str, splits: Path) -> str:
    """A dataset as it is read: one's own may be called by the name that it has in every output.

    The command that built its ladder, in the folder `splits`, says where its images lie. A built-in name never means
    another dataset, whatever a manifest there says.
    """
    manifest = splits / f"{name}.json"
    if not re.fullmatch(r"[\w-]+", name) or name in _all() or not manifest.is_file():
        return name
    try:
        facts = json.loads(manifest.read_bytes())
        found = built_of(facts["made"]["command"])
        return found if facts["dataset"] == name and get(found).name.endswith(":") else name
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, UserError):
        return name


def located(name: str) -> str:
    """A dataset of one's own by its whole path, so that it is found from every folder; another name as it is.

    >>> located("cub"), located("union:cub, dogs")
    ('cub', 'union:cub,dogs')
    """
    kind, path, columns = _parts(name)
    if kind == "union":
        return f"union:{','.join(located(member.strip()) for member in path.split(',') if member.strip())}"
    there = Path(path).expanduser() if path.startswith("~") else Path(path)
    return f"{kind}:{there.absolute()}{'@' * bool(columns)}{columns}" if path and there.exists() else name


def resolved(name: str, splits: Path) -> str:
    """The name under which a run knows a dataset, however it was typed: `source` in the folder `splits`, by its path.

    >>> resolved("cub", Path("work/splits"))
    'cub'
    """
    return located(source(name, splits))


def meant(name: str, splits: Path) -> str:
    """What a name stands for, to be compared with what another does: `resolved`, with dots and links followed.

    Only to compare: a path without its links may not be there on another machine of a cluster.

    >>> meant("union:cub, dogs", Path("work/splits")), meant("folder:/tmp/../tmp/", Path("work/splits"))
    ('union:cub,dogs', 'folder:/tmp')
    """
    kind, path, columns = _parts(resolved(name, splits))
    if kind == "union":
        return f"union:{','.join(meant(member, splits) for member in path.split(','))}"
    if not path:
        return kind
    folder, file = os.path.split(path)
    # `folder:` is named after what a link leads to, the others after the link
    real = os.path.realpath(path) if kind == "folder" else os.path.join(os.path.realpath(folder), file)
    return f"{kind}:{real}@{'+'.join(sorted(columns.split('+')))}" if columns else f"{kind}:{real}"


def _parts(name: str) -> tuple[str, str, str]:
    """The family of a dataset, its path or members and the columns that are read; a name alone where it has none."""
    kind, _, rest = name.partition(":")
    if kind not in ("parquet", "wds"):
        return kind, rest, ""
    from benchmark.datasets import shards  # it imports this file

    return kind, *shards.split_columns(rest)


def known_split(train: int, test: int) -> str:
    """The official split that has so many images on its two sides, in words; '' where none is known.

    >>> known_split(5994, 5794)
    'the classification split of cub, with the same classes on both sides; metric learning has 5,864 and 5,924 images'
    >>> known_split(8054, 8131)
    'the metric-learning split of cars'
    """
    for dataset in _all().values():
        official = dataset.counts and (dataset.counts.train_images, dataset.counts.test_images)
        if official == (train, test):
            return f"the metric-learning split of {dataset.name}"
        if dataset.classification == (train, test):
            use = "; metric learning has {:,} and {:,} images".format(*official) if official else ""
            return f"the classification split of {dataset.name}, with the same classes on both sides{use}"
    return ""


def has_images(index: DatasetIndex) -> bool:
    """Whether the first image, in a union the first of each member, is there and not its line in a list alone."""
    numbers = [0] if index.domains is None else np.unique(index.domains, return_index=True)[1].tolist()
    for i in numbers:
        try:
            index.open(i).close()
        except FileNotFoundError:
            return False
        except OSError:  # there, whatever ails it
            continue
    return True


def present(name: str, data: Path) -> bool:
    """Whether a dataset can be read from the data folder and its images lie beside its lists."""
    try:
        return has_images(load(name, data))
    except UserError:
        return False
