"""Ranks that say what they do not know: rows whose difference may be chance share them, and how stable each one is.

The error of a difference of two rows has two sources. The test set is finite: `resampling` gives the variance over
resampled classes, the same draw for both. Training is random: each row adds s^2 / n over its n seeds; s^2 of AGS is the
weighted sum of the rungs' own variances (`seeds`). Three seeds hardly tell s^2, so it is drawn towards that of the
other rows of its backbone, on the logit scale where scores lie in [0, 1]: near 1 all rows are steady. The two sources
are added and tested by Student's t with Welch's degrees of freedom; p-values are corrected by Holm over all pairs of a
column in one ranking. A row with one seed takes the variance that it has on other splits or, with one seed on all, that
which rows of its backbone with several have on average, or else all rows; where no row has several seeds there is no
second part, and without results of queries no first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from reports.analysis.resampling import Resamples, ags_weights
from reports.analysis.seeds import SeedErrors, SeedScores
from reports.analysis.statistics import ALPHA, CUT, holm, moderated, pooled
from reports.board import Board, fractions, in_unit

SLOPE = 1e-3
"""The least slope m (1 - m) of the logit scale: a score of exactly 0 or 1 would have none."""


@dataclass(frozen=True)
class Errors:
    """Variances of the rows of a column, and of the differences between any two of them, with degrees of freedom.

    `own` is of what is known of a row alone; `seeds` is the variance over seeds that differences are tested with,
    drawn towards that of the other rows.
    """

    own: np.ndarray
    own_freedom: np.ndarray
    seeds: np.ndarray
    seeds_freedom: np.ndarray
    pair: np.ndarray
    freedom: np.ndarray

    def half_widths(self) -> np.ndarray:
        """Half of each row's interval; NaN where nothing is known of its error."""
        return special.stdtrit(self.own_freedom, CUT) * np.sqrt(self.own)

    def bounds(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(low, high) of each row's 95 % interval; of scores in [0, 1] within what a score can be."""
        half = self.half_widths()
        return fractions(values, values - half), fractions(values, values + half)

    def pair_half_widths(self) -> np.ndarray:
        """Half of the interval of each difference."""
        return special.stdtrit(self.freedom, CUT) * np.sqrt(self.pair)

    def of(self, rows: np.ndarray) -> Errors:
        """Those of some rows alone."""
        return Errors(self.own[rows], self.own_freedom[rows], self.seeds[rows], self.seeds_freedom[rows],
                      self.pair[np.ix_(rows, rows)], self.freedom[np.ix_(rows, rows)])


def errors(drawn: np.ndarray, stds: np.ndarray, counts: np.ndarray, classes: int, values: np.ndarray | None = None,
           groups: Sequence[str] | None = None, over_seeds: SeedErrors | None = None,
           random: np.ndarray | None = None) -> Errors:
    """The errors of rows from their scores under resampled classes and their deviations over seeds.

    Args:
        drawn: (rows, draws) of scores; a row of NaN has no queries, and then both variances are of the seeds alone.
        stds: deviations over seeds.
        counts: numbers of seeds.
        classes: how many classes were drawn.
        values: the scores; where all lie in [0, 1] variances are compared on the logit scale.
        groups: the backbone of each row, within which variances are compared [default: all are alike].
        over_seeds: variances of the means over seeds, if known better than by `stds`.
        random: the rows that owe something to a seed [default: all], see `by_chance`. With one seed they take the
            variance of the others; the other rows have none.

    Returns:
        Variances and degrees of freedom of all rows and pairs.
    """
    m = len(stds)
    drawn = np.asarray(drawn, float).reshape(m, -1)
    covariance = np.atleast_2d(np.cov(drawn)) if drawn.shape[1] > 1 else np.full((m, m), np.nan)
    diagonal = np.diag(covariance)
    with np.errstate(invalid="ignore", divide="ignore"):
        plain = SeedErrors(np.where(counts > 1, stds**2 / counts, np.nan), counts - 1.0, counts)
    by_class = np.maximum(0.0, diagonal[:, None] + diagonal[None, :] - 2 * covariance)
    used = over_seeds or plain
    one, told = used.counts == 1, np.isfinite(used.variance)
    own, own_freedom = _combined([
        (diagonal, np.full(m, max(1, classes - 1))),
        (np.where(one & told, used.variance, plain.variance),
         np.maximum(1, np.where(one & told, used.freedom, plain.freedom)))])
    square = np.ones((m, m))
    slopes = _slopes(values) if values is not None else np.ones(m)
    by_seed = np.ones(m, bool) if random is None else np.asarray(random, bool)
    alone = one & ~told & by_seed
    known = used.variance * used.counts / slopes**2
    variances, freedoms = pooled(*moderated(known, used.freedom, groups), known, used.freedom, alone, groups)
    seeds = variances * slopes**2 / np.maximum(1, used.counts)
    fixed = one & ~told & ~by_seed
    seeds, freedoms = np.where(fixed, 0.0, seeds), np.where(fixed, np.inf, freedoms)
    ours, ours_freedom = seeds[:, None] * square, freedoms[:, None] * square
    pair, freedom = _combined([(by_class, square * max(1, classes - 1)), (ours, ours_freedom),
                               (ours.T, ours_freedom.T)])
    # seeds of one row alone do not bound a difference, and of two rows without any chance nothing is known
    unknown = np.isnan(seeds)[:, None] | np.isnan(seeds)[None, :] | fixed[:, None] & fixed[None, :]
    bounded = ~np.isnan(by_class) | ~unknown
    return Errors(own, own_freedom, seeds, freedoms, np.where(bounded, pair, np.nan), freedom)


def by_chance(rows: pd.DataFrame) -> np.ndarray:
    """Which rows owe something to a seed: what was trained, and networks whose weights were drawn.

    >>> by_chance(pd.DataFrame({"baseline": [False, True, True], "weights": ["a", "a", "scratch"]})).tolist()
    [True, False, True]
    """
    drawn = rows["weights"].eq("scratch").to_numpy() if "weights" in rows else False
    return ~rows["baseline"].to_numpy(bool) | drawn


def _slopes(values: np.ndarray) -> np.ndarray:
    """dm / d logit(m) = m (1 - m) of scores in [0, 1], else 1: a deviation divided by it is one of logits.

    >>> _slopes(np.array([0.5, 0.9, 1.0])).round(3).tolist(), _slopes(np.array([0.5, 7.0])).tolist()
    ([0.25, 0.09, 0.001], [1.0, 1.0])
    """
    if not in_unit(values):
        return np.ones(len(values))
    return np.maximum(SLOPE, np.nan_to_num(values * (1 - values)))


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
        p = 2 * special.stdtr(spread.freedom, -difference / np.sqrt(spread.pair))
    p = np.where(difference == 0, 1.0, np.where(spread.pair == 0, 0.0, p))
    upper = np.triu_indices(len(values), 1)
    adjusted = np.eye(len(values))
    adjusted[upper] = holm(p[upper])
    adjusted.T[upper] = adjusted[upper]
    return adjusted


def rank_ranges(values: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(first, last) place each row may hold: behind those that are surely better, before those surely worse.

    Where no error is known the order of the scores decides.

    >>> first, last = rank_ranges(np.array([0.9, 0.8, 0.1]), np.array([[1, 0.3, 0], [0.3, 1, 0], [0, 0, 1]]))
    >>> [f"{a}-{b}" for a, b in zip(first.tolist(), last.tolist())]
    ['1-2', '1-2', '3-3']
    """
    sure = np.isnan(p) | (p < ALPHA)
    better = sure & (values[:, None] < values[None, :])
    worse = sure & (values[:, None] > values[None, :])
    return 1 + better.sum(axis=1), len(values) - worse.sum(axis=1)


def tie_groups(values: np.ndarray, p: np.ndarray) -> np.ndarray:
    """1 for the best row and all that do not differ from it significantly, 2 for the next such group, else 0."""
    groups = np.zeros(len(values), int)
    for number in (1, 2):
        left = np.flatnonzero(groups == 0)
        if len(left) == 0:
            break
        best = left[np.argmax(values[left])]
        like = np.isnan(p[best]) & (values == values[best]) | (p[best] >= ALPHA)
        groups[[i for i in left if like[i] or i == best]] = number
    return groups


def stability(values: np.ndarray, drawn: np.ndarray, spread: Errors) -> np.ndarray | None:
    """(rows, rows): how often each row takes each place when classes and the chance of training are redrawn.

    A draw of a row is its score under resampled classes, moved by Student's t times the error over seeds, the same as
    in the tests of differences; a row whose classes cannot be redrawn is moved by its seeds alone. None where no row
    moves at all.
    """
    draws = drawn.shape[1]
    around = np.nan_to_num(drawn - drawn.mean(axis=1, keepdims=True))
    error = np.sqrt(np.nan_to_num(spread.seeds))[:, None]
    freedom = np.clip(np.nan_to_num(spread.seeds_freedom), 1, 1e6)[:, None]
    moved = around + np.random.default_rng(0).standard_t(freedom, (len(values), draws)) * error
    if not np.any(moved):
        return None
    places = pd.DataFrame(values[:, None] + moved).rank(method="min", ascending=False).to_numpy(int)
    return np.array([np.bincount(row - 1, minlength=len(values)) for row in places]) / draws


Key = tuple[str, str]
"""(statistic, part) of a column of a board."""
Ladders = Mapping[str, tuple[tuple[int, float], ...]]


def board_draws(board: Board, resamples: Resamples, ladders: Ladders) -> dict[Key, np.ndarray]:
    """The AGS of the board's rows under resampled classes, of each dataset and their mean, by (statistic, part)."""
    drawn = {("ags", name): resamples.ags(name, ladders[name], board.keys) for name in board.parts("ags")}
    mean = np.mean(list(drawn.values()), axis=0) if drawn else np.zeros((len(board), resamples.draws))
    return drawn | {("mean", ""): mean}


def board_seeds(board: Board, scores: SeedScores, ladders: Ladders) -> dict[Key, SeedErrors]:
    """The errors over seeds of AGS, from the rungs' own variances, of each dataset and their mean."""
    weights = {name: {(name, split): weight for (split, _), weight in
                      zip(ladders[name], ags_weights([frd for _, frd in ladders[name]]).tolist())}
               for name in board.parts("ags")}
    over_seeds = {("ags", name): scores.errors(cells, board.keys) for name, cells in weights.items()}
    if weights:
        whole = {cell: weight / len(weights) for cells in weights.values() for cell, weight in cells.items()}
        over_seeds["mean", ""] = scores.errors(whole, board.keys)
    return over_seeds


def column_errors(board: Board, key: Key, drawn: Mapping[Key, np.ndarray], classes: int | Mapping[Key, int],
                  over_seeds: Mapping[Key, SeedErrors] | None = None, column: pd.DataFrame | None = None) -> Errors:
    """The errors of one column of a board; variances over seeds are compared within a backbone."""
    column = board.column(*key) if column is None else column
    empty = np.full((len(board), 2), np.nan)
    count = classes if isinstance(classes, int) else classes[key]
    return errors(drawn.get(key, empty), column["std"].to_numpy(float), column["n"].fillna(0).to_numpy(float), count,
                  column["score"].to_numpy(float), board.rows["backbone"].astype(str).tolist(),
                  (over_seeds or {}).get(key), by_chance(board.rows))


def with_ties(board: Board, by: Key, drawn: Mapping[Key, np.ndarray], classes: int | Mapping[Key, int],
              over_seeds: Mapping[Key, SeedErrors] | None = None) -> Board:
    """A ranked board with the facts `rank:low`, `rank:high`, and each score with `low`, `high` and `group`.

    `rank:tested` says of which rows the ranks are, `rank:classes` of which with test classes resampled, `rank:seeds`
    of which with an error over seeds. Rows are held against those of their own `network` alone, the group that
    `Board.ranked` ranks.

    Args:
        board: rows of one protocol; a row without a rank takes no part.
        by: the (statistic, part) of the ranks.
        drawn: the scores of the board's rows under resampled classes, for the columns that have some.
        classes: how many classes were drawn, of all columns or of each.
        over_seeds: variances over seeds, of the columns where the deviation of the score is not the best there is.
    """
    ranks, networks = board.rows["rank"].notna().to_numpy(), board.rows["network"].astype(str).to_numpy()
    filled, found = board.filled(), []
    facts: dict[str, Any] = {}
    for start in range(0, len(filled), len(board)):
        column = filled[start:start + len(board)]
        key = column["statistic"].iloc[0], column["part"].iloc[0]
        values = column["score"].to_numpy(float)
        spread = column_errors(board, key, drawn, classes, over_seeds, column)
        groups, first, last = (np.full(len(board), np.nan) for _ in range(3))
        tested = np.ones(len(board), bool)
        for network in dict.fromkeys(networks[ranks]):
            rows = np.flatnonzero(ranks & (networks == network) & ~np.isnan(values))
            p = p_values(values[rows], spread.of(rows))
            groups[rows] = tie_groups(values[rows], p) if len(rows) > 1 else 0
            first[rows], last[rows] = rank_ranges(values[rows], p)
            tested[networks == network] = len(rows) < 2 or not np.isnan(p).any()
        found.append((*spread.bounds(values), groups))
        if key == by:
            facts = {"rank:low": first, "rank:high": last, "rank:tested": tested,
                     "rank:classes": np.isfinite(drawn.get(key, np.full((len(board), 1), np.nan))).all(axis=1),
                     "rank:seeds": np.isfinite(spread.seeds)}
    low, high, groups = map(np.concatenate, zip(*found))
    return replace(board, rows=board.rows.assign(**facts), scores=filled.assign(low=low, high=high, group=groups))
