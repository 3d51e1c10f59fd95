"""Two folders of results against each other: what only one has, what changed, and what may be the cause."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from reports import aggregate
from reports.selection import NAMED, ROW, select
from reports.tables.table import Column, Table
from reports.wording import metric_name

CELL = ["dataset", "split", *ROW, "seed"]
ROUNDED_UP = 1 + 1e-9
"""For binary fractions, of which 0.701 - 0.7 is a little more than 0.001."""
_CAUSES = {"split_hash": "split", "dataset_hash": "data", "contents": "files", "weights": "weights",
           "identity": "settings", "commit": "code", "version": "version", "device": "device"}


def cells(a: pd.DataFrame, b: pd.DataFrame, metric: str = "recall@1", tolerance: float = 0.0) -> pd.DataFrame:
    """One row a cell that is not the same in both: state (only A, only B, changed), scores, difference, causes.

    A cell has changed if its score moved by more than the tolerance (a fraction). Named as causes are those of data,
    split, settings, code and device that differ between the two runs.
    """
    for frame in (a, b):
        aggregate.having(frame, metric)
    sides = [side.set_index(CELL) for side in _sides(a, b)]
    both = sides[0].join(sides[1], how="outer", lsuffix=":a", rsuffix=":b", sort=True)
    known = [set(side.index) for side in sides]
    rows = []
    for key, row in zip(both.index, both.to_dict("records")):
        one, two = row[f"{metric}:a"], row[f"{metric}:b"]
        state = "only A" if key not in known[1] else "only B" if key not in known[0] else "changed"
        if state == "changed" and (_same(one, two) or abs(one - two) <= ROUNDED_UP * tolerance):
            continue
        causes = [word for column, word in _CAUSES.items() if state == "changed"
                  and str(row[f"{column}:a"]) != str(row[f"{column}:b"])]
        rows.append(dict(zip(CELL, key)) | {"state": state, "a": one, "b": two, "difference": two - one,
                                            "causes": ", ".join(causes)})
    return pd.DataFrame(rows, columns=[*CELL, "state", "a", "b", "difference", "causes"])


def _sides(a: pd.DataFrame, b: pd.DataFrame) -> list[pd.DataFrame]:
    """The runs of each folder that count, with names that mean the same in both.

    `select` names settings by what lies beside them. Where a folder holds several of a method, protocol or
    backbone, all of both are named together; where each holds one, they are held against each other, whatever their
    settings.
    """
    sides = [select(frame)[0] for frame in (a, b)]
    both = pd.concat(sides, keys=range(2))
    plain = both[[f"base_{key}" for key in NAMED]].set_axis(NAMED, axis=1)
    # each a seed of its own, on one ladder: so `select` names them all and sets none aside
    alone = both.assign(seed=range(len(both)), ladder="", ladder_name=None, dataset_hash="", contents=None,
                        **{key: plain[key] for key in NAMED})
    together = select(alone)[0].set_index("seed")[NAMED].sort_index().set_index(both.index)
    several = (both[NAMED] != plain).groupby([both["dataset"], *(plain[key] for key in NAMED)]).transform("any")
    names = together.where(several, plain)
    return [side.assign(**{key: list(names[key].xs(i)) for key in NAMED}) for i, side in enumerate(sides)]


def _same(one: Any, two: Any) -> bool:
    return one == two or (isinstance(one, float) and isinstance(two, float) and math.isnan(one) and math.isnan(two))


def shared(a: pd.DataFrame, b: pd.DataFrame) -> int:
    """How many cells both folders have."""
    sides = [set(side[CELL].itertuples(index=False, name=None)) for side in _sides(a, b)]
    return len(sides[0] & sides[1])


def boards(a: pd.DataFrame, b: pd.DataFrame, metric: str = "recall@1", tolerance: float = 0.0) -> pd.DataFrame:
    """AGS of each dataset and row in both, with the difference, unless that is at most `tolerance`."""
    sides = [aggregate.ags_per_seed(side, metric).groupby(["dataset", *ROW])["ags"].mean() for side in _sides(a, b)]
    both = pd.concat(sides, axis=1, keys=["a", "b"]).sort_index()
    same = (both["a"] - both["b"]).abs() <= max(1e-9, ROUNDED_UP * tolerance)
    both = both[~same & both.notna().any(axis=1)]
    return both.assign(difference=both["b"] - both["a"]).reset_index()


def cell_table(differing: pd.DataFrame, metric: str) -> Table:
    """The cells that differ, as a table."""
    names = [Column(key, key) for key in ("dataset", "split", "method", "seed")]
    names += [Column(key, key) for key in ROW[1:] if differing[key].nunique() > 1]
    columns = (*names, Column("state", "state"), Column("a", "A", "score"), Column("b", "B", "score"),
               Column("difference", "B - A", "gain", digits=2), Column("causes", "what differs"))
    return Table("diff", f"{metric_name(metric)} of cells that differ", columns, differing, marked=False)


def board_table(differing: pd.DataFrame, metric: str) -> Table:
    """The aggregates that differ, as a table."""
    names = [Column("dataset", "dataset"), Column("method", "method")]
    names += [Column(key, key) for key in ROW[1:] if differing[key].nunique() > 1]
    columns = (*names, Column("a", "A", "score"), Column("b", "B", "score"),
               Column("difference", "B - A", "gain", digits=2))
    return Table("diff-ags", f"AGS of {metric_name(metric)} that differ", columns, differing, marked=False)


def summary(differing: pd.DataFrame, count: int) -> str:
    """One line: how many cells are in one folder only, how many of the `count` in both changed or are the same."""
    states = differing["state"].value_counts()
    counts = ", ".join(f"{states.get(state, 0)} {word}" for state, word in
                     (("only A", "only in A"), ("only B", "only in B"), ("changed", "changed")))
    return f"{counts}, {count - int(states.get('changed', 0))} the same"
