"""The universal union of datasets (UML): one set of classes over several datasets, none equal to another's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from splits import SplitError
from splits.manifest import Ladder, Split, check, validation_part

EIGHT = ("cub", "cars", "sop", "inshop", "nabirds", "dogs", "flowers", "aircraft")
STANDARD_FOUR = EIGHT[:4]


@dataclass(frozen=True)
class Member:
    """What a union must know of a dataset: classes, label of each image, default split, query and gallery if any."""

    name: str
    classes: tuple[str, ...]
    labels: np.ndarray
    train_classes: tuple[str, ...]
    test_classes: tuple[str, ...]
    roles: np.ndarray | None = None


@dataclass(frozen=True)
class Union:
    """The images of all members, one member after the other, under classes 'dataset/class'."""

    domain_names: tuple[str, ...]
    classes: tuple[str, ...]
    labels: np.ndarray
    domains: np.ndarray
    """Position of each image's dataset in `domain_names`."""
    train_classes: tuple[str, ...]
    test_classes: tuple[str, ...]
    roles: np.ndarray | None

    def images(self, classes: Sequence[str]) -> int:
        wanted = set(classes)
        return int(np.isin(self.labels, [i for i, name in enumerate(self.classes) if name in wanted]).sum())


def unite(members: Sequence[Member]) -> Union:
    """All images of several datasets as one dataset, with their default splits united.

    A class of the union is the pair (dataset, class): equal class names of two datasets stay two classes. Any choice of
    members is a union, such as the `STANDARD_FOUR`. Roles are kept; a member without any has '' (both).

    >>> a = Member("a", ("x", "y"), np.array([0, 1, 1]), ("x",), ("y",))
    >>> b = Member("b", ("x", "y"), np.array([1, 0]), ("x",), ("y",), np.array(["gallery", ""]))
    >>> united = unite([a, b])
    >>> united.classes, united.labels.tolist(), united.domains.tolist()
    (('a/x', 'a/y', 'b/x', 'b/y'), [0, 1, 1, 3, 2], [0, 0, 0, 1, 1])
    >>> united.test_classes, united.roles.tolist()
    (('a/y', 'b/y'), ['', '', '', 'gallery', ''])
    """
    names = tuple(member.name for member in members)
    if not names:
        raise SplitError("a union needs at least one dataset")
    if len(set(names)) < len(names):
        raise SplitError(f"a dataset stands twice in the union {', '.join(names)}")
    for member in members:
        _check(member)
    offsets = np.cumsum([0, *(len(member.classes) for member in members)])
    roles = None
    if any(member.roles is not None for member in members):
        roles = np.concatenate([np.full(len(m.labels), "") if m.roles is None else m.roles for m in members])
    return Union(names, _joined(members, "classes"),
                 np.concatenate([m.labels + o for m, o in zip(members, offsets)]).astype(np.int64),
                 np.repeat(np.arange(len(names)), [len(m.labels) for m in members]),
                 _joined(members, "train_classes"), _joined(members, "test_classes"), roles)


def union_split(united: Union, *, dataset: str = "", dataset_hash: str = "", seed: int = 0) -> Ladder:
    """The united default splits as a ladder of one rung; a quarter of each dataset's train classes validates.

    It has no distance: the united sides are measured dataset by dataset.
    """
    validation = tuple(name for domain in united.domain_names for name in validation_part(
        [c for c in united.train_classes if c.startswith(f"{domain}/")], seed))
    split = Split(id=1, kind="union", iteration=0, train=united.train_classes, test=united.test_classes,
                  validation=validation, train_images=united.images(united.train_classes),
                  test_images=united.images(united.test_classes), frd=None, frd_class_means_released=None)
    return check(Ladder(dataset, dataset_hash, {}, {"members": list(united.domain_names), "seed": seed}, (split,)))


def _joined(members: Sequence[Member], part: str) -> tuple[str, ...]:
    return tuple(f"{member.name}/{name}" for member in members for name in getattr(member, part))


def _check(member: Member) -> None:
    # Without a slash in the dataset's name, 'dataset/class' can be read in one way only.
    if not member.name or "/" in member.name:
        raise SplitError(f"a dataset in a union needs a name without '/', got '{member.name}'")
    both = sorted(set(member.train_classes) & set(member.test_classes))
    if both:
        raise SplitError(f"{member.name}: class '{both[0]}' is in train and in test")
    unknown = sorted({*member.train_classes, *member.test_classes} - set(member.classes))
    if unknown:
        raise SplitError(f"{member.name}: class '{unknown[0]}' of the default split is not among its classes")
    if len(set(member.classes)) < len(member.classes):
        raise SplitError(f"{member.name}: a class name stands twice")
    labels = member.labels
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(member.classes):
        raise SplitError(f"{member.name}: labels must be positions in its list of {len(member.classes)} classes")
    if member.roles is not None and len(member.roles) != len(labels):
        raise SplitError(f"{member.name}: {len(member.roles)} roles for {len(labels)} images")
