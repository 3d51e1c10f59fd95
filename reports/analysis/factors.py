"""Methods under other backbones and other batch samplers, side by side."""

from __future__ import annotations

from typing import Any

import pandas as pd

from reports import aggregate
from reports.aggregate import key_of
from reports.analysis.results import Results
from reports.selection import USUAL, is_union, with_setting
from reports.tables.boards import Column, Table

_HEADS = {"study": "Protocol", "backbone": "Backbone", "source": "Source"}


def _side_by_side(runs: pd.DataFrame, rest: list[str], what: str, caption: str, metric: str) -> list[Table]:
    """One table a dataset: methods x variants, AGS where the ladder is whole, else the score on the default split.

    `rest` are the columns in which runs of one variant may differ; a row holds one value of each.
    """
    runs = runs[~runs["baseline"] & ~is_union(runs) & runs["variant"].notna()]
    made = []
    keys = ["method", *rest]
    for dataset, here in runs.groupby("dataset", sort=True):
        here = here[here.groupby(keys)["variant"].transform("nunique") > 1]
        if here.empty:
            continue
        laddered = len(aggregate.ags_per_seed(here, metric)["ags"].dropna()) > 0
        rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        for (*key, variant), group in here.groupby([*keys, "variant"], sort=True):
            values = (aggregate.ags_per_seed(group, metric)["ags"] if laddered else
                      group.loc[group["kind"].isin(USUAL), metric])
            row, name = rows.setdefault(tuple(key), dict(zip(keys, key))), key_of("variant", str(variant))
            row[name], row[f"{name}:std"], row[f"{name}:n"] = aggregate.spread(values)
        variants = sorted(here["variant"].unique())
        what_is_shown = "AGS of " + metric if laddered else f"{metric} on the default split"
        columns = (Column("method", "Method"), *(Column(key, _HEADS[key]) for key in rest if here[key].nunique() > 1),
                   *(Column(key_of("variant", name), name, "score") for name in variants))
        made.append(Table(f"{dataset}-{what}", f"{caption} on {dataset}: {what_is_shown}", columns,
                           pd.DataFrame(list(rows.values())), marked=False))
    return made


def backbones(results: Results, metric: str) -> list[Table]:
    """Methods that were run with several backbones, a table a dataset."""
    runs = results.runs.assign(variant=results.runs["backbone"], study=results.runs["protocol"])
    return _side_by_side(runs, ["study", "source"], "backbones", "Backbones", metric)


def samplers(results: Results, metric: str) -> list[Table]:
    """Methods that were run with several batch samplers, a table a dataset; the method's own is called `own`."""
    names = results.runs["protocol_settings"].map(lambda settings: (settings or {}).get("batches") or "own")
    study = [with_setting(name, {key: value for key, value in setting.items() if key != "batches"})
             for name, setting in zip(results.runs["base_protocol"], results.runs["protocol_setting"])]
    runs = results.runs.assign(variant=names, study=study)
    return _side_by_side(runs, ["study", "backbone", "source"], "samplers", "Batch samplers", metric)
