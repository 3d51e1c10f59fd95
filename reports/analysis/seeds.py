"""The variance of a weighted mean of scores over seeds, where every score comes from a training of its own.

AGS is such a mean of the rungs' scores. Its variance from the few seeds alone has n - 1 degrees of freedom; the sum of
the rungs' own variances has nearly as many times more as there are rungs. Where one seed alone has the whole ladder,
the rungs that have several tell how much the score of one training varies on all.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from reports.selection import ROW

Cell = tuple[str, int]
"""(dataset, split)."""


@dataclass(frozen=True)
class SeedErrors:
    """For each row the variance of its mean over seeds, with degrees of freedom; NaN without a second seed.

    `counts` is how many seeds the mean is of: of several cells, which need not have the same seeds, the fewest.
    """

    variance: np.ndarray
    freedom: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True)
class RowErrors:
    """What the seeds of one row tell of its weighted mean.

    `errors` are e_r of all rungs, NaN where nothing is known; `counts` the seeds that the mean is of. `shared` are the
    e_r over the `seeds` that several rungs have in common, NaN on the others, and `sums` is the variance of the mean of
    the weighted sums of these rungs over these seeds. `pooled`: the degrees of freedom of e_r that are one number.
    """

    errors: np.ndarray
    counts: float
    shared: np.ndarray
    sums: float
    seeds: float
    pooled: float = math.nan


def seed_errors(rows: Sequence[RowErrors], weights: Sequence[float]) -> SeedErrors:
    """The errors of sum_r w_r m_r, where m_r is a mean over seeds with standard error e_r, for each row.

        V = (1 - rho) sum_r w_r^2 e_r^2 + rho (sum_r w_r e_r)^2

    rho is one correlation of the scores of one seed on two rungs for all rows, that with which V is on average the
    variance of the weighted means themselves, plus its standard error 1 / sqrt(N), N the number of products it is
    made of. With c_r the part of V that is the rung's, sum_r c_r = 1, and rho^2 the correlation of two e_r^2, the
    degrees of freedom are d = (min n_r - 1) / ((1 - rho^2) sum_r c_r^2 + rho^2): Satterthwaite's where rho = 0; with
    one e for all rungs from k of them, d = sum_k (n_k - 1) / (1 + (k - 1) rho^2).

    >>> each = np.full(2, 0.1)
    >>> two = seed_errors([RowErrors(each, 3, each, 0.005, 3)] * 50, [0.5, 0.5])
    >>> float(two.variance[0].round(4)), float(two.freedom[0].round(1))
    (0.0055, 4.0)
    """
    counts = np.array([row.counts for row in rows], float)
    pooled = np.array([row.pooled for row in rows], float)
    shape = len(rows), len(weights)
    shares, shared = (np.asarray(weights, float) * np.reshape([getattr(row, key) for row in rows], shape)
                      for key in ("errors", "shared"))
    apart, together = (shares**2).sum(axis=1), shares.sum(axis=1) ** 2
    least = counts - 1
    if shape[1] == 1:
        return SeedErrors(apart, least, counts)
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = _correlation(shared, rows)
        variance = (1 - rho) * apart + rho * together
        parts = ((1 - rho) * shares**2 + rho * shares * shares.sum(axis=1, keepdims=True)) / variance[:, None]
        freedom = least / ((1 - rho**2) * (parts**2).sum(axis=1) + rho**2)
    freedom = np.where(variance > 0, freedom, least)
    wide = np.maximum(1, np.isfinite(shared).sum(axis=1))
    return SeedErrors(variance, np.where(np.isnan(pooled), freedom, pooled / (1 + (wide - 1) * rho**2)), counts)


def _correlation(shared: np.ndarray, rows: Sequence[RowErrors]) -> float:
    """rho, from the rungs that several seeds of a row have in common; 1 where there is nothing that tells it."""
    sums, wide = np.array([row.sums for row in rows], float), np.isfinite(shared).sum(axis=1)
    apart, together = np.nansum(shared**2, axis=1), np.nansum(shared, axis=1) ** 2
    told = (apart > 0) & (wide > 1) & np.isfinite(sums)
    products = float(sum((row.seeds - 1) * n * (n - 1) / 2 for row, n, one in zip(rows, wide, told) if one))
    size = apart[told] + apart[told].mean() if told.any() else apart[told]  # no row counts for many
    above = ((sums - apart)[told] / size).sum()
    most = ((together - apart)[told] / size).sum()
    return float(np.clip(above / most + 1 / np.sqrt(products), 0, 1)) if products and most > 0 else 1.0


class SeedScores:
    """The scores of all runs by row, cell and seed, from which the errors of weighted means over cells are made."""

    def __init__(self, runs: pd.DataFrame, metric: str) -> None:
        self.scores: dict[tuple[tuple[str, ...], Cell], dict[int, float]] = {}
        for *row, dataset, split, seed, score in runs[[*ROW, "dataset", "split", "seed", metric]].dropna(
                subset=[metric]).itertuples(index=False, name=None):
            self.scores.setdefault((tuple(row), (dataset, int(split))), {})[seed] = float(score)

    def errors(self, weights: Mapping[Cell, float], rows: Sequence[tuple[str, ...]]) -> SeedErrors:
        """The errors of each row's weighted mean over these cells.

        From the seeds that have all cells of a dataset; where there are fewer than two, but several on some cells, the
        score of one seed varies on every cell as on these: s^2 = sum_r (n_r - 1) s_r^2 / sum_r (n_r - 1). That is
        known of each dataset D by itself, so that of several d = (sum_D V_D)^2 / sum_D (V_D^2 / d_D) at most.
        """
        found = seed_errors([self._of_row(row, weights) for row in rows], list(weights.values()))
        datasets = dict.fromkeys(name for name, _ in weights)
        if len(datasets) == 1:
            return found
        apart = [self.errors({cell: weight for cell, weight in weights.items() if cell[0] == name}, rows)
                 for name in datasets]
        with np.errstate(invalid="ignore", divide="ignore"):
            most = sum(one.variance for one in apart) ** 2 / sum(one.variance**2 / one.freedom for one in apart)
        return replace(found, freedom=np.where(found.counts == 1, np.fmin(found.freedom, most), found.freedom))

    def _of_row(self, row: tuple[str, ...], weights: Mapping[Cell, float]) -> RowErrors:
        scores = [self.scores.get((row, cell), {}) for cell in weights]
        errors, counts, pooled = np.full(len(scores), np.nan), np.zeros(len(scores)), 0
        datasets: dict[str, list[int]] = {}
        for place, (name, _) in enumerate(weights):
            datasets.setdefault(name, []).append(place)
        for places in datasets.values():
            here = [scores[i] for i in places]
            seeds = _in_common(here)
            counts[places] = len(seeds)
            if len(seeds) > 1:
                errors[places] = [_error(one, seeds) for one in here]
            elif seeds:
                errors[places], freedom = _error_of_one(here)
                pooled += freedom
        several = [i for i, one in enumerate(scores) if len(one) > 1] if pooled else list(range(len(scores)))
        common = _in_common(scores[i] for i in several)
        cells = list(zip(weights.values(), scores))
        if len(common) < 2 and not pooled:  # each dataset has seeds of its own, whose trainings are independent
            sums = sum(_variance([cells[i] for i in places]) for places in datasets.values())
            return RowErrors(errors, counts.min(), errors, sums, counts.min())
        shared = np.full(len(scores), np.nan)
        if len(common) > 1:
            shared[several] = [_error(scores[i], common) for i in several]
        sums = _variance([cells[i] for i in several])
        return RowErrors(errors, counts.min(), shared, sums, len(common), pooled or math.nan)


def _in_common(scores: Iterable[dict[int, float]]) -> list[int]:
    """The seeds that all of some cells have."""
    found = [set(one) for one in scores]
    return sorted(set.intersection(*found)) if found else []


def _error(scores: dict[int, float], seeds: Collection[int]) -> float:
    """The standard error of the mean over these seeds."""
    return float(np.std([scores[seed] for seed in seeds], ddof=1) / np.sqrt(len(seeds)))


def _error_of_one(cells: Iterable[dict[int, float]]) -> tuple[float, int]:
    """(s of one training's score, its degrees of freedom) from the cells that have several seeds; (NaN, 0) without.

    >>> _error_of_one([{0: 1.0, 1: 2.0, 2: 3.0}, {0: 5.0}])
    (1.0, 2)
    """
    several = [list(scores.values()) for scores in cells if len(scores) > 1]
    freedoms = [len(scores) - 1 for scores in several]
    if not several:
        return math.nan, 0
    return math.sqrt(np.average([np.var(scores, ddof=1) for scores in several], weights=freedoms)), sum(freedoms)


def _variance(cells: list[tuple[float, dict[int, float]]]) -> float:
    """The variance of the mean over seeds of a weighted sum of scores by seed; NaN without two seeds that have all."""
    shared = _in_common(scores for _, scores in cells)
    sums = [sum(weight * scores[seed] for weight, scores in cells) for seed in shared]
    return float(np.var(sums, ddof=1) / len(sums)) if len(sums) > 1 else float("nan")
