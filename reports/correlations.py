"""What the structure of an embedding has to do with its scores, and how the metrics agree with each other.

Spearman's rank correlation over cells (method x rung, seeds averaged), as in figure 4 of ooDML and figures 4 and 5 of
Revisiting DML. Within a dataset scores and measures are first ranked, so that easy datasets do not make a correlation.
"""

from __future__ import annotations

import pandas as pd

from reports.aggregate import ROW, is_union
from reports.records import metrics
from reports.tables import Column, Table
from reports.views import spearman

MEASURES = ("pi_intra", "pi_inter", "density", "rho")
SCORES = ("recall@1", "map@1000")


def cells(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a method and rung of single datasets: mean over seeds of all metrics and measures of structure."""
    single = runs[~is_union(runs)]
    numbers = [column for column in single.columns if column.startswith("structure:")] + metrics(single)
    keys = ["dataset", "split", "kind", *ROW]
    return single.groupby(keys, sort=True)[numbers].mean().reset_index()


def _within(points: pd.DataFrame, column: str) -> pd.Series:
    """Ranks within each dataset, as shares of its number of cells."""
    return points.groupby("dataset")[column].rank(pct=True)


def structure_table(points: pd.DataFrame) -> Table | None:
    """Correlation of each measure with each score, over all rungs and on default splits only; None without measures."""
    rows = []
    for column in [name for name in points.columns if name.startswith("structure:")]:
        _, side, measure = column.split(":")
        if points[column].notna().sum() < 3:
            continue
        row: dict[str, object] = {"measure": measure, "side": side}
        for score in [name for name in SCORES if name in points]:
            for where, some in (("all", points), ("default", points[points["kind"] == "default"])):
                row[f"{score}:{where}"] = spearman(_within(some, column), _within(some, score))
                row[f"{where}:cells"] = int((some[column].notna() & some[score].notna()).sum())
        rows.append(row)
    if not rows:
        return None
    frame = pd.DataFrame(rows)
    released = frame["measure"].str.contains("released")
    frame = pd.concat([frame[~released], frame[released]], ignore_index=True)
    columns = [Column("measure", "Measure"), Column("side", "Side")]
    for score in [name for name in SCORES if name in points]:
        columns += [Column(f"{score}:all", f"{score}, all splits", "number", digits=2),
                    Column(f"{score}:default", f"{score}, default", "number", digits=2)]
    columns += [Column("all:cells", "Cells", "number", digits=0),
                Column("default:cells", "Cells, default", "number", digits=0)]
    return Table("structure", "Spearman correlation of structure and score", tuple(columns), frame,
                 "Ranked within each dataset. Cells are methods on splits, seeds averaged.")


def metric_matrix(points: pd.DataFrame) -> pd.DataFrame:
    """Spearman correlations between all metrics over the cells, ranked within each dataset."""
    names = [name for name in metrics(points) if points[name].nunique() > 1]
    ranks = {name: _within(points, name) for name in names}
    return pd.DataFrame([[spearman(ranks[a], ranks[b]) for b in names] for a in names], index=names, columns=names)


def matrix_table(values: pd.DataFrame) -> Table:
    """The matrix as a table, for the numbers behind its figure."""
    frame = values.reset_index(names="metric")
    columns = (Column("metric", "Metric"), *(Column(str(name), str(name), "number", digits=2) for name in values))
    return Table("metrics", "Spearman correlation between metrics", columns, frame, "Ranked within each dataset.")
