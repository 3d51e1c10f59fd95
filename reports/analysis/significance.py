"""Ranks that say what they do not know: rows whose difference may be chance share them, and how stable each one is.

The error of a difference of two rows has two sources. The test set is finite: `resampling` gives the variance over
resampled classes, the same draw for both. Training is random: each row adds s^2 / n over its n seeds, where s^2, which
three seeds hardly tell, is drawn towards that of the other rows. The two are added and tested by Student's t with
Welch's degrees of freedom; p-values are corrected by Holm over all pairs of a column. A row with one seed adds no
second part, and one without results of its queries no first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from reports.aggregate import Board
from reports.analysis.resampling import Resamples
from reports.analysis.statistics import ALPHA, holm, moderated


@dataclass(frozen=True)
class Errors:
    """Variances of the rows of a column, and of the differences between any two of them, with degrees of freedom."""

    own: np.ndarray
    own_freedom: np.ndarray
    pair: np.ndarray
    freedom: np.ndarray

    def half_widths(self, level: float = 0.95) -> np.ndarray:
        """Half of each row's interval; NaN where nothing is known of its error."""
        return stats.t.ppf((1 + level) / 2, self.own_freedom) * np.sqrt(self.own)

    def pair_half_widths(self, level: float = 0.95) -> np.ndarray:
        """Half of the interval of each difference."""
        return stats.t.ppf((1 + level) / 2, self.freedom) * np.sqrt(self.pair)


def errors(drawn: np.ndarray, stds: np.ndarray, counts: np.ndarray, classes: int) -> Errors:
    """The errors of rows with `drawn` scores (rows, draws), deviations over seeds and numbers of seeds.

    `classes` is the number of classes that were drawn; a row of NaN in `drawn` has no queries, and then both
    variances are of the seeds alone.
    """
    m = len(stds)
    drawn = np.asarray(drawn, float).reshape(m, -1)
    covariance = np.atleast_2d(np.cov(drawn)) if drawn.shape[1] > 1 else np.full((m, m), np.nan)
    diagonal = np.diag(covariance)
    with np.errstate(invalid="ignore", divide="ignore"):
        seeds = np.where(counts > 1, stds**2 / counts, np.nan)
    by_class = np.maximum(0.0, diagonal[:, None] + diagonal[None, :] - 2 * covariance)
    own, own_freedom = _combined([(diagonal, np.full(m, max(1, classes - 1))), (seeds, np.maximum(1, counts - 1))])
    square = np.ones((m, m))
    variances, freedoms = moderated(np.where(counts > 1, stds**2, np.nan), counts - 1)
    ours, ours_freedom = (variances / np.maximum(1, counts))[:, None] * square, freedoms[:, None] * square
    pair, freedom = _combined([(by_class, square * max(1, classes - 1)), (ours, ours_freedom),
                               (ours.T, ours_freedom.T)])
    # seeds of one row alone do not bound a difference
    known = ~np.isnan(by_class) | ~(np.isnan(seeds)[:, None] | np.isnan(seeds)[None, :])
    return Errors(own, own_freedom, np.where(known, pair, np.nan), freedom)


