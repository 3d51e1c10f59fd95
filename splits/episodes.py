"""Few-shot parts of a split: support and query of test classes (ooDML), and k images per training class (UML).

Support images are those of the released episodes where the ladder was imported with them, else drawn by a seed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from splits import SplitError
from splits.manifest import seeded_order

SHOTS = (2, 5, 10)
EPISODES = 10
DRAW = 0
"""The draw of training images: one for all runs, whose seeds then differ in training alone."""


@dataclass(frozen=True)
class Episode:
    """Images (positions) to adapt on and, disjoint from these, images to test on, all of the test classes.

    `too_small` names the classes without more than `shots` images: they are in neither part.
    """

    shots: int
    number: int
    support: np.ndarray
    query: np.ndarray
    too_small: tuple[str, ...]


@dataclass(frozen=True)
class TrainingSubset:
    """`shots` images (positions) of each training class; `too_small` names classes with fewer, all of which are in."""

    shots: int
    images: np.ndarray
    too_small: tuple[str, ...]


def few_shot_episodes(images: Sequence[str], labels: np.ndarray, classes: Sequence[str], test_classes: Sequence[str], *,
                      shots: Sequence[int] = SHOTS, episodes: int = EPISODES, seed: int = 0) -> Iterator[Episode]:
    """Seeded episodes: `shots` support images of each test class, the rest of the class as query.

    `images` are the image ids, such as paths. Which are drawn depends on seed, shots, episode, class and ids alone,
    not on the order of images or on which other classes there are. As in the released splits, draws are not nested.

    >>> ids = [f"{c}{i}" for c in "xy" for i in range(4)]
    >>> [e] = few_shot_episodes(ids, np.repeat([0, 1], 4), "xy", "y", shots=[2], episodes=1)
    >>> len(e.support), len(e.query), set(e.support) | set(e.query) == {4, 5, 6, 7}
    (2, 2, True)
    """
    groups = _groups(images, labels, classes, test_classes)
    for k in shots:
        _check_shots(k)
        too_small = tuple(name for name, members in groups.items() if len(members) <= k)
        for number in range(episodes):
            support, query = [], []
            for name, members in groups.items():
                if len(members) > k:
                    order = seeded_order([images[i] for i in members], "episode", seed, k, number, name)
                    support.append(members[order[:k]])
                    query.append(members[order[k:]])
            yield Episode(k, number, _sorted(support), _sorted(query), too_small)


def released_episodes(episodes: Mapping[str, Mapping[str, Sequence[str]]], images: Sequence[str], labels: np.ndarray,
                      classes: Sequence[str], shots: int) -> list[Episode]:
    """The episodes of a released split file, {number: {class: files}}, as positions among the images of its test side.

    The rest of the images is query. Files are found by class and name. In the authors' copy of Cars the folders
    `cars_train` and `cars_test` are merged class by class, and a second file of one name is NAME_2: where a class here
    has the name in both, NAME is taken to be that of `cars_train` and NAME_2 that of `cars_test` (the release does not
    say; it is so for 35 files). A SplitError names the first of the files that are not here; SOP's released
    episodes, which are lists of classes, have no such form.

    >>> [e] = released_episodes({"0": {"x": ["1.jpg"]}}, ["x/0.jpg", "x/1.jpg"], np.array([0, 0]), ["x"], 1)
    >>> e.support.tolist(), e.query.tolist()
    ([1], [0])
    """
    if not all(isinstance(episode, Mapping) for episode in episodes.values()):
        raise SplitError("the released episodes name classes and no files")
    here: dict[tuple[str, str], list[int]] = {}
    for i, image in sorted(enumerate(images), key=lambda one: "cars_test" in one[1]):
        here.setdefault((classes[labels[i]], image.rsplit("/", 1)[-1]), []).append(i)

    def position(name: str, file: str) -> int | None:
        if (name, file) in here:
            return here[name, file][0]
        again = here.get((name, re.sub(r"_2(\.\w+)$", r"\1", file)), [])
        return again[1] if len(again) > 1 else None

    places = {(name, file): position(name, file) for episode in episodes.values() for name, files in episode.items()
              for file in files}
    missing = sorted(f"{name}/{file}" for (name, file), row in places.items() if row is None)
    if missing:
        raise SplitError(f"{len(missing)} of {len(places)} files of the released episodes are not here, such as "
                         f"{missing[0]}")
    made = []
    for number, episode in sorted(episodes.items(), key=lambda item: int(item[0])):
        support = np.unique([row for name, files in episode.items() for file in files
                             if (row := places[name, file]) is not None])
        made.append(Episode(shots, int(number), support.astype(np.int64), np.setdiff1d(np.arange(len(images)), support),
                            ()))
    return made


def training_subset(images: Sequence[str], labels: np.ndarray, classes: Sequence[str], train_classes: Sequence[str],
                    shots: int) -> TrainingSubset:
    """k images of each training class, as in the few-shot experiment of UML; larger k contain smaller ones.

    A class with fewer than k images gives all it has (the released files repeat images instead).

    >>> ids = [f"{c}{i}" for c in "xy" for i in range(4)]
    >>> training_subset(ids, np.repeat([0, 1], 4), "xy", "xy", 2).images.shape
    (4,)
    """
    _check_shots(shots)
    groups = _groups(images, labels, classes, train_classes)
    chosen = [members[seeded_order([images[i] for i in members], "training", DRAW, name)[:shots]]
              for name, members in groups.items()]
    return TrainingSubset(shots, _sorted(chosen), tuple(name for name, p in groups.items() if len(p) < shots))


def _groups(images: Sequence[str], labels: np.ndarray, classes: Sequence[str],
            wanted: Sequence[str]) -> dict[str, np.ndarray]:
    labels = np.asarray(labels)
    if len(labels) != len(images):
        raise SplitError(f"there are {len(images)} images but {len(labels)} labels; both must have one entry an image")
    position = {name: i for i, name in enumerate(classes)}
    unknown = [name for name in wanted if name not in position]
    if unknown:
        raise SplitError(f"class '{unknown[0]}' of the split is not among the dataset's classes")
    order = np.argsort(labels, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(labels, minlength=len(classes)))[:-1])
    return {name: parts[position[name]] for name in wanted}


def _check_shots(shots: int) -> None:
    if shots < 1:
        raise SplitError(f"the number of shots must be at least 1, got {shots}")


def _sorted(parts: list[np.ndarray]) -> np.ndarray:
    return np.sort(np.concatenate([*parts, np.empty(0, dtype=np.int64)])).astype(np.int64)
