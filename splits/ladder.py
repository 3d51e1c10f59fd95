"""The ladder of a dataset: class swapping, class removal and the choice of rungs (section 3 of the ooDML paper)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from splits import SplitError
from splits.frechet import LADDER, frechet_distance
from splits.iid import iid_distance
from splits.manifest import Iteration, Ladder, Split, check, validation_part
from splits.parallel import in_parallel
from splits.rungs import choose_rungs, rising
from splits.sides import Sides, State, Vectors, class_means
from splits.swap import Step, remove, swap, swaps_for

FAR_FROM_IID = 0.2
"""A default split that lies this part of the way from random halves to the hardest split by swapping also gets easier
rungs. Both ends are measured with the same network on as many images, so that neither its scale nor the upward bias of
the estimate decides; a multiple of the distance of random halves, which is all bias (twice the images halve it), would.
With the published distances, where the hardest split has classes removed, CUB lies at 0.28, Cars at 0.05 and SOP at
0.01: as in the ooDML paper, CUB alone gets easier splits."""


def build_ladder(features: Any, labels: Any, train_classes: Sequence[str], test_classes: Sequence[str], *,
                 classes: Sequence[str], dataset: str = "", dataset_hash: str = "",
                 swaps_per_iteration: int | None = None, rungs: int | None = None, reverse: bool | None = None,
                 removal: bool = True, rerank: bool = False, iterations: int | None = None,
                 rung_iterations: Sequence[int | str] | None = None, guard: int = 2, patience: int = 5,
                 remaining: float = 0.5, iid_draws: int = 10, seed: int = 0,
                 feature_info: dict[str, Any] | None = None, device: str | None = None,
                 progress: Callable[[Iteration], None] | None = None) -> Ladder:
    """Splits of rising Fréchet distance, made from a dataset's default split by moving and removing whole classes.

    Each split of the ladder is called a rung. `features` is an (n, d) array, memory map or tensor, `labels[i]` the
    position of image i's class in `classes`; `train_classes` and `test_classes` name the default split.

    From the default split, each iteration exchanges S classes by eq. 2-3,
    C* = arg max ||mu_C - mu_own||_2 - ||mu_C - mu_other||_2, until the distance has not risen for `patience` iterations
    (or for `iterations` of them); a class moved in the last `guard` iterations stays. `reverse` also does the same with
    the sign turned, towards splits that are easier than the default; left open, it does so where the default split
    lies `FAR_FROM_IID` of the way from random halves to the hardest split by swapping. From the hardest split,
    `removal` takes the classes nearest to the other side away for as long as `remaining` of all images stay. The
    distances over images and over class means are known at every iteration, that at equal n of every rung. `rerank`
    ranks anew after every single exchange. A class of one image (In-Shop trains on some) stays on its side and is never
    removed: as a query it would find nothing and be left out of every score, so that moving it would change the
    distance and not the task.

    The rungs (8, or 9 with `reverse`, unless `rungs` says otherwise) are about uniform in the distance over images, the
    default split always among them, and rise strictly. `rung_iterations` names them instead: n for swap iteration
    n, -n for reverse iteration n, 'Rn' for removal iteration n; the released script's keys are iteration x S.
    A quarter of each rung's train classes is set apart for validation.

    >>> x = np.random.default_rng(0).normal(size=(8, 1, 3)) + np.zeros((1, 10, 1))
    >>> x = (x + 0.1 * np.random.default_rng(1).normal(size=(8, 10, 3))).reshape(80, 3)
    >>> ladder = build_ladder(x, np.repeat(range(8), 10), "abcd", "efgh", classes="abcdefgh",
    ...                       reverse=False, removal=False)
    >>> [(split.id, split.kind) for split in ladder.splits]
    [(1, 'default'), (2, 'swap'), (3, 'swap')]
    """
    names, order, labels = _checked(features, labels, classes, train_classes, test_classes)
    vectors = Vectors.grouped(features, order[labels], len(names), device)
    means = class_means(vectors, names)
    vectors = vectors.placed()
    position = {name: i for i, name in enumerate(names)}
    train, test = (np.array(sorted(position[n] for n in side)) for side in (train_classes, test_classes))
    # On few class means the work is too small for a GPU.
    by_class = Vectors.grouped(means, np.arange(len(names)), len(names),
                               device if len(names) > 2 * means.shape[1] else None)
    start = State(Sides.of(vectors, train, test), Sides.of(by_class, train, test))
    swaps = swaps_per_iteration or swaps_for(dataset, len(names))
    none = np.empty(0, dtype=np.int64)
    default = Step("default", 0, start.train, start.test, start.distance(), start.distance_of_means(),
                   none, none)

    def report(step: Step) -> None:
        if progress is not None:
            progress(_iteration(step, names, vectors))

    report(default)
    iid = _iid(vectors, order[labels], np.concatenate([train, test]), iid_draws, seed, device)
    fixed = np.flatnonzero([len(rows) == 1 for rows in vectors.rows])
    settings: dict[str, Any] = {"swaps": swaps, "guard": guard, "patience": patience, "iterations": iterations,
                                "rerank": rerank, "fixed": fixed, "progress": report}
    harder, hardest = swap(start, default, sign=1, **settings)
    if reverse is None:
        reverse = _far_from_iid(iid, default.frd, [step.frd for step in harder if step.kept])
    easier = swap(start, default, sign=-1, **settings)[0] if reverse else []
    fewer = remove(hardest, swaps=swaps, share=remaining, fixed=fixed, progress=report) if removal else []
    steps = [*reversed(easier), default, *harder, *fewer]

    count = rungs if rungs is not None else 9 if reverse else 8
    chosen = _named(steps, rung_iterations) if rung_iterations is not None else _uniform(steps, count)
    equal = min(min(_images(vectors, step)) for step in chosen)
    work = (partial(_split, i, step, names, vectors, seed, equal) for i, step in enumerate(chosen, 1))
    splits = tuple(in_parallel(work, device))
    parameters = {"swaps_per_iteration": swaps, "rungs": count, "reverse": reverse, "removal": removal,
                  "rerank": rerank, "iterations": iterations,
                  "rung_iterations": None if rung_iterations is None else [*rung_iterations],
                  "guard": guard, "patience": patience, "remaining": remaining, "seed": seed, "equal_n": equal}
    progression = tuple(_iteration(step, names, vectors) for step in steps)
    return check(Ladder(dataset, dataset_hash, dict(feature_info or {}), parameters, splits, progression, iid))


def against_rule(ladder: Ladder) -> dict[str, Any]:
    """The options of the builder by which a ladder is another than the suite's rule makes; none where it is that one.

    The rule: S by `swaps_for`, swapping until the distance no longer rises, removal, easier splits where the default
    one is far from i.i.d., and 8 rungs, or 9 with those. It needs the parameters in a manifest alone.

    >>> x = np.random.default_rng(0).normal(size=(80, 3)) + np.repeat(np.arange(8), 10)[:, None] % 5
    >>> y = np.repeat(range(8), 10)
    >>> against_rule(build_ladder(x, y, "abcd", "efgh", classes="abcdefgh", removal=False, reverse=False, iid_draws=0))
    {'removal': False}
    """
    parameters = ladder.parameters
    if "swaps_per_iteration" not in parameters:
        return {}
    default, iid = ladder.default, ladder.iid
    usual = {"swaps_per_iteration": swaps_for(ladder.dataset, len(default.train) + len(default.test)),
             "rungs": 9 if parameters["reverse"] else 8, "removal": True, "rerank": False, "iterations": None,
             "rung_iterations": None, "guard": 2, "patience": 5, "remaining": 0.5, "seed": 0}
    if iid is not None and default.frd is not None and ladder.progression:  # not every pinned ladder has one
        usual["reverse"] = _far_from_iid(iid, default.frd, [step.frd for step in ladder.progression
                                                            if step.kind == "swap" and step.kept])
    return {key: parameters[key] for key, value in usual.items() if key in parameters and parameters[key] != value}


def _far_from_iid(iid: dict[str, Any] | None, default: float, harder: Sequence[float]) -> bool:
    """Whether the default split is far enough from random halves that easier splits are worth having."""
    if iid is None or not harder:
        return False
    return default - iid["mean"] > FAR_FROM_IID * (max(harder) - iid["mean"])


def measure(ladder: Ladder, features: Any, labels: Any, classes: Sequence[str], *, device: str | None = None,
            seed: int = 0) -> list[tuple[float, float]]:
    """The distances of a ladder's rungs under other features than it was made with, one pair a rung.

    Over all images of the two sides, and over as many a side as the ladder's smallest side has.
    """
    labels = np.asarray(labels)
    vectors = Vectors.grouped(features, labels, len(classes), device)
    position = {name: i for i, name in enumerate(classes)}
    sides = [Sides.of(vectors, *(np.array([position[n] for n in side]) for side in (split.train, split.test)))
             for split in ladder.splits]
    equal = min(min(vectors.count(side.train), vectors.count(side.test)) for side in sides)
    return [(side.distance(partial(frechet_distance, tolerance=LADDER)), side.equal_n(equal, seed)) for side in sides]


def default_rung(labels: np.ndarray, train_classes: Sequence[str], test_classes: Sequence[str], *,
                 classes: Sequence[str], dataset: str = "", dataset_hash: str = "", seed: int = 0) -> Ladder:
    """A ladder of one rung, the default split: no features are needed, and it has no distance.

    >>> default_rung(np.array([0, 0, 1]), ["a"], ["b"], classes=["a", "b"]).splits[0].train_images
    2
    """
    counts = dict(zip(classes, np.bincount(labels, minlength=len(classes)).tolist()))
    split = Split(id=1, kind="default", iteration=0, train=tuple(train_classes), test=tuple(test_classes),
                  validation=validation_part(train_classes, seed),
                  train_images=sum(counts[name] for name in train_classes),
                  test_images=sum(counts[name] for name in test_classes), frd=None, frd_class_means_released=None)
    return check(Ladder(dataset, dataset_hash, {}, {"seed": seed}, (split,)))


def _iid(vectors: Vectors, labels: np.ndarray, used: np.ndarray, draws: int, seed: int,
         device: str | None) -> dict[str, Any] | None:
    """The i.i.d. baseline over the classes in use; None where no draws are wanted."""
    if not draws:
        return None
    rows = vectors.rows_of(used)
    part = vectors if len(rows) == len(labels) else Vectors(vectors.take(rows), (), device)
    return iid_distance(part.values, labels[rows], draws, seed, device)


def _checked(features: Any, labels: Any, classes: Sequence[str], train: Sequence[str],
             test: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """The class names in sorted order, where each given class went in it, and the labels; or the user's mistake.

    Working in sorted order makes the ladder the same whatever order classes come in.
    """
    labels = np.asarray(labels.cpu() if hasattr(labels, "cpu") else labels)
    for given, value in (("train_classes", train), ("test_classes", test), ("classes", classes)):
        if not isinstance(value, Collection):
            raise SplitError(f"{given}={value!r} must be a list of names; `classes` has those of all classes, in which "
                             "labels[i] is the place of image i's class")
    if getattr(features, "ndim", None) != 2:
        raise SplitError(f"features must be a matrix (images, dimensions), got shape {tuple(np.shape(features))}")
    if labels.shape != (len(features),):
        raise SplitError(f"there are {len(features)} feature vectors but labels of shape {labels.shape}; "
                         "both must have one entry an image")
    if len(set(classes)) != len(classes):
        raise SplitError("a class name stands twice in the list of classes")
    if not np.issubdtype(labels.dtype, np.integer) or not np.isin(labels, np.arange(len(classes))).all():
        raise SplitError(f"labels must be positions in the list of {len(classes)} classes")
    unknown = sorted({*train, *test} - set(classes))
    if unknown:
        raise SplitError(f"class '{unknown[0]}' of the default split is not among the dataset's classes")
    both = sorted(set(train) & set(test))
    if both:
        raise SplitError(f"class '{both[0]}' is in train and in test; the sides of a split must be disjoint")
    count = dict(zip(classes, np.bincount(labels, minlength=len(classes)).tolist()))
    empty = sorted(name for name in {*train, *test} if count[name] == 0)
    if empty:
        raise SplitError(f"class '{empty[0]}' has no image; leave it out of the split")
    sides = [sum(count[name] > 1 for name in set(side)) for side in (train, test)]
    if min(sides) < 2:
        raise SplitError("a ladder needs at least four classes of two or more images, two a side; there are "
                         f"{sides[0]} such train and {sides[1]} such test classes: add images or classes")
    names = tuple(sorted(classes))
    position = {name: i for i, name in enumerate(names)}
    return names, np.array([position[name] for name in classes]), labels.astype(np.int64)


def _uniform(steps: list[Step], count: int) -> list[Step]:
    kept = [step for step in steps if step.kept]
    at = next(i for i, step in enumerate(kept) if step.kind == "default")
    chain = rising([step.frd for step in kept], at)
    chosen = choose_rungs([kept[i].frd for i in chain], chain.index(at), count)
    return [kept[chain[i]] for i in chosen]


def _named(steps: list[Step], wanted: Sequence[int | str]) -> list[Step]:
    known = {f"R{s.iteration}" if s.kind == "removal" else str(s.iteration): s for s in steps}
    missing = [str(w) for w in wanted if str(w) not in known]
    if missing:
        raise SplitError(f"there is no iteration {', '.join(missing)}; the ladder went through {', '.join(known)}")
    chosen = sorted((known[key] for key in {"0", *map(str, wanted)}), key=lambda s: s.frd)
    flat = [b for a, b in pairwise(chosen) if a.frd == b.frd]
    if flat:
        raise SplitError(f"two of the iterations named have the same distance {flat[0].frd:g}; name one of them")
    return chosen


def _images(vectors: Vectors, step: Step) -> tuple[int, int]:
    return vectors.count(step.train), vectors.count(step.test)


def _split(number: int, step: Step, names: tuple[str, ...], vectors: Vectors, seed: int, equal: int) -> Split:
    train, test = (tuple(names[c] for c in side) for side in (step.train, step.test))
    images = _images(vectors, step)
    at_equal = step.frd if images == (equal, equal) else Sides(vectors, step.train, step.test).equal_n(equal, seed)
    return Split(id=number, kind=step.kind, iteration=step.iteration, train=train, test=test,
                 validation=validation_part(train, seed), train_images=images[0], test_images=images[1], frd=step.frd,
                 frd_class_means_released=step.frd_class_means_released, frd_equal_n=at_equal)


def _iteration(step: Step, names: tuple[str, ...], vectors: Vectors) -> Iteration:
    left_train, left_test = (tuple(names[c] for c in classes) for classes in (step.left_train, step.left_test))
    return Iteration(step.kind, step.iteration, step.frd, step.frd_class_means_released, left_train, left_test,
                     len(step.train), len(step.test), *_images(vectors, step), step.kept)
