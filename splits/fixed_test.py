"""A control for a ladder: the test classes of its hardest split on every rung, only the training classes move."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from splits import SplitError, manifest, pinning
from splits.manifest import Iteration, Ladder, Split, check, validation_part
from splits.rungs import choose_rungs, rising
from splits.sides import Sides, State, Vectors, class_means

KIND = "fixed-test"
"""The kind of the splits of a control."""
RUNGS = 8
"""As many as a ladder has that begins at its default split."""


def is_control(ladder: Ladder) -> bool:
    """Whether all splits of a ladder have the test classes of another one's hardest split."""
    return ladder.splits[0].kind == KIND


def fixed_test_ladder(ladder: Ladder, features: Any, labels: Any, classes: Sequence[str], *, rungs: int | None = None,
                      seed: int = 0, feature_info: dict[str, Any] | None = None,
                      device: str | None = None) -> Ladder:
    """Splits of rising Fréchet distance that share the test classes T of a ladder's hardest split.

    Along a ladder both sides change, so that a score also falls because the test classes get harder. Here the classes
    outside T, n of them, are ordered by ||mu_C - mu_T||_2, and each split trains on n // 2 consecutive ones, from the
    nearest to the farthest: training sets of as many classes, and one test set, of which a frozen network has one
    score. The rungs are about uniform in the distance over images and rise strictly. Classes of one image are left out.

    >>> from splits.ladder import build_ladder
    >>> x = np.random.default_rng(0).normal(size=(12, 1, 3)) + np.zeros((1, 10, 1))
    >>> x = (x + 0.1 * np.random.default_rng(1).normal(size=(12, 10, 3))).reshape(120, 3)
    >>> y = np.repeat(range(12), 10)
    >>> ladder = build_ladder(x, y, "abcdef", "ghijkl", classes="abcdefghijkl", removal=False, reverse=False)
    >>> control = fixed_test_ladder(ladder, x, y, "abcdefghijkl", rungs=3)
    >>> {split.test for split in control.splits} == {ladder.splits[-1].test}, [len(s.train) for s in control.splits]
    (True, [3, 3, 3])
    """
    hardest = ladder.splits[-1]
    if len(ladder.splits) < 2 or hardest.frd is None or hardest.kind == KIND:
        raise SplitError("test classes are held fixed at the hardest split of a ladder of several splits with distances"
                         f"; that of {ladder.dataset or 'this dataset'} has {len(ladder.splits)}"
                         + (", whose test classes are fixed already" if hardest.kind == KIND else ""))
    names = tuple(sorted(classes))
    position = {name: i for i, name in enumerate(names)}
    order = np.array([position[name] for name in classes])
    vectors = Vectors.grouped(features, order[np.asarray(labels)], len(names), device)
    means = class_means(vectors, names)
    test = np.array([position[name] for name in hardest.test])
    used = {name for split in ladder.splits for name in (*split.train, *split.test)} - set(hardest.test)
    pool = np.array([i for i, name in enumerate(names) if name in used and len(vectors.rows[i]) > 1], dtype=np.int64)
    count = len(pool) // 2
    if count < 2:
        raise SplitError(f"{len(pool)} classes of two or more images are not among the test classes of the hardest "
                         "split; to move training classes takes at least four")
    pool = pool[np.argsort(np.linalg.norm(means[pool] - means[np.sort(test)].mean(axis=0), axis=1), kind="stable")]
    step = max(1, round(0.01 * len(names)))
    starts = sorted({*range(0, len(pool) - count, step), len(pool) - count})
    training = [pool[start:start + count] for start in starts]
    steps = _measured(training, test, vectors, means, names)
    chain = rising([one.frd for one in steps], 0)
    if len(chain) < 2:
        raise SplitError("no choice of training classes lies farther from the fixed test classes than the nearest ones")
    chosen = [chain[i] for i in choose_rungs([steps[i].frd for i in chain], 0, rungs or RUNGS)]
    equal = min(min(steps[i].train_images, steps[i].test_images) for i in chosen)
    splits = []
    for number, i in enumerate(chosen, 1):
        train, one = np.sort(training[i]), steps[i]
        named = tuple(names[c] for c in train)
        splits.append(Split(id=number, kind=KIND, iteration=i, train=named, test=hardest.test,
                            validation=validation_part(named, seed), train_images=one.train_images,
                            test_images=one.test_images, frd=one.frd,
                            frd_class_means_released=one.frd_class_means_released,
                            frd_equal_n=Sides(vectors, train, np.sort(test)).equal_n(equal, seed)))
    parameters = {"fixed_test": ladder.hash, "fixed_split": hardest.hash, "train_classes": count,
                  "rungs": rungs or RUNGS, "step": step, "seed": seed, "equal_n": equal}
    return check(Ladder(ladder.dataset, ladder.dataset_hash, dict(feature_info or {}), parameters, tuple(splits),
                        tuple(steps)))


def _measured(training: Sequence[np.ndarray], test: np.ndarray, vectors: Vectors, means: np.ndarray,
              names: Sequence[str]) -> list[Iteration]:
    """Each choice of training classes with its distance from the test classes, and which classes left for it."""
    by_class = Vectors.grouped(means, np.arange(len(names)), len(names))
    steps = []
    for number, train in enumerate(training):
        state = State(Sides.of(vectors, train, test), Sides.of(by_class, train, test))
        left = tuple(names[c] for c in np.setdiff1d(training[max(0, number - 1)], train))
        steps.append(Iteration(KIND, number, state.distance(), state.distance_of_means(), left, (), len(train),
                               len(test), vectors.count(train), vectors.count(test)))
    return steps


def named_ladder(name: str, classes: Sequence[str], labels: np.ndarray) -> Ladder:
    """The ladder that is named as NAME@VERSION or by the file of its manifest, if it is of this dataset."""
    if not Path(name).is_file() and "@" not in name:
        raise SplitError(f"--fixed-test {name}: there is no such file; name a manifest or a pinned ladder such as "
                         "cub@v1, or none for the ladder of the suite's rule")
    ladder = manifest.load(name) if Path(name).is_file() else pinning.get(name).ladder
    if problems := manifest.verify(ladder, classes, labels):
        raise SplitError(f"--fixed-test {name}: not a ladder of this dataset: {problems[0]}")
    return ladder
