"""Tables of single runs: all of them as a file, those of a method, those that failed, their curves, when they came."""

from __future__ import annotations

from typing import Any

import pandas as pd

from reports.analysis import costs
from reports.analysis.measures import metric_order
from reports.overrides import overrides_text
from reports.records import FACTS, metrics
from reports.selection import TYPED
from reports.tables.boards import DISTANCE
from reports.tables.table import Column, Table
from reports.wording import metric_name

OBJECTS = ("ladder", "papers", "tags", "cite", "summary", "settings", "protocol_settings", "curve", "chosen_epochs",
           "path", "parts", "members", "overrides", "spectra", "thresholds", "backbone_facts")
"""Columns of runs that are no plain values, or too long for a cell: a file of all runs leaves them out."""


def runs_table(runs: pd.DataFrame, name: str, caption: str) -> Table:
    """Every run of a method with its seed, scores and cost."""
    scores = sorted((metric for metric in metrics(runs) if runs[metric].notna().any()), key=metric_order)
    chosen = {"best-test:recall@1": ("Recall@1, best epoch", "At the epoch that is best on the test classes"),
              "validation:recall@1": ("Recall@1, validation epoch", "At the epoch that is best on held-out training "
                                      "classes")}
    rest = [key for key in chosen if key in runs and runs[key].notna().any()]
    columns = [Column("dataset", "Dataset"), Column("split", "Split"), Column("frd", DISTANCE, "number", digits=1),
               *(Column(key, head) for key, head in (("protocol", "Protocol"), ("backbone", "Backbone"))
                 if runs[key].nunique() > 1),
               Column("seed", "Seed"), *(Column(metric, metric_name(metric), "score") for metric in scores),
               *(Column(key, chosen[key][0], "score", chosen[key][1]) for key in rest)]
    runs = costs.with_shares(runs)
    columns += [column for column in costs.COLUMNS if runs[column.key].notna().any()]
    about = "The code that made the run; `+ changes` where the tree held more than the commit"
    columns += [Column("date", "Date"), Column("code", "Commit", "text", about), Column("identity", "Run")]
    shown = runs.assign(identity=runs["identity"].str[:12], date=runs["date"].map(lambda d: str(d)[:10] if d else ""),
                        code=made_with(runs))
    shown = shown.sort_values(["dataset", "frd", "split", "protocol", "backbone", "seed"], kind="stable")
    return Table(name, caption, tuple(columns), shown[[c.key for c in columns]], marked=False)


def tidy(frame: pd.DataFrame) -> pd.DataFrame:
    """All runs with their plain columns and shares of their devices, for the CSV beside the site.

    Ladders, curves and paths stay in the records.
    """
    plain = [key for key in FACTS if key not in OBJECTS]
    rest = [column for column in frame.columns if column not in (*FACTS, *TYPED)]
    changes = [overrides_text([each]) for each in frame["overrides"]]
    return costs.with_shares(frame[[*plain, *rest]]).assign(overrides=changes)


def failure_table(failures: pd.DataFrame) -> Table:
    """Runs without a result, with their cause."""
    columns = (Column("dataset", "Dataset"), Column("split", "Split"), Column("method", "Method"),
               Column("seed", "Seed"), Column("state", "State"), Column("cause", "Cause"), Column("remedy", "Remedy"))
    order = [c.key for c in columns]
    first = failures["cause"].map(lambda cause: str(cause or "no cause recorded").splitlines()[0])
    shown = failures.assign(cause=first)[order].fillna("").astype(str).sort_values(order, kind="stable")
    return Table("failures", "Runs without a result", columns, shown.reset_index(drop=True))


def curve_table(curves: list[tuple[str, list[dict[str, Any]]]], metric: str, name: str, caption: str) -> Table:
    """The numbers behind `figures.inline.training_curves`: run, epoch, loss and score."""
    keys = ("epoch", "loss", metric)
    rows = [(label, *(point.get(key) for key in keys)) for label, curve in curves for point in curve]
    frame = pd.DataFrame(rows, columns=["run", *keys])
    columns = (Column("run", "Dataset and split"), Column("epoch", "Epoch", "number", digits=0),
               Column("loss", "Loss", "number", digits=4), Column(metric, metric, "score"))
    return Table(name, caption, columns, frame, marked=False)


def made_with(runs: pd.DataFrame) -> pd.Series:
    """The commit that each run was made with, short; `+ changes` where the tree held more than that."""
    changed = runs["dirty"].map(lambda dirty: " + changes" if dirty is True else "")
    return runs["commit"].map(lambda commit: str(commit)[:9] if commit else "") + changed


def changelog(runs: pd.DataFrame) -> Table:
    """When what came to the board: runs of each day and commit, newest first."""
    days = runs.assign(day=runs["date"].map(lambda date: str(date)[:10] if date else "not dated"),
                       code=made_with(runs),
                       version=runs["version"].fillna("").astype(str))
    rows = []
    for (day, version, code), group in days.groupby(["day", "version", "code"], sort=True):
        names = sorted(group["method"].unique())
        listed = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        rows.append((day, version, code, len(group), ", ".join(sorted(group["dataset"].unique())), listed))
    frame = pd.DataFrame(rows[::-1], columns=["day", "version", "code", "runs", "datasets", "methods"])
    columns = (Column("day", "Day"), Column("version", "Version"), Column("code", "Commit"),
               Column("runs", "Runs", "number", digits=0), Column("datasets", "Datasets"), Column("methods", "Methods"))
    return Table("changelog", "Runs by day and code", columns, frame)
