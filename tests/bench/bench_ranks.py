"""Ranks of boards whose truth is known: how often equal rows are told apart, and how narrow the ranges of ranks are.

A simulated board has the shape of the published ones: 40 rows of one backbone and 23 of another, in blocks of rows
that are equally good. The column "other" has the same boards with variances over seeds of the whole score, compared
over all backbones on the raw scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from reports.analysis import significance
from reports.analysis.resampling import ags_weights
from reports.analysis.seeds import RowErrors, SeedErrors, seed_errors
from reports.analysis.statistics import ALPHA
from tests.bench import Row

KINDS = ("ladder", "union")
UNSTEADY = {"15 % unsteady": 0.15, "40 % unsteady": 0.4, "60 % unsteady": 0.6}
"""Boards on which so many rows vary eight times as much over seeds as the others of their backbone."""
PATTERNS = ("equal", "backbones", "heteroscedastic", *UNSTEADY)
SEEDS = (3, 5)
BLOCKS = {"ladder": (((0.70, 14), (0.66, 8), (0.56, 12), (0.30, 6)), ((0.71, 4), (0.58, 4))),
          "union": (((0.83, 12), (0.79, 10), (0.70, 12), (0.50, 6)), ((0.958, 12), (0.945, 11)))}
"""(true score, how many rows have it) of the two backbones."""
LADDER = (98.0, 131.0, 172.0, 236.0, 309.0)
CLASSES, DRAWS = 60, 200
EXPECTED = 500
"""Further seeds from which the expected score of a row of a union is known."""


@dataclass(frozen=True)
class SimulatedBoard:
    """The scores of a board under seeds and resampled classes, and what is true of it."""

    truth: np.ndarray
    backbones: np.ndarray
    values: np.ndarray
    stds: np.ndarray
    seeds: int
    drawn: np.ndarray
    over_seeds: SeedErrors | None


def deviations(pattern: str, backbones: np.ndarray, truth: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The standard deviation of each row over seeds."""
    steady = np.where(backbones == 0, 0.012, 0.002 if truth.max() > 0.9 else 0.006)
    if pattern == "equal":
        return np.full(len(truth), 0.008)
    if pattern == "heteroscedastic":
        return steady * np.exp(rng.normal(0, 0.6, len(truth)))
    if pattern in UNSTEADY:
        return steady * np.where(rng.random(len(truth)) < UNSTEADY[pattern], 5.0, 0.6)
    return steady


def simulated(kind: str, pattern: str, seeds: int, rng: np.random.Generator,
              correlation: float = 0.2) -> SimulatedBoard:
    """One board. On a ladder the scores of a seed on two rungs are correlated, and classes add an error of their own.

    A union has no results of its parts' queries, as the published one; its score is the harmonic mean of eight parts.
    """
    blocks = BLOCKS[kind]
    truth = np.concatenate([np.repeat(score, count) for rows in blocks for score, count in rows])
    backbones = np.repeat([0, 1], [sum(count for _, count in rows) for rows in blocks])
    m, spread = len(truth), deviations(pattern, backbones, truth, rng)
    if kind == "union":
        parts = np.linspace(-0.5, 0.5, 8) * (1 - truth)[:, None]
        level = 8 / (1 / (truth[:, None] + parts)).sum(axis=1)
        noise = rng.standard_normal((m, seeds + EXPECTED, 8)) * np.sqrt(8) * spread[:, None, None]
        scores = 8 / (1 / np.clip(truth[:, None, None] + parts[:, None, :] + noise, 0.02, 1)).sum(axis=2)
        # noise in its parts lowers a harmonic mean: rows that vary differently are equal where it is made up for
        scores = scores[:, :seeds] + (level - scores[:, seeds:].mean(axis=1))[:, None]
        return SimulatedBoard(level.round(9), backbones, scores.mean(1), scores.std(1, ddof=1), seeds,
                              np.full((m, 2), np.nan), None)
    weights, rungs = ags_weights(LADDER), len(LADDER)
    shared, own = rng.standard_normal((m, seeds, 1)), rng.standard_normal((m, seeds, rungs))
    noise = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own
    noise *= spread[:, None, None] * rng.uniform(0.6, 1.4, (m, 1, rungs)) / np.sqrt((weights**2).sum())
    fall = np.linspace(0.08, -0.08, rungs)
    by_class = rng.normal(0, 0.15, CLASSES) + rng.normal(0, 0.04, (m, CLASSES))
    scores = truth[:, None, None] + (fall - weights @ fall) + noise + by_class.mean(1)[:, None, None]
    whole = scores @ weights
    drawn = rng.poisson(1.0, (CLASSES, DRAWS))
    drawn = (truth[:, None] * drawn.sum(0) + by_class @ drawn) / drawn.sum(0)
    each = scores.std(1, ddof=1) / np.sqrt(seeds)
    errors = seed_errors([RowErrors(one, seeds, one, sums, seeds) for one, sums in
                          zip(each, whole.var(1, ddof=1) / seeds)], weights.tolist())
    return SimulatedBoard(truth, backbones, whole.mean(1), whole.std(1, ddof=1), seeds, drawn, errors)


def judged(board: SimulatedBoard, before: bool = False) -> list[tuple[bool, float, float, int]]:
    """For each backbone: whether any two equal rows were told apart, the power, the width of ranks, the ties for best.

    The power is the share of the pairs of different rows that are told apart.
    """
    counts = np.full(len(board.truth), float(board.seeds))
    spread = significance.errors(board.drawn, board.stds, counts, CLASSES) if before else significance.errors(
        board.drawn, board.stds, counts, CLASSES, board.values, board.backbones.astype(str).tolist(), board.over_seeds)
    told = []
    for backbone in np.unique(board.backbones):
        rows = np.flatnonzero(board.backbones == backbone)
        values, truth = board.values[rows], board.truth[rows]
        p = significance.p_values(values, spread.of(rows))
        first, last = significance.rank_ranges(values, p)
        equal, other = (np.triu(alike, 1) for alike in (truth[:, None] == truth, truth[:, None] != truth))
        told.append((bool((p[equal] < ALPHA).any()), float((p[other] < ALPHA).mean()),
                     float((last - first + 1).mean()),
                     int((significance.tie_groups(values, p) == 1).sum())))
    return told


def familywise(kind: str, pattern: str, seeds: int, boards: int, before: bool = False, start: int = 0) -> np.ndarray:
    """(error, power, width, tied with the best) over boards: the larger error of the two rankings, else their mean."""
    rng = np.random.default_rng([start, KINDS.index(kind), PATTERNS.index(pattern), seeds])
    found = np.mean([judged(simulated(kind, pattern, seeds, rng), before) for _ in range(boards)], axis=0)
    return np.array([found[:, 0].max(), *found[:, 1:].mean(axis=0)])


def measure(device: str) -> Iterator[Row]:
    """The familywise error (at most 6 %), the power, the mean width of ranks, and how many rows tie with the best."""
    for kind in KINDS:
        for pattern in PATTERNS:
            for seeds in SEEDS:
                now, old = (familywise(kind, pattern, seeds, 300, before) for before in (False, True))
                name = f"{kind}, {pattern}, {seeds} seeds"
                yield Row(f"{name}: familywise error", 100 * now[0], 100 * old[0], "before", 6, "%")
                yield Row(f"{name}: power", 100 * now[1], 100 * old[1], "before", unit="%")
                yield Row(f"{name}: mean width of ranks", now[2], old[2], "before", unit="#")
                yield Row(f"{name}: tied with the best", now[3], old[3], "before", unit="#")
