"""Unions of datasets, as universal metric learning uses them: trained as one, searched as one gallery.

A class of a union is (dataset, class), written DATASET/CLASS: classes of two datasets are never one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from benchmark.datasets import (
    Counts,
    Dataset,
    DatasetIndex,
    aircraft,
    cars,
    cub,
    dogs,
    flowers,
    get,
    inshop,
    load,
    nabirds,
    sop,
)
from benchmark.datasets.reading import NotThere
from benchmark.utils.errors import UserError
from splits.union import EIGHT, STANDARD_FOUR, Member, unite


@dataclass(frozen=True)
class Members:
    """The indexes of a union in order; opens image i of the union from the member it belongs to."""

    indexes: tuple[DatasetIndex, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """The files of all members."""
        return tuple(file for index in self.indexes for file in index.files)

    def locate(self, i: int) -> tuple[DatasetIndex, int]:
        """The member that image i of the union belongs to, and its position there."""
        starts = np.cumsum([0, *(len(index) for index in self.indexes)])
        member = int(np.searchsorted(starts, i, side="right")) - 1
        return self.indexes[member], i - int(starts[member])

    def __call__(self, i: int) -> Image.Image:
        index, inner = self.locate(i)
        return index.open(inner)


def members(index: DatasetIndex) -> tuple[DatasetIndex, ...]:
    """The datasets that a union is made of; none of another dataset."""
    return index.opener.indexes if isinstance(index.opener, Members) else ()


def unite_indexes(name: str, indexes: Sequence[DatasetIndex]) -> DatasetIndex:
    """One index of several: images, classes and split sides one after another, each marked with its dataset."""
    united = unite([Member(i.name, i.classes, i.labels, i.train_classes, i.test_classes, i.roles) for i in indexes])
    return DatasetIndex(
        name=name, paths=tuple(f"{index.name}/{path}" for index in indexes for path in index.paths),
        classes=united.classes, labels=united.labels, train_classes=united.train_classes,
        test_classes=united.test_classes, roles=united.roles, domains=united.domains,
        domain_names=united.domain_names, opener=Members(tuple(indexes)))


def _members(union: str, names: Sequence[str], data: Path) -> list[DatasetIndex]:
    indexes = []
    for name in names:
        try:
            indexes.append(load(name, data))
        except NotThere as error:
            raise NotThere(f"{union} needs '{name}': {error}") from None
    return indexes


def read_named(union: str, names: Sequence[str], data: Path) -> DatasetIndex:
    """A union that has a name of its own."""
    return unite_indexes(union, _members(union, names, data))


def read(data: Path, rest: str) -> DatasetIndex:
    """The union of the datasets whose names follow the colon, with commas between them."""
    from reports.storage.paths import short

    names = [name.strip() for name in rest.split(",") if name.strip()]
    nested = next((name for name in names if get(name).members or get(name).name == "union:"), None)
    if nested is not None:
        raise UserError(f"'{nested}' is itself a union; name its members instead")
    indexes = _members(f"union:{rest}", names, data)
    # of eight datasets with names of a few words the file's name would be longer than file systems take
    return unite_indexes(short("-".join(["union", *(index.name for index in indexes)])), indexes)


def _named(name: str, names: tuple[str, ...], note: str) -> Dataset:
    sizes = zip(*(astuple(counts) for counts in (_SINGLE[member].counts for member in names) if counts is not None))
    return Dataset(
        name=name, title=f"Union of {', '.join(names)}", read=partial(read_named, name, names), members=names,
        counts=Counts(*map(sum, sizes)), protocol="uml",
        source=f"The union of {', '.join(names)}, each from its own archive (`oodml datasets show {names[0]}`). {note}",
        tree=f"DATA/ holds the folders of {', '.join(names)}")


_SINGLE = {dataset.name: dataset for module in (aircraft, cars, cub, dogs, flowers, inshop, nabirds, sop)
           for dataset in module.DATASETS}

DATASETS = (
    _named("uml", EIGHT, "The paper prints 148,595 test images, 28,760 of them for In-Shop, whose partition file has "
                         "14,218 queries and 12,612 gallery images: 146,665 in all."),
    _named("uml-4", STANDARD_FOUR, "The four datasets that are mostly used alone."),
    Dataset(
        name="union:",
        title="union:NAME,NAME,..., any datasets as one",
        read=read,
        source="The datasets that are named.",
        tree="what each of the named datasets needs",
        protocol="uml"),
)
