"""What the structure of an embedding has to do with its scores, and how the metrics agree with each other.

Spearman's rank correlation over cells (method x rung, seeds averaged), as in figure 4 of ooDML and figures 4 and 5 of
Revisiting DML, of training and of test embeddings. Within a dataset scores and measures are first ranked, so that easy
datasets do not make a correlation; over the methods of one split, and normalised within each for the figure, none but
the methods can make it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from reports.analysis.measures import is_released, metric_order, of_structure, structure_order
from reports.records import metrics
from reports.selection import ABOUT_KINDS, KINDS, ROW, is_union
from reports.tables.table import Column, Table
from reports.wording import metric_name

MEASURES = ("pi_intra", "pi_inter", "density", "rho")
SIDES = ("train", "test")
SIDE_WORDS = {"train": "training", "test": "test"}
SCORES = ("recall@1", "map@1000")


def cells(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a method and rung of single datasets: mean over seeds of all metrics and measures of structure."""
    single = runs[~is_union(runs)]
    numbers = [column for column in single.columns if column.startswith("structure:")] + metrics(single)
    keys = ["dataset", "split", "kind", *ROW]
    return single.groupby(keys, sort=True)[numbers].mean().reset_index()


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's rank correlation of values without gaps; NaN below three of them or where one side is flat."""
    return float(pd.DataFrame({"a": a, "b": b}).corr(method="spearman", min_periods=3).to_numpy()[0, 1])


def _correlations(points: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Spearman's correlation of every two columns, after ranking within each dataset (as shares of its cells)."""
    ranks = points.groupby("dataset")[columns].rank(pct=True)
    return ranks.corr(method="spearman", min_periods=3)


def structure_table(points: pd.DataFrame, released: bool = False) -> Table | None:
    """Correlation of each measure with each score, over all splits and on default splits only; None without measures.

    Of the measures that the papers define, or of what their `released` code computes instead.
    """
    rows = []
    measured = [name for name in points.columns if name.startswith("structure:") and points[name].notna().sum() > 2
                and is_released(name) == released]
    scores = [name for name in SCORES if name in points]
    where = {"all": points, "default": points[points["kind"] == "default"]}
    correlated = {name: _correlations(some, [*measured, *scores]) for name, some in where.items()}
    keys = (column.split(":") for column in measured)
    for _, side, measure in sorted(keys, key=lambda key: (structure_order(key[2]), SIDES.index(key[1]))):
        column = f"structure:{side}:{measure}"
        named = of_structure(measure)
        row: dict[str, object] = {"name": f"{named.name} {named.symbol}".strip(), "measure": measure, "side": side}
        for score in scores:
            row |= {f"{score}:{name}": correlated[name].at[column, score] for name in where}
            row |= {f"{name}:cells": int((some[column].notna() & some[score].notna()).sum())
                    for name, some in where.items()}
        rows.append(row)
    if not rows:
        return None
    columns = [Column("name", "Measure"), Column("side", "Of", "text", "The training or the test embeddings")]
    for score in scores:
        columns += [Column(f"{score}:all", f"{metric_name(score)}, all splits", "number", digits=2),
                    Column(f"{score}:default", f"{metric_name(score)}, default split", "number", digits=2)]
    columns += [Column("all:cells", "Cells, all splits", "number", digits=0),
                Column("default:cells", "Cells, default split", "number", digits=0),
                Column("measure", "Key", "text", "What the measure is called in records", spare=True)]
    return Table("structure-released" if released else "structure",
                 "Spearman correlation of structure and score" + ", measures of the released code" * released,
                 tuple(columns), pd.DataFrame(rows),
                 "Ranked within each dataset. Cells are methods on splits, seeds averaged.")


def measured(points: pd.DataFrame, side: str) -> dict[str, str]:
    """{column: name} of the MEASURES that some cell has of this side."""
    columns = {f"structure:{side}:{measure}": of_structure(measure).name for measure in MEASURES}
    return {column: name for column, name in columns.items() if column in points and points[column].notna().any()}


def normalised(points: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The cells with these columns drawn to [0, 1] within each split, as in figure 4 of ooDML; NaN where all are equal.

    >>> cells = pd.DataFrame({"dataset": "a", "split": [1, 1, 1, 2], "rho": [2.0, 4.0, 3.0, 9.0]})
    >>> normalised(cells, ["rho"])["rho"].tolist()
    [0.0, 1.0, 0.5, nan]
    """
    groups = points.groupby(["dataset", "split"])[[*columns]]
    low, high = groups.transform("min"), groups.transform("max")
    return points.assign(**((points[[*columns]] - low) / (high - low).where(high > low)))


def measure_columns(columns: Sequence[str], digits: int) -> list[Column]:
    """Columns of measures, headed by their symbols, with what they are."""
    found = []
    for column in columns:
        _, side, key = column.split(":")
        named = of_structure(key)
        found.append(Column(column, f"{named.symbol or named.name}, {side}", "number",
                            f"{named.name} of the {SIDE_WORDS[side]} embeddings: {named.meaning}", digits))
    return found


def split_table(points: pd.DataFrame, metric: str) -> Table | None:
    """Spearman's correlation of each measure with a score over the methods of each split; None below three methods."""
    columns = [column for side in SIDES for column in measured(points, side)]
    rows = []
    for (dataset, split, kind), cells in points.groupby(["dataset", "split", "kind"], sort=True):
        found = cells[[*columns, metric]].corr(method="spearman", min_periods=3)[metric].drop(metric)
        if found.notna().any():
            made = KINDS.get(str(kind), str(kind))
            rows.append({"dataset": dataset, "split": split, "kind": made, "cells": len(cells), **found})
    if not rows:
        return None
    heads = (Column("dataset", "Dataset"), Column("split", "Split"), Column("kind", "Kind", "text", ABOUT_KINDS),
             Column("cells", "Methods", "number", digits=0),
             *measure_columns(columns, 2))
    return Table("structure-splits", f"Spearman correlation of structure and {metric_name(metric)} on each split",
                 heads,
                 pd.DataFrame(rows), "Over the methods of a split, seeds averaged.", marked=False)


def metric_matrix(points: pd.DataFrame) -> pd.DataFrame:
    """Spearman correlations between all metrics over the cells, ranked within each dataset."""
    names = sorted((name for name in metrics(points) if points[name].nunique() > 1), key=metric_order)
    return _correlations(points, names).rename(index=metric_name, columns=metric_name)


def matrix_table(values: pd.DataFrame) -> Table:
    """The matrix as a table, for the numbers behind its figure."""
    frame = values.reset_index(names="metric")
    columns = (Column("metric", "Metric"), *(Column(str(name), str(name), "number", digits=2) for name in values))
    return Table("metrics", "Spearman correlation between metrics", columns, frame, "Ranked within each dataset.")
