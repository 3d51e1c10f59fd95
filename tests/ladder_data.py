"""Small classes in the plane of a few features, the ladder of their halves, and what it is of by definition."""

from __future__ import annotations

from typing import Any

import numpy as np

from splits.ladder import build_ladder
from splits.manifest import Ladder

Data = tuple[Any, Any, list[str]]


def data(classes: int = 16, d: int = 6, seed: int = 0, spread: float = 0.5) -> Data:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(4, 9, classes)
    labels = np.repeat(np.arange(classes), sizes)
    features = (rng.normal(size=(classes, d)) * 2)[labels] + spread * rng.normal(size=(len(labels), d))
    return features, labels, [f"c{i:02d}" for i in range(classes)]


def build(of: Data, **options: object) -> Ladder:
    features, labels, names = of
    half = len(names) // 2
    return build_ladder(features, labels, names[:half], names[half:], classes=names,
                        **{"iid_draws": 0, **options})  # type: ignore[arg-type]


def side(of: Data, wanted: set[str]) -> np.ndarray:
    features, labels, names = of
    return np.array([f for f, c in zip(features, labels) if names[c] in wanted])


def means(of: Data, wanted: set[str]) -> np.ndarray:
    return np.array([side(of, {name}).mean(axis=0) for name in sorted(wanted)])
