"""One rung as positions in a dataset: what is trained on, what is searched, what is held out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmark.datasets.index import DatasetIndex
from benchmark.utils.errors import UserError
from splits.manifest import Split


@dataclass(frozen=True)
class Side:
    """Images of some classes: their positions in the index and their labels, counted from 0 on this side."""

    ids: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]
    roles: np.ndarray | None = None
    domains: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def unmatched(self) -> str:
        """Why nothing can be measured on this side, no image found for another or none missed; '' where it can."""
        roles = np.full(len(self), "") if self.roles is None else self.roles
        both, queries, gallery = (np.bincount(self.labels[roles == role], minlength=len(self.classes))
                                  for role in ("", "query", "gallery"))
        if ((both > 1) | ((both > 0) & (gallery > 0)) | ((queries > 0) & (both + gallery > 0))).any():
            return one_class(self.classes)
        return ("every test image is a query, there is no gallery" if len(self) and (roles == "query").all() else
                "no test class has a second image to be found")

    @classmethod
    def of(cls, index: DatasetIndex, names: tuple[str, ...]) -> Side:
        """The images of these classes in index order; labels follow the order of `names`."""
        ids = index.of_classes(names)
        position = {name: i for i, name in enumerate(names)}
        renumber = np.array([position.get(name, -1) for name in index.classes], dtype=np.int64)
        return cls(ids, renumber[index.labels[ids]], names, None if index.roles is None else index.roles[ids],
                   None if index.domains is None else index.domains[ids])


def one_class(test: tuple[str, ...]) -> str:
    """Why a split with these test classes measures nothing; '' where it does.

    >>> one_class(("jay", "wren"))
    ''
    """
    if len(test) > 1:
        return ""
    return (f"the only test class is '{test[0]}'" if test else "there is no test class") + (
        ": whatever is found is of the right class and Recall@1 100 % for every network, so that at least two test "
        "classes are needed")


def learnt(split: Split, hold_out: bool) -> tuple[str, ...]:
    """The classes of a split that are trained on: with `hold_out` not those that choose the epoch."""
    held = set(split.validation) if hold_out else set()
    return tuple(name for name in split.train if name not in held)


@dataclass(frozen=True)
class Task:
    """What one run trains on and is measured on."""

    train: Side
    test: Side
    validation: Side | None
    domain_names: tuple[str, ...] = ()

    @classmethod
    def of(cls, index: DatasetIndex, split: Split, hold_out: bool = False) -> Task:
        """The sides of a split; with `hold_out` its validation classes are taken out of training."""
        unknown = (set(split.train) | set(split.test)) - set(index.classes)
        if unknown:
            raise UserError(f"split {split.id} names classes that {index.name} on disk lacks, such as "
                            f"'{min(unknown)}' ({len(unknown)} in all); `oodml splits verify` tells more")
        return cls(Side.of(index, learnt(split, hold_out)), Side.of(index, split.test),
                   Side.of(index, split.validation) if hold_out and split.validation else None, index.domain_names)
