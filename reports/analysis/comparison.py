"""Two methods or more, cell by cell: paired differences with intervals, and who wins, ties and loses where."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from reports.analysis.results import Results
from reports.tables.boards import Column, Table

MOST = 120_000
"""Intervals that the page of comparisons carries, so that it stays below a megabyte."""


def most(rungs: int) -> int:
    """How many rows can be compared with each other on so many rungs.

    >>> most(5), most(45)
    (219, 73)
    """
    return int((1 + math.sqrt(1 + 8 * MOST / max(1, rungs))) // 2)


def comparable(results: Results, metric: str) -> set[str]:
    """The labels that share a rung of a single dataset with another; those of a union alone do not."""
    rungs = [set(rung["label"]) for dataset in results.datasets
             for _, rung in results.cells(dataset, metric).groupby("split")]
    return set().union(*(labels for labels in rungs if len(labels) > 1))


def cells(results: Results, labels: list[str], metric: str) -> list[dict[str, Any]]:
    """For each rung of each dataset the scores of the labels and half of the interval of each difference.

    `half` is the upper triangle row by row, in hundredths of a point; None where no error is known.
    """
    found = []
    for dataset in results.datasets:
        known = results.cells(dataset, metric)
        for split, frd, kind in known.drop_duplicates("split").sort_values(["frd", "split"])[
                ["split", "frd", "kind"]].itertuples(index=False, name=None):
            here, errors = results.rung_errors(dataset, split, metric)
            place = {label: i for i, label in enumerate(here["label"])}
            half = errors.pair_half_widths()
            scores = [float(here["score"].iloc[place[label]]) if label in place else None for label in labels]
            triangle = [_hundredths(half[place[a], place[b]]) if a in place and b in place else None
                        for i, a in enumerate(labels) for b in labels[i + 1:]]
            found.append({"dataset": dataset, "split": int(split), "frd": None if pd.isna(frd) else round(frd, 2),
                          "default": kind == "default", "scores": [None if s is None else round(s, 5) for s in scores],
                          "half": triangle})
    return found


def _hundredths(half: float) -> int | None:
    return None if np.isnan(half) else round(10_000 * float(half))


def outcome(difference: float, half: float | None) -> int:
    """1 for a win, -1 for a loss, 0 for a difference within its interval; without an interval the sign decides.

    >>> outcome(0.02, 0.01), outcome(0.005, 0.01), outcome(-0.02, None)
    (1, 0, -1)
    """
    if half is not None and abs(difference) <= half:
        return 0
    return int(np.sign(difference))


def versus(found: list[dict[str, Any]], labels: list[str], shown: int = 20) -> Table:
    """Wins, ties and losses of the first labels against each other over the cells that both have, as `5/2/1`."""
    rows = []
    for i, a in enumerate(labels[:shown]):
        row: dict[str, Any] = {"label": a}
        for j in range(len(labels[:shown])):
            counts = {1: 0, 0: 0, -1: 0}
            for cell in found if i != j else ():
                one, two = cell["scores"][i], cell["scores"][j]
                if one is not None and two is not None:
                    half = cell["half"][triangle_place(min(i, j), max(i, j), len(labels))]
                    counts[outcome(one - two, None if half is None else half / 10_000)] += 1
            row[f"against{j}"] = "" if i == j else f"{counts[1]}/{counts[0]}/{counts[-1]}"
        rows.append(row)
    columns = (Column("label", "Method"), *(Column(f"against{j}", b) for j, b in enumerate(labels[:shown])))
    return Table("compare", "Wins / ties / losses of the row against the column", columns, pd.DataFrame(rows),
                 "Over all splits that both have. A tie is a difference within its 95 % interval.")


def triangle_place(i: int, j: int, count: int) -> int:
    """Where the pair i < j stands in the upper triangle, read row by row.

    >>> [triangle_place(i, j, 3) for i, j in ((0, 1), (0, 2), (1, 2))]
    [0, 1, 2]
    """
    return i * count - i * (i + 1) // 2 + j - i - 1
