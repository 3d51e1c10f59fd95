"""Transfer to other datasets: what `cross.json` beside a record says (ooDML, supplement C), as tables.

    {"schema": 1, "targets": {DATASET: {"scores": {METRIC: FRACTION}, "floor": {"backbone": NAME, "scores": {...}}}}}
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from reports.aggregate import spread
from reports.board import key_of
from reports.selection import ROW
from reports.storage import packed
from reports.tables.boards import row_columns
from reports.tables.notes import bar_note
from reports.tables.table import Column, Table
from reports.wording import metric_name

NAME = "cross.json"
SCHEMA = 1
COLUMNS = ["trained", *ROW, "label", "seed", "evaluated", "metric", "score", "frozen", "frozen_backbone"]


def collect(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a run, dataset that it was evaluated on, and metric: its score and that of the frozen network there."""
    rows = packed.rows_beside(runs[["dataset", *ROW, "label", "seed", "path"]], NAME, SCHEMA, _rows,
                              "run the study again")
    return pd.DataFrame(rows, columns=COLUMNS)


def _rows(content: Any) -> list[tuple[Any, ...]]:
    """(evaluated, metric, score, score of the frozen network, its backbone) of one file."""
    rows: list[tuple[Any, ...]] = []
    for target, result in sorted(content["targets"].items()):
        frozen = result.get("floor") or {}
        for metric, score in sorted(result["scores"].items()):
            there = frozen.get("scores", {}).get(metric)
            backbone = frozen.get("backbone")
            rows.append((str(target), str(metric), float(score), None if there is None else float(there),
                         None if backbone is None else str(backbone)))
    return rows


def table(evaluated: pd.DataFrame, runs: pd.DataFrame, trained: str, metric: str) -> Table:
    """Methods trained on one dataset x the datasets that they were evaluated on, with the frozen network on each.

    The column of the dataset itself holds the scores on its own default split.
    """
    here = evaluated[(evaluated["trained"] == trained) & (evaluated["metric"] == metric)]
    targets = sorted(here["evaluated"].unique())
    own = runs[(runs["dataset"] == trained) & (runs["kind"] == "default")]
    rows = []
    for key, group in here.groupby(ROW, sort=True):
        row: dict[str, Any] = dict(zip(ROW, key))
        mine = own[(own[ROW] == pd.Series(row)).all(axis=1)]
        row["own"], row["own:std"], row["own:n"] = spread(mine[metric].astype(float))
        for target in targets:
            scores = group[group["evaluated"] == target]
            name = key_of("target", target)
            row[name], row[f"{name}:std"], row[f"{name}:n"] = spread(scores["score"].astype(float))
            frozen = scores["frozen"].dropna().astype(float)
            row[f"{name}:gain"] = row[name] - float(frozen.iloc[0]) if len(frozen) else float("nan")
        rows.append(row)
    compared = here.dropna(subset=["frozen"])
    for (protocol, backbone), group in compared.groupby(["protocol", "frozen_backbone"], sort=True):
        frozen = {key_of("target", str(name)): float(score)
                  for name, score in group.groupby("evaluated")["frozen"].first().items()}
        rows.append(dict(zip(ROW, ("frozen", protocol, backbone, "run"))) | {"baseline": True} | frozen)
    frame = pd.DataFrame(rows).sort_values(ROW, kind="stable")
    frame = frame.sort_values(key_of("target", targets[0]), ascending=False, kind="stable")
    method, *rest = row_columns(frame)
    columns = [method, Column("own", f"{trained} (its own)", "score", "On the default split of the dataset that it was "
                              "trained on")]
    for target in targets:
        name = key_of("target", target)
        columns.append(Column(name, target, "score", f"{metric_name(metric)} on the default test set of {target}"))
        if frame[f"{name}:gain"].notna().any():
            columns.append(Column(f"{name}:gain", "vs frozen", "gain", f"Less the frozen backbone on {target}"))
    note = bar_note(frame, ["own", *(key_of("target", target) for target in targets)])
    return Table(f"cross-{trained}-{metric}", f"{metric_name(metric)} of networks trained on {trained}",
                 (*columns, *rest), frame.reset_index(drop=True), note)


def matrix(evaluated: pd.DataFrame, runs: pd.DataFrame, metric: str) -> Table:
    """Trained on x evaluated on: the mean over the methods on a backbone, on the diagonal of their own default splits.

    A method counts once, however many seeds it has. The last rows are the frozen networks, of the backbones that were
    run frozen.
    """
    here = evaluated[evaluated["metric"] == metric]
    trained = sorted(here["trained"].unique())
    names = sorted(set(here["evaluated"]) | set(trained))
    rows: list[dict[str, Any]] = []
    for (source, backbone), part in here.groupby(["trained", "backbone"], sort=True):
        labels = set(part["label"])
        own = runs[(runs["dataset"] == source) & (runs["kind"] == "default") & runs["label"].isin(labels)]
        home = own[metric].astype(float).groupby(own["label"]).mean().mean()
        row: dict[str, Any] = {"trained": source, "backbone": backbone, "methods": len(labels),
                               key_of("target", str(source)): home}
        means = part.groupby(["label", "evaluated"])["score"].mean().groupby("evaluated").mean()
        row |= {key_of("target", str(name)): score for name, score in means.items()}
        better = part.dropna(subset=["frozen"]).groupby(["label", "evaluated"])[["score", "frozen"]].mean()
        row["above"] = f"{int((better['score'] > better['frozen']).sum())}/{len(better)}" if len(better) else "–"
        rows.append(row)
    for backbone, part in here.dropna(subset=["frozen"]).groupby("frozen_backbone", sort=True):
        best = part.groupby("evaluated")["frozen"].max()
        frozen = {key_of("target", str(name)): score for name, score in best.items()}
        rows.append({"trained": "nothing (frozen)", "backbone": backbone, "baseline": True} | frozen)
    several = len({row["backbone"] for row in rows}) > 1
    columns = (Column("trained", "Trained on"), *((Column("backbone", "Backbone"),) if several else ()),
               Column("methods", "Methods", "number", digits=0),
               *(Column(key_of("target", name), name, "score",
                        f"{metric_name(metric)} on the default test set of {name}")
                 for name in names),
               Column("above", "Above frozen", "text", "Pairs of a method and another dataset on which it beats the "
                      "frozen backbone"))
    return Table(f"cross-{metric}", f"{metric_name(metric)} by the dataset that was trained on, mean over methods",
                 columns, pd.DataFrame(rows).reindex(columns=[*(column.key for column in columns), "baseline"]),
                 marked=False)
