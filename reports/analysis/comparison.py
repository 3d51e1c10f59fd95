"""Two methods or more, cell by cell: paired differences with intervals, and who wins, ties and loses where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from reports.analysis import significance
from reports.analysis.results import Results, union_parts
from reports.analysis.significance import Errors
from reports.board import Board
from reports.tables.table import Column, Table

MOST = 120_000
"""Intervals that the page of comparisons carries, so that it stays below a megabyte."""
VERSUS = 20
"""Labels in a table of wins: more columns are not read."""


def offered(results: Results, metric: str, rows: Sequence[str]) -> tuple[list[str], int]:
    """Those of these rows that share a cell with another, as many as there is room for, and how many are left out."""
    together = _rows_of_cells(results, metric)
    known = set().union(*(labels for labels in together if len(labels) > 1))
    here, sizes, pairs = [row for row in rows if row in known], [0] * len(together), 0
    for place, label in enumerate(here):
        mine = [k for k, labels in enumerate(together) if label in labels]
        pairs += sum(sizes[k] for k in mine)
        if pairs > MOST:
            return here[:place], len(here) - place
        for k in mine:
            sizes[k] += 1
    return here, 0


def _rows_of_cells(results: Results, metric: str) -> list[set[str]]:
    """The labels in each cell that rows are compared on: rungs of datasets, parts of unions and their means."""
    cells = [set(rung["label"]) for dataset in results.datasets
             for _, rung in results.cells(dataset, metric).groupby("split")]
    return cells + [set(results.label(board.rows)) for _, board in _unions(results)
                    for _ in range(len(union_parts(board)) + 2)]


def _unions(results: Results) -> list[tuple[str, Board]]:
    """A board of each union with the rows of all protocols, submitted ones once, without what papers print."""
    found: dict[str, Board] = {}
    for dataset, protocol in product(results.unions, results.protocols):
        board = results.universal(dataset, protocol)
        if len(board):
            known = {*found[dataset].keys} if dataset in found else set()
            fresh = np.array([key not in known for key in board.keys])
            board = board.where(board.rows["source"].ne("published") & fresh)
            found[dataset] = found[dataset].joined(board) if dataset in found else board
    return [*found.items()]


def cells(results: Results, labels: list[str], metric: str) -> list[dict[str, Any]]:
    """For each rung of each dataset the scores of the labels and half of the interval of each difference.

    Of a union there is one for each part, then `unified` and `harmonic`; they have no distance, and all but the last,
    by which its board ranks, are a `part`: a union is one test set, which counts once. `half` is the upper triangle
    over the labels that have a score, row by row, in hundredths of a point; None where no error is known.
    """
    found = []
    for dataset in results.datasets:
        known = results.cells(dataset, metric)
        for split, frd, kind in known.drop_duplicates("split").sort_values(["frd", "split"])[
                ["split", "frd", "kind"]].itertuples(index=False, name=None):
            here, errors = results.rung_errors(dataset, split, metric)
            facts = {"dataset": dataset, "split": str(split), "frd": None if pd.isna(frd) else round(frd, 2),
                     "default": kind == "default"}
            found.append(facts | _paired(labels, here["label"].tolist(), here["score"].to_numpy(float), errors))
    for dataset, board in _unions(results) if metric == "recall@1" else ():
        named = results.label(board.rows)
        drawn, classes, _ = results.draws(board, metric, dataset)
        for key in (*(("recall", part) for part in union_parts(board)), ("unified", ""), ("harmonic", "")):
            errors = significance.column_errors(board, key, drawn, classes)
            facts = {"dataset": dataset, "split": key[1] or key[0], "frd": None, "default": False, "union": True,
                     "part": key[0] != "harmonic"}
            found.append(facts | _paired(labels, named, board.column(*key)["score"].to_numpy(float), errors))
    return found


def _paired(labels: list[str], named: list[str], values: np.ndarray, errors: Errors) -> dict[str, Any]:
    """The scores of the labels in one cell, whose rows are named, and half the interval of each difference."""
    place = {label: i for i, label in enumerate(named) if np.isfinite(values[i])}
    half, here = errors.pair_half_widths(), [place[label] for label in labels if label in place]
    return {"scores": [round(float(values[place[label]]), 5) if label in place else None for label in labels],
            "half": [_hundredths(half[a, b]) for i, a in enumerate(here) for b in here[i + 1:]]}


def _hundredths(half: float) -> int | None:
    return None if np.isnan(half) else round(10_000 * float(half))


def outcome(difference: float, half: float | None) -> int | None:
    """1 for a win, -1 for a loss, 0 for a difference within its interval; None without one, which nobody has tested.

    >>> outcome(0.02, 0.01), outcome(0.005, 0.01), outcome(-0.02, None)
    (1, 0, None)
    """
    if half is None:
        return None
    return 0 if abs(difference) <= half else int(np.sign(difference))


def alike(found: list[dict[str, Any]], rows: int, most: int) -> tuple[list[int], list[dict[str, Any]]]:
    """Rows and the cells that all of them have, as many of both as there are, so that all counts are over the same.

    >>> cells = [{"scores": [0.5, 0.4, 0.3]}, {"scores": [0.5, None, 0.3]}, {"scores": [0.5, None, 0.3]}]
    >>> alike(cells, 3, 9)[0]
    [0, 2]
    """
    there = [frozenset(k for k, cell in enumerate(found) if cell["scores"][row] is not None) for row in range(rows)]
    sets = {cells: [row for row in range(rows) if there[row] >= cells] for cells in dict.fromkeys(there) if cells}
    shared = {cells: having for cells, having in sets.items() if len(having) > 1}
    if not shared:
        return [], []
    cells = max(shared, key=lambda some: len(some) * len(shared[some]))
    return shared[cells][:most], [found[k] for k in sorted(cells)]


def versus(found: list[dict[str, Any]], labels: Sequence[str], name: str = "compare") -> Table:
    """Wins, ties and losses of the first labels against each other over the cells that both have, as `5/2/1`.

    Parts of unions are not counted.

    >>> cells = [{"scores": [0.5, 0.4], "half": [10]}, {"scores": [0.5, 0.4], "half": [10], "part": True}]
    >>> versus(cells, ["a", "b"]).frame.loc[0, "against1"]
    '1/0/0'
    """
    rows, found = [], [cell for cell in found if not cell.get("part")]
    labels = labels[:VERSUS]
    for i, a in enumerate(labels):
        row: dict[str, Any] = {"label": a}
        for j in range(len(labels)):
            counts: dict[int | None, int] = {1: 0, 0: 0, -1: 0, None: 0}
            for cell in found if i != j else ():
                one, two = cell["scores"][i], cell["scores"][j]
                if one is not None and two is not None:
                    counts[outcome(one - two, half_width(cell, i, j))] += 1
            row[f"against{j}"] = f"{counts[1]}/{counts[0]}/{counts[-1]}" if any(
                counts[told] for told in (1, 0, -1)) else ""
        rows.append(row)
    columns = [Column(f"against{j}", b) for j, b in enumerate(labels)
               if any(row[f"against{j}"] for row in rows)]
    for i, row in enumerate(rows):
        row[f"against{i}"] = "–"  # itself
    untested = any(half is None for cell in found for half in cell["half"])
    return Table(name, "Wins / ties / losses of the method of the row against that of the column",
                 (Column("label", "Row \\ against"), *columns), pd.DataFrame(rows),
                 "Differences without an interval, where results of single queries are missing, are not counted."
                 if untested else "")


def of_rows(found: list[dict[str, Any]], places: Sequence[int]) -> list[dict[str, Any]]:
    """The cells with some of their labels alone, in that order; those that none of them has left out."""
    kept = []
    for cell in found:
        here = [place for place in places if cell["scores"][place] is not None]
        if len(here) > 1:
            half = [half_width(cell, a, b) for i, a in enumerate(here) for b in here[i + 1:]]
            kept.append(cell | {"scores": [cell["scores"][place] for place in places],
                                "half": [None if one is None else round(10_000 * one) for one in half]})
    return kept


def half_width(cell: Mapping[str, Any], i: int, j: int) -> float | None:
    """Half the interval of the difference of two labels of one of the `cells` that has a score of both.

    >>> cell = {"scores": [0.5, None, 0.4, 0.3], "half": [100, 200, 300]}
    >>> half_width(cell, 0, 2), half_width(cell, 3, 0), half_width(cell, 2, 3)
    (0.01, 0.02, 0.03)
    """
    here = [label for label, score in enumerate(cell["scores"]) if score is not None]
    a, b = sorted((here.index(i), here.index(j)))
    half = cell["half"][a * len(here) - a * (a + 1) // 2 + b - a - 1]
    return None if half is None else half / 10_000
