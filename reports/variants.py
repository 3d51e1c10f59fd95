"""Methods under other backbones and other batch samplers, side by side."""

from __future__ import annotations

from typing import Any

import pandas as pd

from reports import aggregate
from reports.results import Results
from reports.tables import Column, Table


def _plain(name: str) -> str:
    return name.split("[")[0]


def _side_by_side(results: Results, names: pd.Series, what: str, caption: str, metric: str) -> list[Table]:
    """One table a dataset: methods x names, AGS where the ladder is whole, else the score on the default split."""
    runs = results.runs.assign(variant=names)
    floor = runs["family"].eq("floor") | runs["method"].map(_plain).isin(aggregate.FLOORS)
    runs = runs[~floor & ~aggregate.is_union(runs) & runs["variant"].notna()]
    found = []
    runs = runs.assign(study=runs["protocol"].map(_plain))
    for dataset, here in runs.groupby("dataset", sort=True):
        here = here[here.groupby(["method", "study"])["variant"].transform("nunique") > 1]
        if here.empty:
            continue
        rows: dict[tuple[Any, Any], dict[str, Any]] = {}
        aggregated = False
        for (method, study, variant), group in here.groupby(["method", "study", "variant"], sort=True):
            row = rows.setdefault((method, study), {"method": method, "study": study})
            seeds = aggregate.ags_per_seed(group, metric)
            value = aggregate.spread(seeds["ags"]) if len(seeds) else (float("nan"), float("nan"), 0)
            default = aggregate.spread(group.loc[group["kind"].isin(aggregate.USUAL), metric])
            aggregated |= value[2] > 0
            row[f"{variant}:ags"], row[f"{variant}:default"] = value, default
        chosen = "ags" if aggregated else "default"
        variants = sorted(here["variant"].unique())
        for row in rows.values():
            for variant in variants:
                both = row.pop(f"{variant}:ags", None), row.pop(f"{variant}:default", None)
                mean = both[0 if aggregated else 1]
                row[variant], row[f"{variant}:std"], row[f"{variant}:n"] = mean or (float("nan"), float("nan"), 0)
        told = "AGS of " + metric if chosen == "ags" else f"{metric} on the default split"
        several = here["study"].nunique() > 1
        columns = (Column("method", "Method"), *((Column("study", "Protocol"),) if several else ()),
                   *(Column(name, name, "score") for name in variants))
        found.append(Table(f"{dataset}-{what}", f"{caption} on {dataset}: {told}", columns,
                           pd.DataFrame(list(rows.values())), marked=False))
    return found


def backbones(results: Results, metric: str) -> list[Table]:
    """Methods that were run with several backbones, a table a dataset."""
    return _side_by_side(results, results.runs["backbone"], "backbones", "Backbones", metric)


def samplers(results: Results, metric: str) -> list[Table]:
    """Methods that were run with several batch samplers, a table a dataset; the method's own is called `own`."""
    names = results.runs["protocol_settings"].map(lambda settings: (settings or {}).get("batches") or "own")
    return _side_by_side(results, names, "samplers", "Batch samplers", metric)
