"""Distances between datasets, and ladders of one dataset built with different backbones, side by side."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from splits import SplitError
from splits.frechet import Moments, frechet_distance
from splits.manifest import Ladder, Split


@dataclass(frozen=True)
class CrossDistances:
    """`matrix[i, j]`: Fréchet distance of the train images of dataset i to the test images of dataset j."""

    names: tuple[str, ...]
    matrix: np.ndarray


def cross_distances(sets: Mapping[str, tuple[Any, Any]]) -> CrossDistances:
    """The distance of each dataset's train set to each dataset's test set (ooDML supplement, Table 2).

    `sets` gives (train features, test features) by name; the diagonal holds the default splits.

    >>> x = np.random.default_rng(0).normal(size=(20, 3))
    >>> cross_distances({"a": (x, x), "b": (x + 2, x + 2)}).matrix.round(6).tolist()
    [[0.0, 12.0], [12.0, 0.0]]
    """
    names = tuple(sets)
    sides = [tuple(Moments.of(x) if len(x) > x.shape[1] else x for x in sets[name]) for name in names]
    widths = {x.shape[1] for name in names for x in sets[name]}
    if len(widths) > 1:
        raise SplitError(f"features of different widths ({', '.join(map(str, sorted(widths)))}) cannot be compared; "
                         "use one backbone for all datasets")
    matrix = [[frechet_distance(train, test) for _, test in sides] for train, _ in sides]
    return CrossDistances(names, np.array(matrix))


@dataclass(frozen=True)
class Progression:
    """Distance over images after each step, min-max-normalised to [0, 1], with the steps' kinds and iterations."""

    kinds: tuple[str, ...]
    iterations: tuple[int, ...]
    distance: np.ndarray


@dataclass(frozen=True)
class Comparison:
    """How much the choice of the backbone matters for a ladder (ooDML supplement, section A)."""

    backbones: tuple[str, ...]
    progressions: dict[str, Progression]
    move_correlation: np.ndarray
    """Spearman rank correlation, pair by pair, of the iteration at which each class first changed sides."""
    rung_overlap: dict[int, np.ndarray]
    """By rung id, pair by pair: Jaccard overlap of the train and of the test classes, averaged."""


def compare_ladders(ladders: Mapping[str, Ladder]) -> Comparison:
    """Progressions, order of moves and rungs of ladders of one dataset, by backbone.

    A class that never moved counts as moved after all others. Classes are those of the default splits. Rungs of equal
    id are compared; ids that a ladder lacks are left out.
    """
    names = tuple(ladders)
    check_count(names)
    starts = {frozenset(ladder.default.train) for ladder in ladders.values()}
    if len(starts) > 1 or len({frozenset(ladder.default.test) for ladder in ladders.values()}) > 1:
        raise SplitError(f"the ladders of {', '.join(names)} start from different default splits; "
                         "only ladders of one dataset can be compared")
    moves = [first_moves(ladder) for ladder in ladders.values()]
    overlap = {}
    for id in sorted(set.intersection(*({s.id for s in ladder.splits} for ladder in ladders.values()))):
        rungs = [ladder.split(id) for ladder in ladders.values()]
        overlap[id] = _pairwise(len(names), lambda i, j, rungs=rungs: _overlap(rungs[i], rungs[j]))  # type: ignore[misc]
    return Comparison(names, {name: progression(ladder) for name, ladder in ladders.items()},
                      _pairwise(len(names), lambda i, j: _spearman(moves[i], moves[j])), overlap)


def check_count(names: Collection[str]) -> None:
    """Refuses to compare fewer than two; to be asked before any ladder is built."""
    if len(names) < 2:
        raise SplitError(f"a comparison needs the ladders of at least two backbones, not of {', '.join(names)} alone")


def progression(ladder: Ladder) -> Progression:
    """All kept steps of a ladder: reverse steps, default split, swaps, removals."""
    steps = [step for step in ladder.progression if step.kept]
    distance = np.array([step.frd for step in steps])
    if not len(distance):
        raise SplitError(f"the ladder of {ladder.dataset} has no progression; only ladders built here have one")
    spread = np.ptp(distance)
    normal = (distance - distance.min()) / spread if spread else np.zeros_like(distance)
    return Progression(tuple(s.kind for s in steps), tuple(s.iteration for s in steps), normal)


def first_moves(ladder: Ladder) -> np.ndarray:
    """When each class of the default split, in sorted order, first changed sides: the swap iteration.

    Steps that were not kept moved no class of the ladder. Of a ladder without a record of its iterations, the rung from
    which on a class is found on the other side.
    """
    steps = [(s.iteration, (*s.moved_train, *s.moved_test)) for s in ladder.progression if s.kind == "swap" and s.kept]
    if not ladder.progression:
        train, test = set(start(ladder).train), set(start(ladder).test)
        steps = [(split.id, (*(train & set(split.test)), *(test & set(split.train)))) for split in ladder.splits]
    never = 1 + max((when for when, _ in steps), default=0)
    first = dict.fromkeys((*start(ladder).train, *start(ladder).test), never)
    for when, moved in steps:
        for name in moved:
            first[name] = min(first[name], when)
    return np.array([first[name] for name in sorted(first)])


def start(ladder: Ladder) -> Split:
    """The default split, or the easiest of a released ladder that does not say which it is."""
    return next((split for split in ladder.splits if split.kind in ("default", "union")), ladder.splits[0])


@dataclass(frozen=True)
class Overlap:
    """Two ladders of one dataset side by side, such as a released one and one built here."""

    rungs: np.ndarray
    """Jaccard overlap of rung i of the first with rung j of the second: train and test classes, averaged."""
    moves: float
    """Spearman rank correlation of when each class first changed sides, over the classes both start from."""


def overlap(one: Ladder, two: Ladder) -> Overlap:
    """How alike two ladders are, rung by rung and in the order in which classes change sides."""
    names = [sorted((*start(x).train, *start(x).test)) for x in (one, two)]
    shared = set(names[0]) & set(names[1])
    moves = [np.array([when for name, when in zip(n, first_moves(x)) if name in shared])
             for n, x in zip(names, (one, two))]
    return Overlap(np.array([[_overlap(a, b) for b in two.splits] for a in one.splits]), _spearman(*moves))


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(a, b).statistic) if np.ptp(a) and np.ptp(b) else float("nan")


def _overlap(one: Split, two: Split) -> float:
    sides = ((set(getattr(one, side)), set(getattr(two, side))) for side in ("train", "test"))
    return float(np.mean([len(a & b) / len(a | b) for a, b in sides]))


def _pairwise(n: int, value: Any) -> np.ndarray:
    matrix = np.eye(n)
    for i, j in combinations(range(n), 2):
        matrix[i, j] = matrix[j, i] = value(i, j)
    return matrix
