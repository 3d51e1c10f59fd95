"""Weights between the start and the end of a run: what `wise.json` beside a record says (WiSE-FT)."""

from __future__ import annotations

from typing import Any

import pandas as pd

from reports.selection import ROW
from reports.storage import packed
from reports.tables.boards import DISTANCE
from reports.tables.table import Column, Table
from reports.wording import metric_name

NAME = "wise.json"
SCHEMA = 1
COLUMNS = ["dataset", "split", "frd", *ROW, "seed", "alpha", "metric", "score"]


def collect(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a run, alpha (0: the start, 1: the end) and metric; see COLUMNS."""
    rows = packed.rows_beside(runs[["dataset", "split", "frd", *ROW, "seed", "path"]], NAME, SCHEMA, _rows,
                              "run `oodml wise` again")
    return pd.DataFrame(rows, columns=COLUMNS)


def _rows(content: Any) -> list[tuple[Any, ...]]:
    """(alpha, metric, score) of one file."""
    return [(float(alpha), str(metric), float(score)) for alpha, scores in content["alphas"].items()
            for metric, score in scores.items() if score is not None]


def curves(found: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Splits x alphas of the runs of one row: the mean over seeds, nearest split first."""
    here = found[found["metric"] == metric]
    if here.empty:
        return here
    return here.pivot_table("score", ["dataset", "frd", "split"], "alpha", dropna=False).dropna(how="all")


def table(curves: pd.DataFrame, metric: str, name: str, label: str) -> Table:
    """The numbers behind the curves, with the alpha that is best on each split."""
    frame = curves.copy()
    frame.columns = pd.Index([f"alpha:{alpha:g}" for alpha in curves.columns])
    frame.insert(0, "best", curves.idxmax(axis=1))
    columns = (Column("dataset", "Dataset"), Column("split", "Split"), Column("frd", DISTANCE, "number", digits=1),
               Column("best", "Best alpha", "number", digits=1),
               *(Column(f"alpha:{alpha:g}", f"{alpha:g}", "score") for alpha in curves.columns))
    return Table(name, f"{metric_name(metric)} of {label} between its start (0) and its end (1)", columns,
                 frame.reset_index(), marked=False)
