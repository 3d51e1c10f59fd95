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
from benchmark.errors import UserError


@dataclass(frozen=True)
class Members:
    """The indexes of a union in order; opens image i of the union from the member it belongs to."""

    indexes: tuple[DatasetIndex, ...]

    def __call__(self, i: int) -> Image.Image:
        starts = np.cumsum([0, *(len(index) for index in self.indexes)])
        member = int(np.searchsorted(starts, i, side="right")) - 1
        return self.indexes[member].open(i - int(starts[member]))


def unite_indexes(name: str, indexes: Sequence[DatasetIndex]) -> DatasetIndex:
    """One index of several: images, classes and split sides one after another, each marked with its dataset."""
    members = [index.name for index in indexes]
    if len(members) < 2 or len(set(members)) < len(members):
        raise UserError(f"a union needs at least two different datasets, not {', '.join(members) or 'none'}; "
                        "name each once, as in union:cub,cars")
    starts = np.cumsum([0, *(len(index.classes) for index in indexes)])
    roles = [index.roles if index.roles is not None else np.full(len(index), "") for index in indexes]

    def prefixed(part: str) -> tuple[str, ...]:
        return tuple(f"{index.name}/{text}" for index in indexes for text in getattr(index, part))

    return DatasetIndex(
        name=name, paths=prefixed("paths"), classes=prefixed("classes"),
        labels=np.concatenate([index.labels + start for index, start in zip(indexes, starts)]),
        train_classes=prefixed("train_classes"), test_classes=prefixed("test_classes"),
        roles=np.concatenate(roles) if any(index.roles is not None for index in indexes) else None,
        domains=np.repeat(np.arange(len(indexes)), [len(index) for index in indexes]),
        domain_names=tuple(members), opener=Members(tuple(indexes)))


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
    names = [name.strip() for name in rest.split(",") if name.strip()]
    nested = next((name for name in names if get(name).members or get(name).name == "union:"), None)
    if nested is not None:
        raise UserError(f"'{nested}' is itself a union; name its members instead")
    indexes = _members(f"union:{rest}", names, data)
    return unite_indexes("-".join(["union", *(index.name for index in indexes)]), indexes)


def _named(name: str, datasets: Sequence[Dataset], note: str) -> Dataset:
    sizes = zip(*(astuple(dataset.counts) for dataset in datasets if dataset.counts is not None))
    names = tuple(dataset.name for dataset in datasets)
    return Dataset(
        name=name, title=f"Union of {', '.join(names)}", read=partial(read_named, name, names), members=names,
        counts=Counts(*map(sum, sizes)), protocol="uml",
        source=f"The union of {', '.join(names)}, each from its own archive (`oodml datasets show {names[0]}`). {note}",
        tree=f"DATA/ holds the folders of {', '.join(names)}")


FOUR = (*cub.DATASETS, *cars.DATASETS, *sop.DATASETS, *inshop.DATASETS)
EIGHT = (*FOUR, *nabirds.DATASETS, *dogs.DATASETS, *flowers.DATASETS, *aircraft.DATASETS)

DATASETS = (
    _named("uml", EIGHT, "The paper prints 148,595 test images, 28,760 of them for In-Shop, whose partition file has "
                         "14,218 queries and 12,612 gallery images: 146,665 in all."),
    _named("uml-4", FOUR, "The four datasets that are mostly used alone."),
    Dataset(
        name="union:",
        title="union:NAME,NAME,..., any datasets as one",
        read=read,
        source="The datasets that are named.",
        tree="what each of the named datasets needs",
        protocol="uml"),
)
