"""What is drawn of a ladder: its progression and the images of a scatter plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from splits.manifest import Iteration, Ladder, Split


def curves(ladder: Ladder) -> dict[str, tuple[Iteration, ...]]:
    """The two parts of the progression figure: 'swap' (reverse steps, default, swaps) and 'removal'.

    Removals start at the hardest swap, which is repeated as their first point.
    """
    swaps = tuple(step for step in ladder.progression if step.kind != "removal")
    removals = tuple(step for step in ladder.progression if step.kind == "removal")
    start = [step for step in swaps if step.kept and step.iteration >= 0][-1:]
    return {"swap": swaps, "removal": (*start, *removals) if removals else ()}


def easy_medium_hard(ladder: Ladder) -> tuple[Split, ...]:
    """The first, the middle and the last rung (fewer where the ladder has fewer), as in the supplement's figure 2."""
    last = len(ladder.splits) - 1
    return tuple(ladder.splits[i] for i in sorted({0, (last + 1) // 2, last}))


@dataclass(frozen=True)
class Points:
    """Images (positions, in order) of a scatter plot and which of them are test images."""

    images: np.ndarray
    test: np.ndarray


def points(split: Split, labels: np.ndarray, classes: Sequence[str], limit: int = 20_000, seed: int = 0) -> Points:
    """The images of a split, a seeded choice of `limit` where there are more."""
    side = {**dict.fromkeys(split.train, 0), **dict.fromkeys(split.test, 1)}
    of_class = np.array([side.get(name, -1) for name in classes])
    images = np.flatnonzero(of_class[labels] >= 0)
    if len(images) > limit:
        images = np.sort(np.random.default_rng(seed).choice(images, limit, replace=False))
    return Points(images, of_class[np.asarray(labels)[images]] == 1)
