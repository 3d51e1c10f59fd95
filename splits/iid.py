"""How far apart two halves of the same classes are: the distance below which a shift cannot be told from chance."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from splits import SplitError
from splits.frechet import LADDER, frechet_distance
from splits.parallel import in_parallel
from splits.sides import Vectors


def random_halves(labels: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Marks a random half of every class; of an odd class the larger half falls to either side by chance."""
    order = np.lexsort((generator.random(len(labels)), labels))
    _, start, inverse = np.unique(labels[order], return_index=True, return_inverse=True)
    rank = np.arange(len(labels)) - start[inverse]
    first = np.empty(len(labels), dtype=bool)
    first[order] = (rank + generator.integers(0, 2, len(start))[inverse]) % 2 == 0
    return first


def iid_distance(features: Any, labels: np.ndarray, draws: int = 10, seed: int = 0,
                 device: str | None = None) -> dict[str, Any]:
    """Mean and standard deviation (ddof 1) of the Fréchet distance of random halves of the same classes.

    The i.i.d. row of the ooDML paper's Table 1. Only the halves drawn are read anew; the other half is all minus these.

    >>> sorted(iid_distance(np.random.default_rng(0).normal(size=(40, 3)), np.repeat([0, 1], 20), draws=3))
    ['draws', 'mean', 'seed', 'std']
    """
    if draws < 2:
        raise SplitError(f"an i.i.d. baseline with a standard deviation needs two draws, {draws} were asked for")
    vectors = Vectors(features, (), device)
    generator = np.random.default_rng(seed)
    halves = [random_halves(np.asarray(labels), generator) for _ in range(draws)]
    enough = max(min(half.sum(), (~half).sum()) for half in halves) > vectors.dimensions
    whole = vectors.moments(np.arange(len(labels))) if enough else None

    def distance(first: np.ndarray) -> float:
        one, two = np.flatnonzero(first), np.flatnonzero(~first)
        if whole is None or min(len(one), len(two)) <= vectors.dimensions:
            return frechet_distance(vectors.take(one), vectors.take(two), LADDER)
        half = vectors.moments(one)
        return frechet_distance(half, whole - half, LADDER)

    distances = list(in_parallel((partial(distance, half) for half in halves), device))
    return {"mean": float(f"{np.mean(distances):.10g}"), "std": float(f"{np.std(distances, ddof=1):.10g}"),
            "draws": draws, "seed": seed}
