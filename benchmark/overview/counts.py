"""How many images and classes a dataset has, in numbers and in words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmark.datasets import Counts, DatasetIndex
from reports.wording import counted


def count(index: DatasetIndex) -> Counts:
    """The size of the default split."""
    train = len(index.of_classes(index.train_classes))
    test = len(index.of_classes(index.test_classes))
    return Counts(train, len(index.train_classes), test, len(index.test_classes))


def describe(counts: Counts) -> str:
    """The size of a split in words."""
    return (f"{counted(counts.train_images, 'image')} of {counted(counts.train_classes, 'class')} to train on, "
            f"{counts.test_images:,} of {counts.test_classes:,} to test on")


def single_classes(index: DatasetIndex) -> list[str]:
    """Classes that have one image only."""
    return [index.classes[c] for c in np.flatnonzero(np.bincount(index.labels, minlength=len(index.classes)) == 1)]


def facts(index: DatasetIndex) -> Iterator[str]:
    """What was found of a dataset, as lines."""
    if index.root is not None:
        yield f"found in: {index.root}"
    yield f"found: {describe(count(index))}"
    sizes = np.bincount(index.labels, minlength=len(index.classes))
    yield f"images a class: {sizes.min()} to {sizes.max()}, median {np.median(sizes):g}"
    if index.roles is not None:
        queries, gallery = ((index.roles == role).sum() for role in ("query", "gallery"))
        yield f"roles: {counted(int(queries), 'query')}, {gallery:,} gallery"
    if index.domains is not None:
        shares = np.bincount(index.domains, minlength=len(index.domain_names))
        yield "domains: " + ", ".join(f"{name} {share:,}" for name, share in zip(index.domain_names, shares))
    alone = single_classes(index)
    if alone:
        yield (f"classes of one image: {len(alone):,}, the first '{alone[0]}'; such an image has nothing to be matched "
               "with and is left out of the scores")
    if index.note:
        yield f"note: {index.note}"
    yield f"index hash: {index.hash}"
