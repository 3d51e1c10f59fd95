"""The table of `oodml datasets`: which datasets are there, and how far each is what it is known to be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmark import datasets
from benchmark.datasets import Counts, Dataset, DatasetIndex
from benchmark.datasets.reading import NotThere, Unreadable
from benchmark.datasets.union import unite_indexes
from benchmark.overview.counts import count
from benchmark.utils.errors import UserError

HEAD = ("name", "state", "images", "classes", "train / test images", "counts", "what and where")


def rows(data: Path) -> Iterator[tuple[str, ...]]:
    """The table, a dataset a row; those of one's own, which any folder may be, are not in it."""
    loaded: dict[str, DatasetIndex] = {}
    yield HEAD
    for name in datasets.names():
        if not name.endswith(":"):
            yield _row(datasets.get(name), data, loaded)


def _row(dataset: Dataset, data: Path, loaded: dict[str, DatasetIndex]) -> tuple[str, ...]:
    name, title = dataset.name, dataset.title
    if dataset.embedded and dataset.counts is not None:  # choosing among a thousand drawings would take seconds
        return name, "embedded", *_sizes(dataset.counts), "", title
    try:
        if dataset.members and all(member in loaded for member in dataset.members):
            index = unite_indexes(dataset.name, [loaded[member] for member in dataset.members])
        elif dataset.members:
            lacking = [member for member in dataset.members if member not in loaded]
            return name, "absent", "", "", "", "", f"{title}; lacking: {', '.join(lacking)}"
        else:
            index = datasets.load(dataset.name, data)
    except NotThere:
        return name, "absent", "", "", "", "", f"{title}; looked for {', '.join(dataset.folders)}"
    except Unreadable as error:
        return name, "unreadable", "", "", "", "", str(error)
    except UserError as error:
        return name, "broken", "", "", "", "", str(error)
    loaded[name] = index
    counts = count(index)
    same = counts == dataset.counts if dataset.counts else (len(index), len(index.classes)) == dataset.size
    official = "" if not (dataset.counts or dataset.size) else "official" if same else "not official"
    where = "" if index.root is None else f"; {index.root}"
    state = "present" if datasets.has_images(index) else "no images"
    return name, state, *_sizes(counts), official, f"{title}{where}"


def _sizes(counts: Counts) -> tuple[str, str, str]:
    return (f"{counts.train_images + counts.test_images:,}", f"{counts.train_classes + counts.test_classes:,}",
            f"{counts.train_images:,} / {counts.test_images:,}")
