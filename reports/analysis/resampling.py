"""How scores move when the classes of the test side are drawn anew: the error that a finite test set leaves.

Queries of one class are not independent, so whole classes are drawn. All rows see the same draw, which is what makes
their differences paired. A class that several rungs share is drawn once for all of them where the queries name their
classes; where they do not, rungs are drawn apart.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Sequence

import numpy as np
import pandas as pd

from reports import ReportError
from reports.selection import ROW
from reports.storage.by_class import ByClass, Reader

DRAWS = 1000
SOME = 2
"""Classes below which every draw is the same: that says nothing of other classes, and is no error of zero."""


class Resamples:
    """Scores of every row under resampled classes, rung by rung."""

    def __init__(self, draws: int = DRAWS) -> None:
        self.draws = draws
        self.rungs: dict[tuple[str, int], dict[tuple[str, ...], np.ndarray]] = {}
        self.classes: dict[tuple[str, int], int] = {}
        self.parts: dict[tuple[str, int], dict[str, dict[tuple[str, ...], np.ndarray]]] = {}

    @classmethod
    def of(cls, runs: pd.DataFrame, metrics: Sequence[str], draws: int = DRAWS) -> dict[str, Resamples]:
        """Those of some runs by metric; each run's queries, in thousands of files, are opened once for all metrics."""
        made = {metric: cls(draws) for metric in metrics}
        for dataset, group in runs.groupby("dataset", sort=True):
            reader, table = Reader(*metrics), _Draws(str(dataset), draws)
            weights = {metric: _Weights(table) for metric in metrics}
            for split, cell in group.groupby("split", sort=True):
                for metric, by_row in _by_row(cell, reader).items():
                    made[metric]._rung((str(dataset), int(split)), by_row, weights[metric])  # type: ignore[arg-type]
        return made

    def _rung(self, key: tuple[str, int], by_row: dict[tuple[str, ...], list[ByClass]], weights: _Weights) -> None:
        first = _usual([one for runs in by_row.values() for one in runs])
        if len(first.keys) < SOME:
            return
        kept = {row: [one for one in runs if _alike(one, first)] for row, runs in by_row.items()}
        kept = {row: runs for row, runs in kept.items() if runs}
        hits = np.array([np.mean([one.hits for one in runs], axis=0) for runs in kept.values()], np.float32)
        drawn = weights.of([f"{key[1]}:{name}" if first.keys.dtype.kind in "iu" else str(name) for name in first.keys])
        self.rungs[key] = dict(zip(kept, _redrawn(hits, first.queries, drawn)))
        self.classes[key] = len(first.keys)
        within = {row: [one.part_hits for one in runs if one.part_hits is not None] for row, runs in kept.items()}
        within = {row: results for row, results in within.items() if results}
        if first.parts is None or not within:
            return
        hits = np.array([np.mean(results, axis=0) for results in within.values()], np.float32)
        self.parts[key] = {str(part): dict(zip(within, _redrawn(hits[:, here], first.queries[here], drawn[here])))
                           for part in np.unique(first.parts) for here in [first.parts == part] if here.sum() >= SOME}

    def scores(self, dataset: str, split: int, rows: Sequence[tuple[str, ...]]) -> np.ndarray:
        """(rows, draws) of a rung; NaN for a row without queries."""
        there = self.rungs.get((dataset, split), {})
        empty = np.full(self.draws, np.nan, np.float32)
        return np.array([there.get(row, empty) for row in rows], np.float32).reshape(len(rows), self.draws)

    def union(self, dataset: str, split: int, parts: Sequence[str],
              rows: Sequence[tuple[str, ...]]) -> dict[tuple[str, str], np.ndarray]:
        """(rows, draws) of every score of a union by (statistic, part): its parts, unified, and means over the parts.

        All scores see the same draw; the means are there where every part kept its queries.
        """
        drawn = {("unified", ""): self.scores(dataset, split, rows)}
        known = self.parts.get((dataset, split), {})
        empty = np.full(self.draws, np.nan, np.float32)
        for part in parts if known else ():
            drawn["recall", part] = np.array([known.get(part, {}).get(row, empty) for row in rows], np.float32)
        if known and parts:
            scores = np.stack([drawn["recall", part] for part in parts])
            drawn["arithmetic", ""] = scores.mean(axis=0)
            with np.errstate(divide="ignore"):
                drawn["harmonic", ""] = len(parts) / (1 / scores).sum(axis=0)
        return drawn

    def ags(self, dataset: str, ladder: Sequence[tuple[int, float]], rows: Sequence[tuple[str, ...]]) -> np.ndarray:
        """(rows, draws) of AGS, which is a weighted mean of the rungs' scores; NaN for a row that lacks a rung."""
        weights = ags_weights([frd for _, frd in ladder])
        total = np.zeros((len(rows), self.draws), np.float32)
        for (split, _), weight in zip(ladder, weights):
            total += np.float32(weight) * self.scores(dataset, split, rows)
        return total