def _combined(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """The sum of the variances that are known, and Welch and Satterthwaite's degrees of freedom of it."""
    total, below = np.zeros(parts[0][0].shape), np.zeros(parts[0][0].shape)
    known = np.zeros(total.shape, bool)
    for variance, freedom in parts:
        there = ~np.isnan(variance)
        total[there] += variance[there]
        below[there] += variance[there] ** 2 / np.maximum(1, freedom[there])
        known |= there
    freedom = np.where(below > 0, total**2 / np.where(below > 0, below, 1), np.inf)
    return np.where(known, total, np.nan), freedom


def p_values(values: np.ndarray, spread: Errors) -> np.ndarray:
    """Two-sided p-values of all differences, corrected by Holm; NaN where nothing is known, 1 on the diagonal."""
    difference = np.abs(values[:, None] - values[None, :])
    with np.errstate(invalid="ignore", divide="ignore"):
        p = 2 * stats.t.sf(difference / np.sqrt(spread.pair), spread.freedom)
    p = np.where(difference == 0, 1.0, np.where(spread.pair == 0, 0.0, p))
    upper = np.triu_indices(len(values), 1)
    adjusted = np.eye(len(values))
    adjusted[upper] = holm(p[upper])
    adjusted.T[upper] = adjusted[upper]
    return adjusted


def rank_ranges(values: np.ndarray, p: np.ndarray, alpha: float = ALPHA) -> tuple[np.ndarray, np.ndarray]:
    """(first, last) place each row may hold: behind those that are surely better, before those surely worse.

    Where no error is known the order of the scores decides.

    >>> first, last = rank_ranges(np.array([0.9, 0.8, 0.1]), np.array([[1, 0.3, 0], [0.3, 1, 0], [0, 0, 1]]))
    >>> [f"{a}-{b}" for a, b in zip(first.tolist(), last.tolist())]
    ['1-2', '1-2', '3-3']
    """
    sure = np.isnan(p) | (p < alpha)
    better = sure & (values[:, None] < values[None, :])
    worse = sure & (values[:, None] > values[None, :])
    return 1 + better.sum(axis=1), len(values) - worse.sum(axis=1)


def tie_groups(values: np.ndarray, p: np.ndarray, alpha: float = ALPHA) -> np.ndarray:
    """1 for the best row and all that do not differ from it significantly, 2 for the next such group, else 0."""
    groups = np.zeros(len(values), int)
    for number in (1, 2):
        left = np.flatnonzero(groups == 0)
        if len(left) == 0:
            break
        best = left[np.argmax(values[left])]
        like = np.isnan(p[best]) & (values == values[best]) | (p[best] >= alpha)
        groups[[i for i in left if like[i] or i == best]] = number
    return groups


def stability(values: np.ndarray, drawn: np.ndarray, stds: np.ndarray, counts: np.ndarray) -> np.ndarray | None:
    """(rows, rows): how often each row takes each place when classes and the chance of training are redrawn.

    A draw of a row is its score under resampled classes, moved by a normal error of s / sqrt(n); a row whose classes
    cannot be redrawn is moved by its seeds alone. None where no row moves at all.
    """
    draws = drawn.shape[1]
    around = np.nan_to_num(drawn - drawn.mean(axis=1, keepdims=True))
    error = np.where(counts > 1, stds, 0.0) / np.sqrt(np.maximum(counts, 1))
    noise = np.random.default_rng(0).standard_normal((len(values), draws)) * np.nan_to_num(error)[:, None]
    moved = around + noise
    if not np.any(moved):
        return None
    places = stats.rankdata(-(values[:, None] + moved), method="min", axis=0).astype(int)
    return np.array([np.bincount(row - 1, minlength=len(values)) for row in places]) / draws


def board_draws(board: Board, resamples: Resamples,
                ladders: dict[str, tuple[tuple[int, float], ...]]) -> dict[tuple[str, str], np.ndarray]:
    """The AGS of the board's rows under resampled classes, of each dataset and their mean, by (statistic, part)."""
    drawn = {("ags", name): resamples.ags(name, ladders[name], board.keys) for name in board.parts("ags")}
    mean = np.mean(list(drawn.values()), axis=0) if drawn else np.zeros((len(board), resamples.draws))
    return drawn | {("mean", ""): mean}


def with_ties(board: Board, by: tuple[str, str], drawn: dict[tuple[str, str], np.ndarray], classes: int) -> Board:
    """A ranked board with the facts `rank:low`, `rank:high`, and each score with `low`, `high` and `group`.

    `drawn` holds the draws of the board's rows for the scores that have some, by (statistic, part); `by` is the score
    of the ranks. All rows must be of one ranking.
    """
    ranks = board.rows["rank"].notna().to_numpy()
    scores: list[pd.DataFrame] = []
    facts: dict[str, Any] = {}
    for key in board.scores[["statistic", "part"]].drop_duplicates().itertuples(index=False, name=None):
        column = board.column(*key).assign(statistic=key[0], part=key[1])
        values, empty = column["score"].to_numpy(float), np.full((len(board), 2), np.nan)
        counts = column["n"].fillna(0).to_numpy(float)
        spread = errors(drawn.get(key, empty), column["std"].to_numpy(float), counts, classes)
        half = spread.half_widths()
        rows = np.flatnonzero(ranks & ~np.isnan(values))
        part = Errors(*(side[rows] if side.ndim == 1 else side[np.ix_(rows, rows)] for side in
                        (spread.own, spread.own_freedom, spread.pair, spread.freedom)))
        p = p_values(values[rows], part)
        groups = np.full(len(board), np.nan)
        groups[rows] = tie_groups(values[rows], p) if len(rows) > 1 else 0
        scores.append(column.assign(low=values - half, high=values + half, group=groups).reset_index())
        if key == by:
            first, last = np.full(len(board), np.nan), np.full(len(board), np.nan)
            first[rows], last[rows] = rank_ranges(values[rows], p)
            facts = {"rank:low": first, "rank:high": last,
                     "rank:tested": bool(len(rows) < 2 or not np.isnan(p).any())}
    return replace(board, rows=board.rows.assign(**facts), scores=pd.concat(scores, ignore_index=True))
