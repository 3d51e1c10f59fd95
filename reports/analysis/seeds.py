"""The variance of a weighted mean of scores over seeds, where every score comes from a training of its own.

AGS is such a mean of the rungs' scores. Its variance from the few seeds alone has n - 1 degrees of freedom; the sum of
the rungs' own variances has nearly as many times more as there are rungs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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


def seed_errors(errors: np.ndarray, counts: np.ndarray, sums: np.ndarray, weights: Sequence[float]) -> SeedErrors:
    """The errors of sum_r w_r m_r, where m_r is a mean over seeds with standard error e_r, for each row.

        V = (1 - rho) sum_r w_r^2 e_r^2 + rho (sum_r w_r e_r)^2

    rho is one correlation of the scores of one seed on two rungs for all rows, that with which V is on average the
    variance of the weighted means themselves, plus its standard error 1 / sqrt(N), N the number of products it is
    made of. With c_r the part of V that is the rung's, sum_r c_r = 1, and rho^2 the correlation of two e_r^2, the
    degrees of freedom are d = (min n_r - 1) / ((1 - rho^2) sum_r c_r^2 + rho^2): Satterthwaite's where rho = 0.

    Args:
        errors: (rows, rungs) of e_r.
        counts: (rows, rungs) of the number of seeds.
        sums: for each row the variance of the mean of the weighted sums, computed seed by seed.
        weights: of the rungs.

    >>> two = seed_errors(np.full((50, 2), 0.1), np.full((50, 2), 3), np.full(50, 0.005), [0.5, 0.5])
    >>> float(two.variance[0].round(4)), float(two.freedom[0].round(1))
    (0.0055, 4.0)
    """
    shares = np.asarray(weights, float) * np.where(counts > 1, errors, np.nan)
    apart, together = (shares**2).sum(axis=1), shares.sum(axis=1) ** 2
    least = counts.min(axis=1) - 1.0
    rungs = shares.shape[1]
    if rungs == 1:
        return SeedErrors(apart, least, least + 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        told = (apart > 0) & np.isfinite(sums)
        products = float((least[told] * rungs * (rungs - 1) / 2).sum())
        size = apart[told] + apart[told].mean() if told.any() else apart[told]  # no row counts for many
        above = ((sums - apart)[told] / size).sum()
        most = ((together - apart)[told] / size).sum()
        rho = float(np.clip(above / most + 1 / np.sqrt(products), 0, 1)) if products and most > 0 else 1.0
        variance = (1 - rho) * apart + rho * together
        parts = ((1 - rho) * shares**2 + rho * shares * shares.sum(axis=1, keepdims=True)) / variance[:, None]
        freedom = least / ((1 - rho**2) * (parts**2).sum(axis=1) + rho**2)
    return SeedErrors(variance, np.where(variance > 0, freedom, least), least + 1)


class SeedScores:
    """The scores of all runs by row, cell and seed, from which the errors of weighted means over cells are made."""

    def __init__(self, runs: pd.DataFrame, metric: str) -> None:
        self.scores: dict[tuple[tuple[str, ...], Cell], dict[int, float]] = {}
        for *row, dataset, split, seed, score in runs[[*ROW, "dataset", "split", "seed", metric]].dropna(
                subset=[metric]).itertuples(index=False, name=None):
            self.scores.setdefault((tuple(row), (dataset, int(split))), {})[seed] = float(score)

    def errors(self, weights: Mapping[Cell, float], rows: Sequence[tuple[str, ...]]) -> SeedErrors:
        """The errors of each row's weighted mean over these cells, from the seeds that have all cells of a dataset."""
        cells = list(weights)
        shape = len(rows), len(cells)
        errors, counts, sums = np.full(shape, np.nan), np.zeros(shape), np.full(len(rows), np.nan)
        by_dataset = {name: [i for i, cell in enumerate(cells) if cell[0] == name] for name, _ in cells}
        for number, row in enumerate(rows):
            scores = [self.scores.get((row, cell), {}) for cell in cells]
            for places in by_dataset.values():
                seeds = sorted(set.intersection(*(set(scores[i]) for i in places)))
                for i in places:
                    counts[number, i] = len(seeds)
                    if len(seeds) > 1:
                        errors[number, i] = np.std([scores[i][seed] for seed in seeds], ddof=1) / np.sqrt(len(seeds))
            whole = _variance(list(zip(weights.values(), scores)))
            # without two seeds that all datasets have, the sums of each: their trainings are independent
            sums[number] = whole if np.isfinite(whole) else sum(
                _variance([(weights[cells[i]], scores[i]) for i in places]) for places in by_dataset.values())
        return seed_errors(errors, counts, sums, list(weights.values()))


def _variance(cells: list[tuple[float, dict[int, float]]]) -> float:
    """The variance of the mean over seeds of a weighted sum of scores by seed; NaN without two seeds that have all."""
    shared = sorted(set.intersection(*(set(scores) for _, scores in cells)))
    sums = [sum(weight * scores[seed] for weight, scores in cells) for seed in shared]
    return float(np.var(sums, ddof=1) / len(sums)) if len(sums) > 1 else float("nan")