def _by_row(cell: pd.DataFrame, reader: Reader) -> dict[str, dict[tuple[str, ...], list[ByClass]]]:
    """The results of the runs of a rung by metric and row, of those that kept them; damaged ones are left out."""
    found: dict[str, dict[tuple[str, ...], list[ByClass]]] = {}
    for *row, path in cell[[*ROW, "path"]].itertuples(index=False, name=None):
        try:
            results = reader.read(path)
        except ReportError as error:
            warnings.warn(f"left out of the errors of scores: {error}", stacklevel=2)
            continue
        for metric, one in results.items():
            found.setdefault(metric, {}).setdefault(tuple(row), []).append(one)
    return found


def _usual(runs: Sequence[ByClass]) -> ByClass:
    """A run with the test side that most of them have: one that was tested otherwise loses its own errors alone.

    Of a union one that tells the parts of its classes, which files of earlier versions do not.
    """
    sides: list[list[ByClass]] = []
    for run in runs:
        same = next((side for side in sides if _alike(run, side[0])), None)
        if same is None:
            sides.append(same := [])
        same.append(run)
    most = max(sides, key=len)
    return next((run for run in most if run.parts is not None), most[0])


def _alike(one: ByClass, two: ByClass) -> bool:
    """Whether two runs have the same queries of the same classes."""
    same = one.keys is two.keys and one.queries is two.queries  # as those that a reader read once for all runs
    return same or (np.array_equal(one.keys, two.keys) and np.array_equal(one.queries, two.queries))


def _redrawn(hits: np.ndarray, queries: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """(rows, draws) of scores from (rows, classes) of hits, the queries of each class and how often it is drawn."""
    total = queries.astype(np.float32) @ drawn
    # a draw in which no class came (possible where there is but a handful) says nothing: it keeps the score
    plain = hits.sum(axis=1, keepdims=True) / queries.sum()
    return np.where(total > 0, (hits @ drawn) / np.maximum(total, 1), plain).astype(np.float32)


def ags_weights(fids: Sequence[float]) -> np.ndarray:
    """w with AGS = sum_i w_i s_i: half the distance between a rung's two neighbours, of the whole ladder.

    >>> ags_weights([10, 20, 50]).tolist()
    [0.125, 0.5, 0.375]
    """
    x = np.asarray(fids, float)
    order = np.argsort(x, kind="stable")
    gaps = np.diff(x[order])
    weights = np.zeros(len(x))
    weights[order[:-1]] += gaps / 2
    weights[order[1:]] += gaps / 2
    return weights / gaps.sum()


class _Draws:
    """Independent Poisson(1) counts, the bootstrap of many classes: a row for each class, drawn when it is asked for.
    """

    def __init__(self, dataset: str, draws: int) -> None:
        self.generator = np.random.default_rng(zlib.crc32(dataset.encode()))
        self.table = np.zeros((0, draws), np.uint8)

    def rows(self, places: list[int]) -> np.ndarray:
        lacking = max(places, default=-1) + 1 - len(self.table)
        if lacking > 0:
            more = self.generator.poisson(1.0, (lacking, self.table.shape[1])).astype(np.uint8)
            self.table = np.concatenate([self.table, more])
        return self.table[places].astype(np.float32)


class _Weights:
    """How often each class is drawn in each draw; classes have the rows of the draws in the order in which they come.
    """

    def __init__(self, draws: _Draws) -> None:
        self.draws = draws
        self.places: dict[str, int] = {}

    def of(self, keys: Sequence[str]) -> np.ndarray:
        return self.draws.rows([self.places.setdefault(key, len(self.places)) for key in keys])
